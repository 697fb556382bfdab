"""The input of a stage builder: the spec, its machines, and the releases that the catalog resolved for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from steps.contract.delivery import tree_digest
from steps.contract.operation import BRINGUP, Operation
from workflows.catalog import PlannedRelease
from workflows.gitops import repository_tree
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.fields import StageName
from workflows.spec.machines import Machine


@dataclass(frozen=True, kw_only=True)
class Site:
    """A resolved spec. `releases` are by release id, in catalog order; `machines` are all hosts of the spec."""

    spec: ClusterSpec
    machines: tuple[Machine, ...]
    releases: Mapping[str, PlannedRelease]
    operation: Operation = BRINGUP

    def count(self, select: str) -> int:
        """Return the number of machines that a selector (`all`, `gpu`, `server` or `agent`) takes."""
        return sum(_takes(machine, select) for machine in self.machines)

    def touched(self, select: str) -> tuple[str, ...]:
        """Return the names of the selector's machines that this operation's plays may change."""
        return tuple(self.operation.touched(machine.name for machine in self.machines if _takes(machine, select)))

    @cached_property
    def tree(self) -> Mapping[str, str]:
        """Return the files that are published to Git, path → text; empty where Argo CD does not deliver."""
        if self.spec.delivery.argo_cd is None:
            return {}
        return repository_tree.published_files(self.spec, repository_tree.render_tree(self.spec, self.releases.values()))

    @cached_property
    def tree_digest(self) -> str:
        """Return the digest of the published tree, by which tasks name it."""
        return tree_digest(self.tree)

    def needed(self, stage: StageName, select: str) -> int:
        """Return the quorum of a stage: how many of the selector's machines must pass."""
        return self.spec.quorum.share(stage).needed(self.count(select))


def _takes(machine: Machine, select: str) -> bool:
    return select == "all" or (machine.gpu if select == "gpu" else machine.role == select)
