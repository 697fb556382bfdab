"""A rehearsal: the rendered manifest of a plan runs on the embedded engine, against a simulated cluster started for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workflows.engines import launch, run_inputs
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import News, RunResult
from workflows.plan.model import Plan
from workflows.rehearsal import earlier_stages, restart
from workflows.rehearsal.faults import fault_registry
from workflows.rehearsal.simulated_cluster import (
    ExistingServer,
    SimulatedCluster,
    replace_hosts,
    set_faults,
    simulated_cluster,
    write_fleet,
)
from workflows.spec import ClusterSpec, FactorySpec

if TYPE_CHECKING:
    from workflows.render.bundle import Bundle  # imports Hera, which takes longer than all of `status` or `watch`

READS_LOGS = frozenset({"validation"})
"""Stages whose gates read logs of pods, so that they cannot pass without; the other stages use logs only to explain failures."""


class FaultDoesNotFit(ValueError):
    """Raised for a fault that could not show in this rehearsal: the spec, its stages or its hosts do not fit."""

    hint = "`bringup faults` lists the faults with their stages and what they need"


class NoPodLogs(ValueError):
    """Raised if the API server cannot read logs of simulated pods although the gates of a rehearsed stage need them."""

    hint = (
        "give the address under which the API server reaches this machine with --nodes-at. A server that verifies kubelets' "
        "certificates or reaches them through agents (RKE2 does both) cannot read these logs: stop before the stage with --until"
    )


@dataclass(frozen=True, kw_only=True)
class RehearsalOptions:
    """The options of a rehearsal.

    `faults` are NAME or NAME:NODE,…. `seed`, `jitter` (share of each delay's range) and `delay_scale` (factor) decide the simulated
    delays. `existing` is an API server to use; without one the rehearsal starts an emulated one. `extra` holds environment
    variables of the steps.
    """

    faults: Sequence[str] = ()
    seed: int = 1
    jitter: float = 1.0
    delay_scale: float = 1.0
    existing: ExistingServer | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    bare: frozenset[str] = frozenset()
    """Names of hosts that are replaced by bare machines after the stages before, and before the rehearsal itself begins."""
    restart_command: str = "bringup rehearse SPEC"
    """The command line that starts this rehearsal again."""

    def check(self, spec: ClusterSpec | FactorySpec, plan: Plan) -> None:
        """Raise an error if a fault cannot show in this plan, or if the existing API server must not be used.

        Raises UnknownFault, FaultDoesNotFit, ForeignCluster, UsedCluster, Unreachable, Garbled or MissingRights.
        """
        stages, hosts = [stage.id for stage in plan.stages], {host.name for host in plan.hosts}
        for name, _, victims in (text.partition(":") for text in self.faults):
            fault = fault_registry.find_fault(name)
            if not fault.fits(spec):
                raise FaultDoesNotFit(f"fault {name} needs a spec with {fault.needs}")
            if fault.stage not in stages:
                raise FaultDoesNotFit(f"fault {name} disturbs stage {fault.stage}; this rehearsal has {', '.join(stages)}")
            if strangers := [host for host in victims.split(",") if host and host not in hosts]:
                raise FaultDoesNotFit(f"fault {name}: the spec has no host {', '.join(strangers)}")
        if self.existing is not None:
            from workflows.rehearsal import foreign_cluster  # imports Hera, with the list of Kubernetes' own namespaces

            foreign_cluster.check_unused_cluster(self.existing.kubeconfig)

    def arguments(self) -> list[str]:
        """Return these options as command-line arguments of the simulator process."""
        shape = ["--seed", str(self.seed), "--jitter", str(self.jitter), "--delay-scale", str(self.delay_scale)]
        existing = self.existing.arguments() if self.existing else ()
        return [*shape, *existing, *(part for fault in self.faults for part in ("--fault", fault))]


def rehearse(
    folder: RunFolder,
    plan: Plan,
    bundle: Bundle,
    options: RehearsalOptions,
    observers: Sequence[Callable[[News], None]],
    before: Plan | None = None,
) -> RunResult:
    """Run a rehearsal to its end and return the result. `options` must have passed `RehearsalOptions.check`.

    With `before`, the stages of that plan come up first, without faults. The simulated cluster ends with this call; an existing API
    server keeps its objects. Raises NoPodLogs or NotPrepared.
    """
    run_inputs.write(folder, plan, bundle, Path("/"), {}, simulated=True)
    earlier_stages.write_stand_in_secrets(plan, folder.inputs / "secrets")
    fleet = write_fleet(folder.inputs, plan)
    (folder.inputs / restart.RESTART_FILE).write_text(options.restart_command)
    first = options if before is None else dataclasses.replace(options, faults=())

    def observe(news: News) -> None:
        for observer in observers:
            observer(news)

    cluster_folder = folder.home.root / "clusters" / folder.name
    with simulated_cluster(cluster_folder, fleet, first.arguments(), options.existing) as cluster:
        _require_logs(plan, cluster)
        if before is not None:
            earlier_stages.prepare(folder, before, cluster)
            if options.bare:
                replace_hosts(cluster, options.bare)
            set_faults(cluster, options.faults)
        return launch.start(folder, {**cluster.environment, **options.extra}, observe, spawn=cluster.start)


def _require_logs(plan: Plan, cluster: SimulatedCluster) -> None:
    judging = [stage.id for stage in plan.stages if stage.id in READS_LOGS]
    if judging and cluster.no_logs:
        raise NoPodLogs(f"stage {judging[0]} is judged by logs of pods, and this API server cannot read them: {cluster.no_logs}")
