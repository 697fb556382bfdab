"""Values that gates measured and versions that they saw, as reports show them: bandwidths with floors, kernels, drivers."""

from collections.abc import Iterable, Mapping

from msgspec import Struct


class Measurement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Values of one quantity that a gate measured, such as `NCCL bus bandwidth in a node`, in `unit` (GB/s or Gbit/s).

    `floor` is the least value that passes, None if there is none. `values` maps nodes to their values: one for each of `columns`
    (the rails of a node), or a single one without columns; None was not measured. `together` is the value of all nodes at once,
    None if the quantity is one of single nodes. `unjudged` says that the gate held the values against nothing, neither a floor nor
    the other nodes: they prove nothing.
    """

    quantity: str
    unit: str
    floor: float | None = None
    columns: tuple[str, ...] = ()
    values: dict[str, tuple[float | None, ...]] = {}
    together: float | None = None
    unjudged: bool = False

    def is_low(self, value: float | None) -> bool:
        """Return True if a measured value is below the floor."""
        return value is not None and self.floor is not None and value < self.floor

    @property
    def least(self) -> dict[str, float]:
        """Return each node's least value, without nodes of which nothing was measured."""
        measured = {node: [value for value in row if value is not None] for node, row in self.values.items()}
        return {node: min(row) for node, row in measured.items() if row}


Versions = dict[str, dict[str, tuple[str, ...]]]
"""A part (`kernel`, `GPU driver`) → its versions in use → the nodes that have each: `{"kernel": {"6.8.0": ("gpu001",)}}`."""


def versions(facts: Mapping[str, Mapping[str, str]]) -> Versions:
    """Return versions with their nodes from facts by node (`{"kernel": {"gpu001": "6.8.0"}}`), without empty values."""
    shown: Versions = {}
    for fact, values in facts.items():
        nodes: dict[str, list[str]] = {}
        for node, value in values.items():
            if value:
                nodes.setdefault(value, []).append(node)
        if nodes:
            shown[fact] = {value: tuple(names) for value, names in nodes.items()}
    return shown


def merged(parts: Iterable[Versions]) -> Versions:
    """Return the versions of several records as one, of each fact that on most nodes first. A node is listed once for a version."""
    whole: dict[str, dict[str, dict[str, None]]] = {}
    for part in parts:
        for fact, values in part.items():
            for value, nodes in values.items():
                whole.setdefault(fact, {}).setdefault(value, {}).update(dict.fromkeys(nodes))
    return {
        fact: {value: tuple(nodes) for value, nodes in sorted(values.items(), key=lambda row: (-len(row[1]), row[0]))}
        for fact, values in whole.items()
    }
