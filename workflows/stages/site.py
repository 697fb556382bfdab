"""What a stage builds from: the spec, its machines, and the releases that the catalog resolved for it."""

from collections.abc import Mapping
from dataclasses import dataclass

from workflows.catalog import Release
from workflows.spec.cluster import ClusterSpec
from workflows.spec.fields import StageName
from workflows.spec.machines import Machine


@dataclass(frozen=True, kw_only=True)
class Site:
    """One spec, resolved. `releases` are by release id, in catalog order; `machines` are all hosts of the spec."""

    spec: ClusterSpec
    machines: tuple[Machine, ...]
    releases: Mapping[str, Release]

    def count(self, select: str) -> int:
        """How many machines a selector takes: `all`, `gpu`, `server` or `agent`."""
        if select == "all":
            return len(self.machines)
        if select == "gpu":
            return sum(machine.gpu for machine in self.machines)
        return sum(machine.role == select for machine in self.machines)

    def needed(self, stage: StageName, select: str) -> int:
        """The quorum of a stage over the machines that a selector takes."""
        return self.spec.quorum.share(stage).needed(self.count(select))
