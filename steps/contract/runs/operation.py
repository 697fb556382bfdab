"""Operation of a run: the whole bring-up, or narrower work on an existing cluster, and the hosts that its plays may change."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class OperationKind(StrEnum):
    """Kinds of operations. The command of an operation's name starts it; `bringup run` starts the whole bring-up."""

    BRINGUP = "bringup"
    ADD_NODE = "add-node"
    REPLACE_NODE = "replace-node"
    UPGRADE = "upgrade"
    ROLLBACK = "rollback"
    RESET = "reset"
    ACCEPT = "accept"


NEED_RUNNING_CLUSTER = (OperationKind.ADD_NODE, OperationKind.REPLACE_NODE, OperationKind.UPGRADE, OperationKind.ACCEPT)
"""Operations on a cluster that must already run. Rollback is none of them: it is mostly needed because the API is down."""

RELEASES = (OperationKind.UPGRADE, OperationKind.ROLLBACK)
"""Operations that bring all machines of a cluster to another release; they have stage rke2 alone."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Operation of a run and the hosts that its plays may change; no hosts means all hosts of the spec.

    The operation `accept` has no plays: its hosts are the machines that it measures.
    """

    kind: OperationKind = OperationKind.BRINGUP
    hosts: frozenset[str] = frozenset()

    @property
    def is_partial(self) -> bool:
        """Return True if some hosts of the spec are left untouched."""
        return bool(self.hosts)

    def touches(self, host: str) -> bool:
        """Return True if plays may change this host."""
        return not self.hosts or host in self.hosts

    def touched(self, hosts: Iterable[str]) -> list[str]:
        """Return those of the given hosts that plays may change, in the given order."""
        return [host for host in hosts if self.touches(host)]


BRINGUP = Operation()
