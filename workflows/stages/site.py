"""What a stage builds from: the spec, its machines, and the releases that the catalog resolved for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from steps.contract.delivery import tree_digest
from steps.contract.operation import BRINGUP, Operation
from workflows.catalog import Release
from workflows.gitops import tree
from workflows.spec.cluster import ClusterSpec
from workflows.spec.fields import StageName
from workflows.spec.machines import Machine


@dataclass(frozen=True, kw_only=True)
class Site:
    """One spec, resolved. `releases` are by release id, in catalog order; `machines` are all hosts of the spec."""

    spec: ClusterSpec
    machines: tuple[Machine, ...]
    releases: Mapping[str, Release]
    operation: Operation = BRINGUP

    def count(self, select: str) -> int:
        """How many machines a selector takes: `all`, `gpu`, `server` or `agent`."""
        return sum(_takes(machine, select) for machine in self.machines)

    def touched(self, select: str) -> tuple[str, ...]:
        """Names of the machines of a selector that this operation's plays may change."""
        return tuple(self.operation.touched(machine.name for machine in self.machines if _takes(machine, select)))

    @cached_property
    def tree(self) -> Mapping[str, str]:
        """What is published to Git, path → text; empty where Argo CD does not deliver."""
        if self.spec.delivery.argo_cd is None:
            return {}
        return tree.published(self.spec, tree.tree(self.spec, self.releases.values()))

    @cached_property
    def tree_digest(self) -> str:
        """Digest of the tree, by which tasks name it."""
        return tree_digest(self.tree)

    def needed(self, stage: StageName, select: str) -> int:
        """The quorum of a stage over the machines that a selector takes."""
        return self.spec.quorum.share(stage).needed(self.count(select))


def _takes(machine: Machine, select: str) -> bool:
    return select == "all" or (machine.gpu if select == "gpu" else machine.role == select)
