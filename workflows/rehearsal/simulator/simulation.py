"""The simulator: its parts, and the loop in which roles react until nothing changes and virtual time moves on."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from steps.clients.kube import kubeconfig
from workflows.rehearsal.simulator.api.api_client import Api
from workflows.rehearsal.simulator.api.api_kinds import ObjectKind, Ref
from workflows.rehearsal.simulator.machines.kubelet_port import SimulatedPodLog
from workflows.rehearsal.simulator.machines.simulated_fleet import SimulatedFleet
from workflows.rehearsal.simulator.virtual_clock import VirtualClock
from workflows.rehearsal.simulator.world import Changes, SimulatorRole, World, load_roles

REST_BEFORE_JUMP = 120.0
"""Virtual seconds without a change before time may jump, so that gates see a healthy cluster several times before."""

LEAST_REST = 30.0
"""Least rest where delays are scaled down: after a shorter one, some gates had not yet seen twice what they wait for."""

MAX_PASSES = 200
"""Passes over all roles without rest after which settling fails: two roles then seem to undo each other's writes."""


class SimulatorState(Struct, frozen=True, kw_only=True):
    """The simulator's part of a snapshot. The API server's snapshot holds the rest, from which roles derive pending events."""

    now: float
    seed: int
    hosts: dict[str, dict[str, Any]]
    faults: tuple[tuple[str, tuple[str, ...]], ...] = ()
    logs: dict[str, SimulatedPodLog] = {}


class Simulator:
    """The loop that calls roles and moves virtual time. It is not thread-safe: its callers must take turns.

    `may_jump` is false if real controllers replace roles, because they need real time.
    """

    def __init__(self, world: World, roles: tuple[SimulatorRole, ...], *, may_jump: bool = True) -> None:
        self.world = world
        self.roles = roles
        self._may_jump = may_jump
        self._waiting: dict[str, dict[ObjectKind, set[Ref]]] = {role.name: {} for role in roles}
        self._fresh = {role.name for role in roles}
        self._moved = world.now
        self.others = 0
        """Number of syncs that have found writes by other clients."""

    def settle(self) -> None:
        """Let roles react to writes by others and run due events, until nothing changes. Raises RuntimeError if it never ends."""
        self.others += self.world.sync()
        self._rest()

    def advance(self, seconds: float, deadline: float | None = None) -> float:
        """Let at least `seconds` of virtual time pass while roles react, and return the new time in seconds since the epoch.

        If the cluster has been at rest for `REST_BEFORE_JUMP` (less where delays are scaled down) and a `deadline` is given, time
        jumps further, to the next event or the deadline, whichever is first. So a caller who waits for something that is stuck
        needs few calls. In a fleet whose events share few instants (see `HOSTS_PER_QUANTUM`) time always jumps to the next of
        them: before it nothing can be seen.
        """
        self.settle()
        clock = self.world.clock
        target = clock.now + max(0.0, seconds)
        rest = max(LEAST_REST, REST_BEFORE_JUMP * min(1.0, self.world.delay_scale))
        if deadline is not None and self._may_jump and clock.now - self._moved >= rest:
            target = max(target, min(deadline, clock.next_due() or deadline))
        elif deadline is not None and self._may_jump and clock.quantum > 1:
            target = max(target, min(deadline, clock.now + clock.quantum, clock.next_due() or target))
        while self._step(target):
            self._rest()
        clock.jump(target)
        return clock.now

    def state(self) -> SimulatorState:
        """Return the part of a snapshot that the API server does not hold: time, seed, hosts, faults and pod logs."""
        world = self.world
        faults = tuple((active.fault.name, active.nodes) for active in world.faults)
        logs = dict(world.kubelets.logs) if world.kubelets is not None else {}
        return SimulatorState(now=world.now, seed=world.seed, hosts=world.hosts, faults=faults, logs=logs)

    def restore(self, state: SimulatorState) -> None:
        """Continue from a snapshot whose objects the API server has restored already. Roles derive their pending events again."""
        world = self.world
        world.seed = state.seed
        world.hosts = {name: state.hosts.get(name, {}) for name in world.hosts}
        if world.kubelets is not None:
            world.kubelets.logs = dict(state.logs)
        world.clock.restart(state.now)
        self._moved = state.now
        world.set_faults(state.faults)
        world.forget()
        self.roles = tuple(type(role)() for role in self.roles)  # what the old ones remember belongs to the replaced state
        self._waiting = {role.name: {} for role in self.roles}
        self._fresh = {role.name for role in self.roles}
        self.settle()

    def look_again(self) -> None:
        """Empty the cache and have every role look at all objects again."""
        self.world.forget()
        self.world.wake()

    def _step(self, until: float) -> bool:
        ran = False
        for action in self.world.clock.take(until):
            action()
            ran = True
        self.world.flush()
        self._moved = self.world.now if ran else self._moved
        return ran

    def _rest(self) -> None:
        for _ in range(MAX_PASSES):
            if not (self._react() or self._step(self.world.now)):
                return
            self._moved = self.world.now
        busy = [name for name, refs in self._waiting.items() if refs]
        raise RuntimeError(f"the simulated cluster does not come to rest: {', '.join(busy)} keep changing objects")

    def _react(self) -> bool:
        """Call each role for which objects changed, once; return True if any was called."""
        ran = False
        for role in self.roles:
            self._distribute()
            refs = self._waiting[role.name]
            everything = role.name in self._fresh
            if not refs and not everything:
                continue
            self._waiting[role.name] = {}
            self._fresh.discard(role.name)
            role.reconcile(self.world, Changes(refs, everything))
            self.world.flush()
            ran = True
        return ran

    def _distribute(self) -> None:
        if self.world.take_wake():
            self._fresh.update(role.name for role in self.roles)
        for kind, refs in self.world.take_dirty().items():
            for role in self.roles:
                if not role.kinds or kind in role.kinds:
                    self._waiting[role.name].setdefault(kind, set()).update(refs)


HOSTS_PER_QUANTUM = 200
"""Hosts for each second by which the clock rounds events. With 1,000 hosts it rounds to 5 s, so batches are fewer and larger."""


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
    """Return a new simulator for an API server and a fleet. Raises UnknownFault, or ValueError for an unknown role.

    `roles_off` names roles that real controllers take over. `start` is the first virtual time in seconds since the epoch; None:
    now.
    """
    fleet = hosts if isinstance(hosts, SimulatedFleet) else SimulatedFleet.from_file(hosts)
    active = load_roles(roles_off)
    clock = VirtualClock(start, quantum=max(1.0, len(fleet) / HOSTS_PER_QUANTUM))
    kinds = [kind for role in active for kind in role.kinds]
    world = World(Api.from_kubeconfig(kubeconfig), kinds, fleet, clock, seed=seed, delay_scale=delay_scale, jitter=jitter)
    world.kubeconfig = portable(kubeconfig)
    world.git_root = git_root
    world.set_faults(faults)
    return Simulator(world, active, may_jump=not roles_off)


def portable(path: Path, address: str = "") -> str:
    """Return a kubeconfig with certificates and token in it, because steps use it where the files it names are missing.

    `address` is the URL of the API server for them, if they reach it by another one.
    """
    access = kubeconfig.load(path)
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
    cluster = {"server": address or access.server} | {key: value for key, value in connection.items() if value}
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
