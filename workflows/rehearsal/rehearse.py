"""One rehearsal: the rendered manifest of a plan on the embedded engine, against a simulated cluster made for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workflows.engines import inputs, launch
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import News, RunResult
from workflows.plan.model import Plan
from workflows.rehearsal import control, handing, preparing
from workflows.rehearsal.faults import registry
from workflows.rehearsal.processes import Existing, SimulatedCluster, simulated_cluster, write_fleet
from workflows.spec import ClusterSpec

if TYPE_CHECKING:
    from workflows.render.bundle import Bundle  # with Hera, whose import takes longer than what `status` and `watch` do

AGAIN = "again"
"""File beside the inputs of a rehearsal: the command that starts it once more."""


READS_LOGS = frozenset({"validation"})
"""Stages that cannot pass without logs of pods; elsewhere logs only say more about what failed."""


class FaultDoesNotFit(ValueError):
    """A fault that could not show in this rehearsal."""

    hint = "see `bringup faults`"


class NoLogs(ValueError):
    """The API server of the rehearsal cannot read logs of simulated pods, and a stage judges by them."""

    hint = (
        "name this machine's address as that API server reaches it with --nodes-at; one that verifies kubelets' certificates or "
        "has agents of its own for them (RKE2 does both) reads none of these logs: rehearse there to the stage before, with --until"
    )


class CannotResume(ValueError):
    """A rehearsal is over when its engine is: its simulated cluster ended with it. `hint` starts it again."""

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a rehearsal disturbs: `faults` as NAME or NAME:NODE,…; `seed`, `jitter` and `delay_scale` shape the delays.

    `existing` is an API server to play against; without it an emulated one is made for the rehearsal.
    """

    faults: Sequence[str] = ()
    seed: int = 1
    jitter: float = 1.0
    delay_scale: float = 1.0
    existing: Existing | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    bare: frozenset[str] = frozenset()
    """Hosts that are new, bare machines by the time the rehearsal itself begins."""
    again: str = "bringup rehearse SPEC"
    """The command that starts the same rehearsal once more."""

    def check(self, spec: ClusterSpec, plan: Plan) -> None:
        """Whether each fault can show in this plan, and whether an API server that is named may be played in.

        Raises UnknownFault, FaultDoesNotFit, ForeignCluster, UsedUp, Unreachable, NotAdmitted.
        """
        stages, hosts = [stage.id for stage in plan.stages], {host.name for host in plan.hosts}
        for name, _, victims in (text.partition(":") for text in self.faults):
            fault = registry.find(name)
            if not fault.fits(spec):
                raise FaultDoesNotFit(f"fault {name} needs a spec with {fault.needs}")
            if fault.stage not in stages:
                raise FaultDoesNotFit(f"fault {name} disturbs stage {fault.stage}; this rehearsal has {', '.join(stages)}")
            if strangers := [host for host in victims.split(",") if host and host not in hosts]:
                raise FaultDoesNotFit(f"fault {name}: the spec has no host {', '.join(strangers)}")
        if self.existing is not None:
            from workflows.rehearsal import foreign  # with Hera, for the namespaces that are no stranger's

            foreign.check(self.existing.kubeconfig)

    def arguments(self) -> list[str]:
        """Options of the simulator process."""
        shape = ["--seed", str(self.seed), "--jitter", str(self.jitter), "--delay-scale", str(self.delay_scale)]
        existing = self.existing.arguments() if self.existing else ()
        return [*shape, *existing, *(part for fault in self.faults for part in ("--fault", fault))]


def rehearse(
    folder: RunFolder,
    plan: Plan,
    bundle: Bundle,
    options: Options,
    observers: Sequence[Callable[[News], None]],
    before: Plan | None = None,
) -> RunResult:
    """Run it to its end, with options that were checked. The simulated cluster lives as long as this call, but for the objects that
    an existing API server keeps; the stages of `before` come up in it first, healthy.

    Raises NoLogs, NotPrepared.
    """
    inputs.write(folder, plan, bundle, Path("/"), {}, simulated=True)
    handing.secrets(plan, folder.inputs / "secrets")
    fleet = write_fleet(folder.inputs, plan)
    (folder.inputs / AGAIN).write_text(options.again)
    first = options if before is None else dataclasses.replace(options, faults=())

    def observe(news: News) -> None:
        for observer in observers:
            observer(news)

    place = folder.home.root / "clusters" / folder.name
    with simulated_cluster(place, fleet, first.arguments(), options.existing) as cluster:
        _require_logs(plan, cluster)
        if before is not None:
            preparing.prepare(folder, before, cluster)
            if options.bare:
                control.exchange(cluster, options.bare)
            control.disturb(cluster, options.faults)
        return launch.start(folder, {**cluster.environment, **options.extra}, observe)


def _require_logs(plan: Plan, cluster: SimulatedCluster) -> None:
    judging = [stage.id for stage in plan.stages if stage.id in READS_LOGS]
    if judging and cluster.no_logs:
        raise NoLogs(
            f"stage {judging[0]} judges by logs of pods, and this API server cannot read those of simulated pods: {cluster.no_logs}"
        )


def again(folder: RunFolder) -> str:
    """The command that starts a rehearsal once more; empty for a run on real hosts."""
    kept = folder.inputs / AGAIN
    return kept.read_text() if kept.exists() else ""


def refuse_resuming(folder: RunFolder) -> None:
    """Raise CannotResume for a run that was a rehearsal."""
    if command := again(folder):
        raise CannotResume(f"{folder.name} was a rehearsal; its simulated cluster ended with it", f"start it again: {command}")
