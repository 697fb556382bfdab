"""A test bench for single stages: a simulated cluster that can be restored to a snapshot taken just before a stage."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from steps.clients.kube import kubeconfig
from steps.clients.store import Store
from steps.contract.delivery import RECORD
from steps.contract.verdict import Verdict
from workflows import bringup
from workflows.engines import launch, run_inputs
from workflows.engines.folders import StateFolder
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.rehearsal import approver, earlier_stages
from workflows.rehearsal.rehearsal_run import RehearsalOptions
from workflows.rehearsal.simulated_cluster import SimulatedCluster, call_control_api, set_faults, simulated_cluster, write_fleet
from workflows.rehearsal.simulator.simulation import SimulatorState
from workflows.render.bundle import Bundle, render
from workflows.spec import ClusterSpec

RUN = "stand"
"""Name of every run on the bench; with one name for all, the lease in the target stays valid from snapshot to snapshot."""


@dataclass(frozen=True)
class Snapshot:
    """The state of the API server and of the simulator, and the files that stages left for later ones, by path.

    `taken` is when it was taken, in seconds since the epoch by this machine's clock.
    """

    api: bytes
    simulator: bytes
    left: Mapping[str, bytes]
    taken: float


class SnapshotKeeper(Protocol):
    """A way to save and restore all objects of an API server while it runs."""

    def snapshot(self) -> bytes:
        """Return all present objects."""

    def restore(self, snapshot: bytes, /) -> None:
        """Restore all objects to a snapshot."""


class EmulatedSnapshots:
    """Snapshots of the emulated API server, which saves and restores its objects itself."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._api = kubeconfig.load(cluster.kubeconfig)

    def snapshot(self) -> bytes:
        """Return all present objects."""
        return call_control_api("GET", self._api.server + "/emulation/snapshot", self._api.token)

    def restore(self, snapshot: bytes, /) -> None:
        """Restore all objects to a snapshot."""
        call_control_api("PUT", self._api.server + "/emulation/snapshot", self._api.token, snapshot)


@dataclass(frozen=True, kw_only=True)
class StageOutcome:
    """The end of a stage on the bench: the judge's verdict (None without a record), the engine's exit code, and the duration."""

    stage: str
    verdict: Verdict | None
    exit_code: int
    seconds: float


Planner = Callable[[Sequence[str]], tuple[Plan, Bundle]]
"""Type of a function that plans and renders only some stages; none means all of them."""


def bringup_planner(spec: ClusterSpec) -> Planner:
    """Return the planner of a bring-up."""

    def planned(only: Sequence[str]) -> tuple[Plan, Bundle]:
        plan = compile_plan(spec, only=only)
        return plan, render(plan, bringup.build)

    return planned


class StageBench:
    """A bench that runs single stages of one spec against one simulated cluster."""

    def __init__(self, planner: Planner, cluster: SimulatedCluster, keeper: SnapshotKeeper, folder: Path) -> None:
        self._planner = planner
        self._cluster = cluster
        self._keeper = keeper
        self._folder = folder
        self._count = 0
        self._rendered: dict[str, tuple[Plan, Bundle]] = {}

    def snapshot(self) -> Snapshot:
        """Return the present state of API server and simulator, with the files that stages left."""
        simulator = call_control_api("GET", self._cluster.url + "/state", self._cluster.token)
        left = {str(path.relative_to(self._folder)): path.read_bytes() for path in self._left()}
        return Snapshot(self._keeper.snapshot(), simulator, left, time.time())

    def restore(self, snapshot: Snapshot, faults: Sequence[str] = ()) -> None:
        """Restore a snapshot of this bench, or of another one in its cluster; from then on these faults are in force.

        Faults are NAME or NAME:NODE,….
        """
        for path in self._left():
            path.unlink()
        for name, data in snapshot.left.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(0o600)
            path.write_bytes(data)
        if not isinstance(self._keeper, EmulatedSnapshots):
            set_faults(self._cluster, ())  # beside a real server, the simulator goes on while objects are restored
        self._keeper.restore(snapshot.api)
        state = msgspec.json.decode(snapshot.simulator, type=SimulatorState)
        # the API server's clock is this machine's and was not set back: objects that it makes must not be newer than pods to come
        state = msgspec.structs.replace(state, now=state.now + time.time() - snapshot.taken)
        call_control_api("PUT", self._cluster.url + "/state", self._cluster.token, msgspec.json.encode(state))
        set_faults(self._cluster, faults)  # also none: a snapshot has the faults of its time

    def _left(self) -> list[Path]:
        """Return the files that stages left for later ones: secrets, and the record of delivered Git commits."""
        return sorted(path for path in (*(self._folder / "secrets").glob("*"), self._folder / RECORD) if path.is_file())

    def run(self, stage: str) -> StageOutcome:
        """Run the rendered manifest of one stage, with the secrets that earlier stages kept (the kubeconfig)."""
        began = time.monotonic()
        self._count += 1
        folder = StateFolder(self._folder / f"{self._count:03d}-{stage}").run(RUN)
        if stage not in self._rendered:
            self._rendered[stage] = self._planner([stage])
        plan, bundle = self._rendered[stage]
        run_inputs.write(folder, plan, bundle, Path("/"), {}, simulated=True)
        kept = self._folder / "secrets"
        if kept.exists():
            shutil.copytree(kept, folder.inputs / "secrets", dirs_exist_ok=True)
        earlier_stages.write_stand_in_secrets(plan, folder.inputs / "secrets")
        earlier_stages.copy_delivery(self._folder, folder.stored)
        result = launch.start(folder, self._cluster.environment, approver.approving_observer(folder), spawn=self._cluster.start)
        new_secrets = folder.stored / "secrets"
        if new_secrets.exists() and result.exit_code == 0:
            shutil.copytree(new_secrets, kept, dirs_exist_ok=True)
        if result.exit_code == 0:
            earlier_stages.copy_delivery(folder.stored, self._folder)
        records = Store(folder.home.store).records(RUN, stage, "judge")
        verdict = records[0].verdict if records else None
        return StageOutcome(stage=stage, verdict=verdict, exit_code=result.exit_code, seconds=time.monotonic() - began)


@contextmanager
def stage_bench(
    spec: ClusterSpec | Planner, folder: Path, options: RehearsalOptions | None = None, keeper: SnapshotKeeper | None = None
) -> Iterator[StageBench]:
    """Yield a bench for a cluster spec, or for what a planner plans, while the context lasts; all its files are below `folder`.

    If the options name an existing API server, `keeper` saves and restores its objects.
    """
    chosen = options or RehearsalOptions()
    folder.mkdir(parents=True, exist_ok=True)
    planner = bringup_planner(spec) if isinstance(spec, ClusterSpec) else spec
    fleet = write_fleet(folder, planner([])[0])
    with simulated_cluster(folder / "cluster", fleet, chosen.arguments(), chosen.existing) as cluster:
        yield StageBench(planner, cluster, keeper or EmulatedSnapshots(cluster), folder)
