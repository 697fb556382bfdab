"""One rehearsal: the rendered manifest of a plan on the embedded engine, against a simulated cluster made for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workflows.engines import inputs, launch
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import News, RunResult
from workflows.plan.model import Plan
from workflows.rehearsal.faults import registry
from workflows.rehearsal.processes import FLEET, simulated_cluster, write_fleet
from workflows.render.bundle import Bundle
from workflows.spec import ClusterSpec


class FaultDoesNotFit(ValueError):
    """A fault that could not show in this rehearsal."""

    hint = "see `bringup faults`"


class CannotResume(ValueError):
    """A rehearsal is over when its engine is: its simulated cluster ended with it."""

    hint = "rehearse again: bringup rehearse SPEC"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a rehearsal disturbs: `faults` as NAME or NAME:NODE,…; `seed`, `jitter` and `delay_scale` shape the delays."""

    faults: Sequence[str] = ()
    seed: int = 1
    jitter: float = 1.0
    delay_scale: float = 1.0
    extra: Mapping[str, str] = field(default_factory=dict)

    def check(self, spec: ClusterSpec, plan: Plan) -> None:
        """Whether each fault can show in this plan. Raises UnknownFault, FaultDoesNotFit."""
        stages, hosts = [stage.id for stage in plan.stages], {host.name for host in plan.hosts}
        for name, _, victims in (text.partition(":") for text in self.faults):
            fault = registry.find(name)
            if not fault.fits(spec):
                raise FaultDoesNotFit(f"fault {name} needs a spec with {fault.needs}")
            if fault.stage not in stages:
                raise FaultDoesNotFit(f"fault {name} disturbs stage {fault.stage}; this rehearsal has {', '.join(stages)}")
            if strangers := [host for host in victims.split(",") if host and host not in hosts]:
                raise FaultDoesNotFit(f"fault {name}: the spec has no host {', '.join(strangers)}")

    def arguments(self) -> list[str]:
        """Options of the simulator process."""
        shape = ["--seed", str(self.seed), "--jitter", str(self.jitter), "--delay-scale", str(self.delay_scale)]
        return [*shape, *(part for fault in self.faults for part in ("--fault", fault))]


def rehearse(
    folder: RunFolder, plan: Plan, bundle: Bundle, options: Options, observers: Sequence[Callable[[News], None]]
) -> RunResult:
    """Run it to its end. The simulated cluster lives as long as this call."""
    inputs.write(folder, plan, bundle, Path("/"), {}, simulated=True)
    fleet = write_fleet(folder.inputs, plan)

    def observe(news: News) -> None:
        for observer in observers:
            observer(news)

    with simulated_cluster(folder.home.root / "clusters" / folder.name, fleet, options.arguments()) as cluster:
        return launch.start(folder, {**cluster.environment, **options.extra}, observe)


def refuse_resuming(folder: RunFolder) -> None:
    """Raise CannotResume for a run that was a rehearsal: its inputs hold the machines to simulate."""
    if (folder.inputs / FLEET).exists():
        raise CannotResume(f"{folder.name} was a rehearsal; its simulated cluster ended with it")
