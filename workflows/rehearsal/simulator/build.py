"""Puts a simulator together: client, fleet, roles, faults."""

from __future__ import annotations

from collections.abc import Iterable, Set
from pathlib import Path

from workflows.rehearsal.simulator.api import Api
from workflows.rehearsal.simulator.clock import Clock
from workflows.rehearsal.simulator.engine import Simulator
from workflows.rehearsal.simulator.fleet import Fleet
from workflows.rehearsal.simulator.role import roles
from workflows.rehearsal.simulator.world import World

HOSTS_PER_QUANTUM = 200
"""Virtual time is cut into instants of a second, of 5 s at 1,000 hosts: fewer, larger batches of events."""


def build(
    kubeconfig: Path,
    hosts: Path | Fleet,
    *,
    seed: int = 1,
    delay_scale: float = 1.0,
    jitter: float = 1.0,
    faults: Iterable[tuple[str, tuple[str, ...]]] = (),
    roles_off: Set[str] = frozenset(),
    start: float | None = None,
) -> Simulator:
    """A simulator at rest before its first `settle`. Raises UnknownFault, ValueError for an unknown role."""
    fleet = hosts if isinstance(hosts, Fleet) else Fleet.from_file(hosts)
    active = roles(roles_off)
    clock = Clock(start, quantum=max(1.0, len(fleet) / HOSTS_PER_QUANTUM))
    kinds = [kind for role in active for kind in role.kinds]
    world = World(Api.from_kubeconfig(kubeconfig), kinds, fleet, clock, seed=seed, delay_scale=delay_scale, jitter=jitter)
    world.kubeconfig = kubeconfig.read_text()
    world.set_faults(faults)
    return Simulator(world, active, may_jump=not roles_off)
