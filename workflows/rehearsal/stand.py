"""A simulated cluster that can be set back: one stage at a time is rehearsed from a snapshot taken just before it."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from steps.clients.kube import kubeconfig
from steps.clients.store import Store
from steps.contract.verdict import Verdict
from workflows import bringup
from workflows.engines import inputs, launch
from workflows.engines.folders import Home
from workflows.plan.compiler import compile_plan
from workflows.rehearsal import approver, control, handing
from workflows.rehearsal.processes import SimulatedCluster, simulated_cluster, write_fleet
from workflows.rehearsal.rehearse import Options
from workflows.render.bundle import render
from workflows.spec import ClusterSpec

RUN = "stand"
"""Every stage runs under the same name, so that the target's lease stays with it from snapshot to snapshot."""


@dataclass(frozen=True)
class Snapshot:
    """The state of the API server and of the simulator."""

    api: bytes
    simulator: bytes


class Keeper(Protocol):
    """Who can take and set back all objects of an API server while it runs."""

    def snapshot(self) -> bytes:
        """All objects as they are now."""

    def restore(self, snapshot: bytes, /) -> None:
        """Make them all what they were."""


class Emulation:
    """The emulated API server keeps its objects itself."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._api = kubeconfig.load(cluster.kubeconfig)

    def snapshot(self) -> bytes:
        """All objects as they are now."""
        return control.call("GET", self._api.server + "/emulation/snapshot", self._api.token)

    def restore(self, snapshot: bytes, /) -> None:
        """Make them all what they were."""
        control.call("PUT", self._api.server + "/emulation/snapshot", self._api.token, snapshot)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a stage ended: the judge's verdict (None when it left none), the engine's exit code, and how long it took."""

    stage: str
    verdict: Verdict | None
    exit_code: int
    seconds: float


class Stand:
    """Runs single stages of one spec against one simulated cluster."""

    def __init__(self, spec: ClusterSpec, cluster: SimulatedCluster, keeper: Keeper, folder: Path) -> None:
        self._spec = spec
        self._cluster = cluster
        self._keeper = keeper
        self._folder = folder
        self._count = 0

    def snapshot(self) -> Snapshot:
        """The state as it is now."""
        simulator = control.call("GET", self._cluster.url + "/state", self._cluster.token)
        return Snapshot(self._keeper.snapshot(), simulator)

    def restore(self, snapshot: Snapshot, faults: Sequence[str] = ()) -> None:
        """Go back to a state, with these faults (NAME or NAME:NODE,…) in force from now on."""
        control.disturb(self._cluster, ())
        self._keeper.restore(snapshot.api)
        control.call("PUT", self._cluster.url + "/state", self._cluster.token, snapshot.simulator)
        control.disturb(self._cluster, faults)

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
        handing.secrets(plan, folder.inputs / "secrets")
        handing.delivered(self._folder, folder.stored)
        result = launch.start(folder, self._cluster.environment, approver.opener(folder))
        made = folder.stored / "secrets"
        if made.exists() and result.exit_code == 0:
            shutil.copytree(made, kept, dirs_exist_ok=True)
        if result.exit_code == 0:
            handing.delivered(folder.stored, self._folder)
        records = Store(folder.home.store).records(RUN, stage, "judge")
        verdict = records[0].verdict if records else None
        return Outcome(stage=stage, verdict=verdict, exit_code=result.exit_code, seconds=time.monotonic() - began)


@contextmanager
def stand(spec: ClusterSpec, folder: Path, options: Options | None = None, keeper: Keeper | None = None) -> Iterator[Stand]:
    """A stand for a spec while the context lasts; everything it writes lies below `folder`.

    Where the options name an existing API server, `keeper` sets its objects back.
    """
    chosen = options or Options()
    folder.mkdir(parents=True, exist_ok=True)
    fleet = write_fleet(folder, compile_plan(spec))
    with simulated_cluster(folder / "cluster", fleet, chosen.arguments(), chosen.existing) as cluster:
        yield Stand(spec, cluster, keeper or Emulation(cluster), folder)
