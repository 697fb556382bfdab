"""What a run is for: the whole bring-up, or a narrower work on a cluster that stands, and which hosts its plays may touch."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The operations; a command of the same name starts each, and `run` the first."""

    BRINGUP = "bringup"
    ADD_NODE = "add-node"
    REPLACE_NODE = "replace-node"
    UPGRADE = "upgrade"
    ROLLBACK = "rollback"
    RESET = "reset"


STANDING = (Kind.ADD_NODE, Kind.REPLACE_NODE, Kind.UPGRADE)
"""Operations on a cluster that must be there before. The API of one that is rolled back may be down: that is mostly why it is."""

RELEASES = (Kind.UPGRADE, Kind.ROLLBACK)
"""Operations that bring all machines of a cluster to another release: stage rke2 alone."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """`hosts` are those that plays may change; none means all of the spec."""

    kind: Kind = Kind.BRINGUP
    hosts: frozenset[str] = frozenset()

    @property
    def is_partial(self) -> bool:
        """Whether some hosts of the spec are left untouched."""
        return bool(self.hosts)

    def touches(self, host: str) -> bool:
        """Whether plays may change this host."""
        return not self.hosts or host in self.hosts

    def touched(self, hosts: Iterable[str]) -> list[str]:
        """Of these hosts the ones that plays may change, in their order."""
        return [host for host in hosts if self.touches(host)]


BRINGUP = Operation()
