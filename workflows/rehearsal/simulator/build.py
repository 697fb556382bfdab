"""Puts a simulator together: client, fleet, roles, faults."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Set
from pathlib import Path

import yaml

from steps.clients.kube import kubeconfig as kubeconfigs
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
    git_root: Path | None = None,
) -> Simulator:
    """A simulator at rest before its first `settle`. Raises UnknownFault, ValueError for an unknown role."""
    fleet = hosts if isinstance(hosts, Fleet) else Fleet.from_file(hosts)
    active = roles(roles_off)
    clock = Clock(start, quantum=max(1.0, len(fleet) / HOSTS_PER_QUANTUM))
    kinds = [kind for role in active for kind in role.kinds]
    world = World(Api.from_kubeconfig(kubeconfig), kinds, fleet, clock, seed=seed, delay_scale=delay_scale, jitter=jitter)
    world.kubeconfig = _portable(kubeconfig)
    world.git_root = git_root
    world.set_faults(faults)
    return Simulator(world, active, may_jump=not roles_off)


def _portable(path: Path) -> str:
    """The kubeconfig with its certificates and token inside: steps keep it elsewhere, where the files it names are not."""
    access = kubeconfigs.load(path)
    given = {
        "certificate-authority-data": base64.b64encode(access.ca.encode()).decode(),
        "insecure-skip-tls-verify": access.insecure,
        "tls-server-name": access.name,
    }
    user = {
        "token": access.token,
        "client-certificate-data": base64.b64encode(access.certificate.encode()).decode(),
        "client-key-data": base64.b64encode(access.key.encode()).decode(),
    }
    cluster = {"server": access.server} | {key: value for key, value in given.items() if value}
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
