"""Assembly of a simulator from client, fleet, roles and faults."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Set
from pathlib import Path

import yaml

from steps.clients.kube import kubeconfig as kubeconfigs
from workflows.rehearsal.simulator.api_client import Api
from workflows.rehearsal.simulator.role import load_roles
from workflows.rehearsal.simulator.simulated_fleet import SimulatedFleet
from workflows.rehearsal.simulator.simulation import Simulator
from workflows.rehearsal.simulator.virtual_clock import VirtualClock
from workflows.rehearsal.simulator.world import World

HOSTS_PER_QUANTUM = 200
"""Hosts per second of the clock's quantum. At 1,000 hosts events are rounded to 5 s, which makes fewer and larger batches."""


def build(
    kubeconfig: Path,
    hosts: Path | SimulatedFleet,
    *,
    seed: int = 1,
    delay_scale: float = 1.0,
    jitter: float = 1.0,
    faults: Iterable[tuple[str, tuple[str, ...]]] = (),
    roles_off: Set[str] = frozenset(),
    start: float | None = None,
    git_root: Path | None = None,
) -> Simulator:
    """Return a simulator that has not acted yet. Raises UnknownFault for an unknown fault, ValueError for an unknown role."""
    fleet = hosts if isinstance(hosts, SimulatedFleet) else SimulatedFleet.from_file(hosts)
    active = load_roles(roles_off)
    clock = VirtualClock(start, quantum=max(1.0, len(fleet) / HOSTS_PER_QUANTUM))
    kinds = [kind for role in active for kind in role.kinds]
    world = World(Api.from_kubeconfig(kubeconfig), kinds, fleet, clock, seed=seed, delay_scale=delay_scale, jitter=jitter)
    world.kubeconfig = _portable(kubeconfig)
    world.git_root = git_root
    world.set_faults(faults)
    return Simulator(world, active, may_jump=not roles_off)


def _portable(path: Path) -> str:
    """Return the kubeconfig with its certificates and token inlined: steps store it where the files it names are missing."""
    access = kubeconfigs.load(path)
    connection = {
        "certificate-authority-data": base64.b64encode(access.ca.encode()).decode(),
        "insecure-skip-tls-verify": access.insecure,
        "tls-server-name": access.name,
    }
    user = {
        "token": access.token,
        "client-certificate-data": base64.b64encode(access.certificate.encode()).decode(),
        "client-key-data": base64.b64encode(access.key.encode()).decode(),
    }
    cluster = {"server": access.server} | {key: value for key, value in connection.items() if value}
    name = "simulated"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {key: value for key, value in user.items() if value}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)
