"""The scope of an acceptance after a repair: the repaired nodes, and partners against which they are measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.gpu_pools import gpu_pools
from workflows.spec.machines import Machine

PARTNERS = 2
"""Partners of the repaired nodes: with two of them a bad partner shows, because the repaired node is then good with the other."""


def with_partners(spec: ClusterSpec, nodes: Collection[str]) -> frozenset[str]:
    """Return the named nodes with two partners for each set of nodes with equal GPUs; the nodes as given if it is empty.

    Partners are one node on a leaf switch of the named nodes and one on another leaf where the spec knows leaves, so that the
    links inside a leaf and between leaves are both measured; else the nodes next in the spec. Nodes without GPUs get no partner.
    """
    chosen = set(nodes)
    for pool in gpu_pools(spec):
        members = [machine for machine in spec.gpu_machines if machine.group in pool.groups]
        own = [machine for machine in members if machine.name in nodes]
        others = [machine for machine in members if machine.name not in nodes]
        if own:
            chosen.update(machine.name for machine in _partners(own, others))
    return frozenset(chosen)


def _partners(own: Sequence[Machine], others: Sequence[Machine]) -> Iterator[Machine]:
    leaves = {machine.leaf for machine in own}
    near = next((machine for machine in others if machine.leaf in leaves), None)
    far = next((machine for machine in others if machine.leaf not in leaves), None)
    first = [machine for machine in (near, far) if machine is not None]
    yield from [*first, *(machine for machine in others if machine not in first)][:PARTNERS]
