"""One rehearsal: the rendered manifest of a plan on the embedded engine, against a simulated cluster made for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from workflows.engines import inputs, launch
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import News, RunResult
from workflows.plan.model import Plan
from workflows.rehearsal.processes import simulated_cluster
from workflows.render.bundle import Bundle


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a rehearsal disturbs: `faults` as NAME or NAME:NODE,…; `seed`, `jitter` and `delay_scale` shape the delays."""

    faults: Sequence[str] = ()
    seed: int = 1
    jitter: float = 1.0
    delay_scale: float = 1.0
    extra: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        """Options of the simulator process."""
        shape = ["--seed", str(self.seed), "--jitter", str(self.jitter), "--delay-scale", str(self.delay_scale)]
        return [*shape, *(part for fault in self.faults for part in ("--fault", fault))]


def rehearse(
    folder: RunFolder, plan: Plan, bundle: Bundle, options: Options, observers: Sequence[Callable[[News], None]]
) -> RunResult:
    """Run it to its end. The simulated cluster lives as long as this call."""
    inputs.write(folder, plan, bundle, Path("/"), {}, simulated=True)
    fleet = folder.inputs / "machines.json"
    fleet.write_bytes(msgspec.json.encode({"hosts": plan.hosts, "accelerator": plan.accelerator}))

    def observe(news: News) -> None:
        for observer in observers:
            observer(news)

    with simulated_cluster(folder.home.root / "clusters" / folder.name, fleet, options.arguments()) as cluster:
        return launch.start(folder, {**cluster.environment, **options.extra}, observe)
