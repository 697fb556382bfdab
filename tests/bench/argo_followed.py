"""One run of the real command line on a real API server, whose Workflow is written as a controller would: calls, bytes, times."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from argo_home import Measured, put
from argo_played import Played, waits

from steps.contract.canonical import canonical
from steps.contract.runs import evidence
from steps.contract.verdict import NodeVerdict, Status, passed
from workflows.engines.argo.workflow_objects import stamp
from workflows.engines.local.run_state import RunState
from workflows.plan import run_folders
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle
from workflows.stages.stage import Step

COMMAND = Path(sys.executable).with_name("bringup")
PATIENCE = 600.0
IDLE = 121.0
"""Seconds that a follower is watched while nothing happens: two rounds of its watch."""


@dataclass
class Followed:
    """Measurements of one followed run: API requests by part of the run, seconds of each command, watch events and bytes."""

    calls: dict[str, Counter[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    events: int = 0
    bytes: int = 0
    writes: int = 0
    sent: list[int] = field(default_factory=list)
    pulled: int = 0
    said: str = ""


class Run:
    """One run, from `bringup run` to its end."""

    def __init__(self, home: Measured, folder: Path, plan: Plan, bundle: Bundle, spec: Path) -> None:
        self.home, self.folder, self.plan, self.bundle, self.spec = home, folder, plan, bundle, spec
        self.found = Followed()
        self._environment = {
            **os.environ,
            "BRINGUP_HOME": str(folder / "runs"),
            "KUBECONFIG": str(home.kubeconfig),
            "COLUMNS": "200",
        }

    def follow(self) -> Followed:
        """Submit, follow, look, approve, and pull; the controller's part is played here."""
        said, before, began = self.folder / "followed.txt", self.home.watched(), time.monotonic()
        with said.open("w") as out:
            command = [str(COMMAND), "run", str(self.spec), "--engine", "argo", "--argo-version", "4.1.2"]
            follower = subprocess.Popen(command, env=self._environment, cwd=self.folder, stdout=out, stderr=out)
        workflow = self._submitted(follower, said)
        self.found.seconds["submit"] = time.monotonic() - began
        self._count("submit")
        self._play(workflow, follower)
        follower.wait(PATIENCE)
        self.found.said = said.read_text()
        after = self.home.watched()
        self.found.events, self.found.bytes = after[0] - before[0], after[1] - before[1]
        self._count("the end, with its pull")
        return self.found

    def _count(self, part: str) -> None:
        self.found.calls[part] = self.home.calls()

    def _submitted(self, follower: "subprocess.Popen[bytes]", said: Path) -> dict[str, Any]:
        end, home = time.monotonic() + PATIENCE, self.home.admin
        while time.monotonic() < end and follower.poll() is None:
            if items := msgspec.json.decode(home.fetch(home.workflows()))["items"]:
                found: dict[str, Any] = items[0]
                return found
            threading.Event().wait(0.1)
        raise RuntimeError(f"nothing was submitted: {said.read_text()}")

    # --- the controller's part ----------------------------------------------------------------------------------------

    def _play(self, found: dict[str, Any], follower: "subprocess.Popen[bytes]") -> None:
        played, began, kept = Played(found["metadata"]["name"], self.plan, self.bundle), time.time(), set[str]()
        for state in played.states():
            found, sent = put(self.home.admin, found, played.status(state, began))
            self.found.writes += 1
            self.found.sent.append(sent)
            self._keep_evidence(played.name, state, kept)
            if waits(state):
                self._count("following")
                found = self._at_the_gate(played.name, waits(state))
            if follower.poll() is not None and not state.finished:
                raise RuntimeError("the follower ended before its run")

    def _at_the_gate(self, name: str, gate: str) -> dict[str, Any]:
        """Wait as a run waits for a person, look twice (the first brings evidence here), and approve."""
        threading.Event().wait(IDLE)
        self._count("following, two idle minutes")
        for part in ("status, the first", "status", "approve"):
            words = ("approve", name, "--as", "ada@example.org") if part == "approve" else ("status", name)
            self._command(part, *words)
        home = self.home.admin
        found: dict[str, Any] = msgspec.json.decode(home.raw_workflow(name))
        node = next(one for one in found["status"]["nodes"].values() if one["displayName"] == gate)
        assert node["phase"] == "Succeeded", node
        return found

    def _command(self, part: str, *words: str) -> None:
        began = time.monotonic()
        done = subprocess.run(
            [str(COMMAND), *words], env=self._environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        self.found.seconds[part] = time.monotonic() - began
        if done.returncode:
            raise RuntimeError(f"bringup {' '.join(words)}: {done.stdout}{done.stderr}")
        self._count(part)

    # --- the steps' part ----------------------------------------------------------------------------------------------

    def _keep_evidence(self, run: str, state: RunState, kept: set[str]) -> None:
        """Records like those of a rehearsal, for what has ended."""
        steps = {f"{stage.id}-{step.name}".replace("_", "-"): step for stage in self.plan.stages for step in stage.steps}
        for node in state.nodes.values():
            step = steps.get(node.template_name)
            if step is None or node.type != "Pod" or node.phase != "Succeeded" or node.path in kept:
                continue
            kept.add(node.path)
            shard = int(dict(node.inputs).get("shard", "0"))
            key = evidence.key(run, step.task.stage, step.name, shard, 1)
            path = self.home.store / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(canonical(self._record(run, step, shard)))
            self.found.pulled += path.stat().st_size

    def _record(self, run: str, step: Step, shard: int) -> evidence.Evidence:
        shards = run_folders.shards(self.plan.hosts)
        hosts = shards[shard] if step.fan_out else self.plan.hosts
        rows = tuple(NodeVerdict(node=host.name, status=Status.PASS) for host in hosts)
        seen = {"nodes": [_facts(host.name) for host in hosts]} if step.fan_out else None
        return evidence.Evidence(
            run=run,
            stage=step.task.stage,
            task=step.name,
            verb=step.task.verb.value,
            shard=shard,
            attempt=1,
            input_digest="sha256:" + os.urandom(32).hex(),
            engine="argo",
            started=0.0,
            finished=1.0,
            verdict=passed(f"{step.task.stage}/{step.name}", f"{len(rows)} nodes", rows),
            observation=seen,
        )


def _facts(name: str) -> dict[str, Any]:
    """2.7 kB a host, as a play of a rehearsal records; ids differ from host to host, the rest does not."""
    items = [{"after": "loaded", "name": f"module number {number}", "status": "ok", "want": "loaded"} for number in range(28)]
    facts = {"boot_id": os.urandom(16).hex(), "machine_id": os.urandom(16).hex(), "hostname": name, "kernel": "6.8.0-60-generic"}
    return {"node": name, "outcome": "ok", "facts": facts, "items": items, "at": stamp(time.time())}
