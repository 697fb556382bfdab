"""The live view of a run on Argo: the lines of the local one, while the run goes on, and no pod is made for them."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.clients.store import Store
from tests.unit.engines.argo.lab import Lab, until
from tests.unit.engines.argo.test_follow import Follower, approve, begin
from tests.unit.warm_commands import COMMAND
from workflows import examples
from workflows.app.runs.argo_watch import AwayProgress
from workflows.engines.argo.workflow_objects import WORKFLOW_LABEL
from workflows.engines.local.result import RunNodeStatus
from workflows.plan.compiler import compile_plan
from workflows.rehearsal.rehearsal_run import RehearsalOptions
from workflows.rehearsal.simulated_cluster import simulated_cluster, write_fleet
from workflows.spec import load

Drill = Callable[..., Any]


class Person:
    """A person's machine, whose commands write into files here."""

    def __init__(self, lab: Lab, name: str = "ada") -> None:
        self.lab, self.folder = lab, lab.folder / name
        self.folder.mkdir(exist_ok=True)
        self.environment = {**os.environ, "BRINGUP_HOME": str(self.folder / "runs"), "KUBECONFIG": lab.where.kubeconfig}
        self.where = ("--namespace", lab.where.namespace)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [str(COMMAND), *words]
        with (self.folder / "out").open("w") as out, (self.folder / "err").open("w") as err:
            return subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=out, stderr=err)

    def run(self, *words: str) -> int:
        return self.start(*words).wait(120)

    @contextmanager
    def watching(self, run: str) -> Iterator[subprocess.Popen[bytes]]:
        follower = self.start("watch", run, *self.where)
        try:
            yield follower
        finally:
            follower.kill()
            follower.wait()

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def lines(self) -> list[str]:
        """Return the lines of the view about stages, without those about waiting, and with times replaced by "(TIME)"."""
        view = re.sub(r"\(\d+\.\d s\)", "(TIME)", self.out.partition("\n\n")[0])
        return [line for line in view.splitlines() if re.match("(os_prep|drill|parade): (?!waits)", line)]


@pytest.fixture
def ada(cluster: Lab) -> Person:
    return Person(cluster)


def pods(lab: Lab, run: str) -> list[str]:
    """Names of the pods of a run."""
    found = json.loads(lab.home.fetch(lab.home.core("pods"), {"labelSelector": f"{WORKFLOW_LABEL}={run}"}))
    return [one["metadata"]["name"] for one in found["items"]]


def readers(lab: Lab) -> int:
    """Return how many pods were created to read the run store."""
    found = json.loads(lab.home.fetch(lab.home.core("pods"), {"labelSelector": "bringup/errand"}))
    return len(found["items"])


def test_a_node_that_argo_writes_again_is_told_once(tmp_path: Path) -> None:
    """As 4.1.2 does with a pod that a cancelled run ends: before it is gone, and with the exit code of its container."""
    view = AwayProgress({"drill": ["apply"]}, "r1", Store(tmp_path), str)
    node = RunNodeStatus(
        "r1.drill.apply(0)", "apply(0)", "Pod", "Running", "", "drill-apply", "r1.drill", {}, {}, None, 1.0, None, []
    )
    stopped = msgspec.structs.replace(node, phase="Failed", message="workflow shutdown with strategy:  Stop", finished=2.0)
    again = msgspec.structs.replace(stopped, outputs={"verdict": "inconclusive"}, finished=3.0)
    ended = msgspec.structs.replace(again, message="main: Error (exit code 143)", exit_code=143)
    told = [view.take(one) for one in (node, stopped, again, ended)]
    assert told == [
        [],
        ["drill: apply Failed: workflow shutdown with strategy:  Stop"],
        [],
        ["drill: apply Failed: main: Error (exit code 143)"],
    ]


@pytest.mark.parametrize("fault", ["clock_skew", "clock_skew:n001"])
def test_both_engines_print_the_same_lines(cluster: Lab, ada: Person, fault: str) -> None:
    text = examples.path("three-hosts").read_text()
    (ada.folder / "three.yaml").write_text(text)
    for name in ("id_ed25519", "known_hosts"):
        (ada.folder / name).write_text(f"the content of {name} that nobody needs\n")
    fleet = write_fleet(ada.folder, compile_plan(load(ada.folder / "three.yaml")))
    with simulated_cluster(ada.folder / "cluster", fleet, RehearsalOptions(faults=(fault,)).arguments()) as simulated:
        cluster.stand_in(environment=simulated.environment)
        code = ada.run("run", "three.yaml", "--engine", "argo", *ada.where)
        cluster.end_runs()
    away, said = ada.lines, ada.err
    assert said == ""
    here = ada.run("rehearse", "three.yaml", "--fault", fault)
    assert (code, sorted(away)) == (here, sorted(ada.lines))
    step = "is its time server right? The node follows it; compare both with the clock of the machine that runs bringup"
    cause = f"the clock is off by 35.000 s; expected at most 0.5 s; next: {step}"
    assert away[-1] in (
        f"os_prep: fail: 0 of 2 agents pass, 1 needed; n[001-002]: {cause} (TIME)",
        f"os_prep: pass: 2 of 3 nodes passed all gates; set aside: n001: {cause} (TIME)",
    )


def test_a_failed_gate_is_told_by_its_node(emulated: Lab, drill: Drill, ada: Person) -> None:
    """So Argo's UI says why, and who comes later needs no pod for it."""
    emulated.target.write_text(emulated.target.read_text().replace("token: ", "token: un"))
    emulated.stand_in()
    begin(emulated, drill, "one")
    last = Follower(emulated, "one").await_end()
    (judge,) = (one for one in last.nodes().values() if one.template_name == "drill-judge" and one.type == "Pod")
    reason = judge.message.removeprefix("main: Error (exit code 65): fail: ")
    assert re.match("GET .* 401 Unauthorized.*; expected a target that takes the objects; next: ", reason), judge.message
    assert ada.run("status", "one", *ada.where, "-o", "json") == 0
    assert json.loads(ada.out)["stages"][0] == {"stage": "drill", "status": "fail", "reason": reason}
    assert readers(emulated) == 0
    assert ada.run("watch", "one", *ada.where) == 65
    assert f"drill: fail: {reason} (TIME)" in ada.lines


def test_a_late_follower_of_a_stage_that_passed(cluster: Lab, drill: Drill, ada: Person) -> None:
    """When the pods of a stage are gone, its status comes from the Workflow's node and its details from the report."""
    cluster.stand_in(delete_delay="0s")
    begin(cluster, drill, "one")
    Follower(cluster, "one").await_approval()
    until(lambda: not pods(cluster, "one"), "the end of its pods")
    with ada.watching("one") as watching:
        until(lambda: "waits for an approval" in ada.out, "the approval", 60)
        assert (ada.lines, readers(cluster)) == (["drill: pass (TIME)"], 0)
        watching.send_signal(signal.SIGINT)
        assert (watching.wait(30), ada.err) == (130, "")
    approve(cluster, "one")
    assert ada.run("watch", "one", *ada.where) == 0
    assert ada.lines[0] == "drill: pass (TIME)"


def test_pods_that_cannot_be_read_are_said_once_and_the_view_goes_on(emulated: Lab, drill: Drill, ada: Person) -> None:
    emulated.stand_in()
    begin(emulated, drill, "one")
    Follower(emulated, "one").await_approval()
    away = {"count": 1000, "status": 503, "methods": ["GET"], "path_prefix": emulated.home.core("pods")}
    emulated.disturb(fail_next=away)
    with ada.watching("one") as watching:
        until(lambda: "waits for an approval" in ada.out, "the approval", 60)
        assert ada.lines == ["drill: pass (TIME)"]
        (said,) = ada.err.splitlines()
        assert said.startswith("note: what gates say cannot be read now, bringup report one tells it: GET "), said
        emulated.disturb()
        approve(emulated, "one")
        assert watching.wait(60) == 0
    assert ada.lines[-1] == "parade: pass: all gates passed (TIME)"
    assert len(ada.err.splitlines()) == 1
