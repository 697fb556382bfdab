"""A rehearsal: the whole pipeline, or an operation, against a simulated cluster on this machine."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from steps.contract import approval
from steps.contract.operation import Operation, OperationKind
from workflows.app import kubeconfigs
from workflows.app.runs import local_start
from workflows.app.runs.screen import Screen
from workflows.app.specs import operations, revisions, sources
from workflows.engines.folders import StateFolder, new_run_name
from workflows.plan.model import Plan
from workflows.rehearsal import approver, earlier_stages, loopback, starting_cluster
from workflows.rehearsal.existing_server import existing_server
from workflows.rehearsal.rehearsal_run import RehearsalOptions
from workflows.rehearsal.rehearsal_run import rehearse as play
from workflows.spec import ClusterSpec

_KEEPS_STATE = "keeps what was simulated: no other rehearsal can use it until its etcd is empty again"


@dataclass(frozen=True, kw_only=True)
class RehearsalRequest:
    """The options of a rehearsal, as a command line has them; empty ones leave the choice to the spec."""

    spec: str
    faults: tuple[str, ...] = ()
    approve_as: str = approval.REHEARSAL
    key: str = ""
    hold: bool = False
    """Wait for `bringup approve` in another terminal."""
    seed: int = 1
    kubeconfig: Path | None = None
    roles_off: str = ""
    speed: float | None = None
    """Simulated seconds a second, with roles off."""
    nodes_at: str = ""
    only: tuple[str, ...] = ()
    until: str = ""
    operation: str = ""
    hosts: tuple[str, ...] = ()
    older: str = ""
    """The release that the cluster has before an upgrade or a rollback."""

    def restart_command(self) -> str:
        """Return the command line that starts the same rehearsal again; options without a value are left out."""
        options: dict[str, Iterable[object]] = {
            "--fault": self.faults,
            "--only": self.only,
            "--until": [self.until],
            "--seed": [self.seed] * (self.seed != 1),
            "--approve-as": [self.approve_as] * (self.approve_as != approval.REHEARSAL),
            "--key": [self.key],
            "--kubeconfig": [self.kubeconfig or ""],
            "--roles-off": [self.roles_off],
            "--nodes-at": [self.nodes_at],
            "--speed": [] if self.speed is None else [self.speed],
            "--operation": [self.operation],
            "--hosts": self.hosts,
            "--from": [self.older],
        }
        words = [part for name, values in options.items() for value in values if str(value) for part in (name, str(value))]
        return shlex.join(["bringup", "rehearse", self.spec, *words, *(["--hold"] if self.hold else [])])


def rehearse(screen: Screen, request: RehearsalRequest) -> int:
    """Run a rehearsal, follow it, and return its exit code."""
    existing = existing_server(request.kubeconfig, request.roles_off, request.speed, request.nodes_at)
    work = operations.named(request.operation, request.hosts, request.older)
    options = RehearsalOptions(
        faults=request.faults,
        seed=request.seed,
        existing=existing,
        bare=starting_cluster.replaced_hosts(work),
        restart_command=request.restart_command(),
    )
    loaded = sources.read(request.spec)[1]
    plan, bundle = local_start.prepare(loaded, operations.only(work, request.only, request.until), request.until, work)
    approver.check_approver(plan, request.approve_as, request.key)
    before = _plan_before(loaded, plan, work, request.older)
    loopback.require_loopback()
    if request.kubeconfig is not None:
        kubeconfigs.require(request.kubeconfig, "--kubeconfig")
    options.check(loaded, plan)  # refuse options before a run exists
    screen.lines([f"first, healthy and unseen: {', '.join(stage.id for stage in before.stages)}"] if before else [])
    folder = StateFolder.of_environment().run(new_run_name(plan.name))
    revisions.keep(folder, request.spec)
    with local_start.new_view(screen, folder, plan) as view:
        approving = [] if request.hold else [approver.approving_observer(folder, request.approve_as, request.key)]
        result = play(folder, plan, bundle, options, [view.observe, *approving], before)
    code = local_start.conclude(screen, folder, result)
    if request.kubeconfig is not None:
        screen.lines([f"cluster  {request.kubeconfig} {_KEEPS_STATE}"])
    return code


def _plan_before(spec: ClusterSpec, plan: Plan, work: Operation, older: str) -> Plan | None:
    """Return the plan that brings the simulated cluster to where the rehearsal starts; None for a bare one."""
    if work.kind is OperationKind.BRINGUP:
        return earlier_stages.plan_of_earlier_stages(spec, plan)
    return starting_cluster.starting_plan(spec, plan, work, older)
