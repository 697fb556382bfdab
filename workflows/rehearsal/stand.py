"""A simulated cluster that can be set back: one stage at a time is rehearsed from a snapshot taken just before it."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import urllib3

from steps.clients import kubeconfig
from steps.clients.store import Store
from steps.contract.verdict import Verdict
from workflows import bringup
from workflows.engines import inputs, launch
from workflows.engines.folders import Home
from workflows.plan.compiler import compile_plan
from workflows.rehearsal import approver
from workflows.rehearsal.processes import SimulatedCluster, simulated_cluster, write_fleet
from workflows.rehearsal.rehearse import Options
from workflows.render.bundle import render
from workflows.spec import ClusterSpec

RUN = "stand"
"""Every stage runs under the same name, so that the target's lease stays with it from snapshot to snapshot."""

CALL_SECONDS = 120.0
"""Restoring a thousand nodes takes a second; two minutes means that a process hangs."""


@dataclass(frozen=True)
class Snapshot:
    """The state of the API server and of the simulator."""

    api: bytes
    simulator: bytes


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a stage ended: the judge's verdict (None when it left none), the engine's exit code, and how long it took."""

    stage: str
    verdict: Verdict | None
    exit_code: int
    seconds: float


class Stand:
    """Runs single stages of one spec against one simulated cluster."""

    def __init__(self, spec: ClusterSpec, cluster: SimulatedCluster, folder: Path) -> None:
        self._spec = spec
        self._cluster = cluster
        self._folder = folder
        self._count = 0
        self._http = urllib3.PoolManager(2, retries=False, timeout=CALL_SECONDS)
        self._api = kubeconfig.load(cluster.kubeconfig)

    def snapshot(self) -> Snapshot:
        """The state as it is now."""
        simulator = self._call("GET", self._cluster.url + "/state", self._cluster.token)
        return Snapshot(self._call("GET", self._api.server + "/emulation/snapshot", self._api.token), simulator)

    def restore(self, snapshot: Snapshot, faults: Sequence[str] = ()) -> None:
        """Go back to a state, with these faults (NAME or NAME:NODE,…) in force from now on."""
        self._call("PUT", self._cluster.url + "/faults", self._cluster.token, b"[]")
        self._call("PUT", self._api.server + "/emulation/snapshot", self._api.token, snapshot.api)
        self._call("PUT", self._cluster.url + "/state", self._cluster.token, snapshot.simulator)
        wanted = [dict(zip(("name", "node"), fault.partition(":")[::2], strict=True)) for fault in faults]
        self._call("PUT", self._cluster.url + "/faults", self._cluster.token, msgspec.json.encode(wanted))

    def run(self, stage: str) -> Outcome:
        """Run one stage's rendered manifest; what earlier stages kept (the kubeconfig) is handed on."""
        began = time.monotonic()
        self._count += 1
        folder = Home(self._folder / f"{self._count:03d}-{stage}").run(RUN)
        plan = compile_plan(self._spec, only=[stage])
        inputs.write(folder, plan, render(plan, bringup.build), Path("/"), {}, simulated=True)
        kept = self._folder / "secrets"
        if kept.exists():
            shutil.copytree(kept, folder.inputs / "secrets", dirs_exist_ok=True)
        result = launch.start(folder, self._cluster.environment, approver.opener(folder))
        made = folder.stored / "secrets"
        if made.exists() and result.exit_code == 0:
            shutil.copytree(made, kept, dirs_exist_ok=True)
        records = Store(folder.home.store).records(RUN, stage, "judge")
        verdict = records[0].verdict if records else None
        return Outcome(stage=stage, verdict=verdict, exit_code=result.exit_code, seconds=time.monotonic() - began)

    def _call(self, method: str, url: str, token: str, body: bytes | None = None) -> bytes:
        answer = self._http.request(method, url, body=body, headers={"Authorization": f"Bearer {token}"})
        if answer.status >= 300:
            raise RuntimeError(f"{method} {url}: {answer.status}: {answer.data[:300].decode(errors='replace')}")
        return answer.data


@contextmanager
def stand(spec: ClusterSpec, folder: Path, options: Options | None = None) -> Iterator[Stand]:
    """A stand for a spec while the context lasts; everything it writes lies below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    fleet = write_fleet(folder, compile_plan(spec))
    with simulated_cluster(folder / "cluster", fleet, (options or Options()).arguments()) as cluster:
        yield Stand(spec, cluster, folder)
