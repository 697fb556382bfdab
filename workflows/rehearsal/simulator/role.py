"""Simulator roles: the protocol of an actor in the simulated cluster, and the list of all roles in running order."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Set
from typing import Protocol

from workflows.rehearsal.faults.fault_registry import STAGES
from workflows.rehearsal.simulator.api_kinds import ObjectKind, Ref
from workflows.rehearsal.simulator.world import World


class Changes:
    """Objects that changed since a role's last call. `everything` is set on the first call and when hosts or faults changed."""

    def __init__(self, refs: Mapping[ObjectKind, Set[Ref]], everything: bool = False) -> None:
        self._refs = refs
        self.everything = everything

    def refs(self, kind: ObjectKind) -> tuple[Ref, ...]:
        """Return created, changed and removed objects of a kind, sorted by name."""
        return tuple(sorted(self._refs.get(kind, ())))


class SimulatorRole(Protocol):
    """An actor: a controller, an operator, all kubelets. Roles that a real cluster has are switched off by name."""

    @property
    def name(self) -> str:
        """The name for `--roles-off`."""

    @property
    def kinds(self) -> tuple[ObjectKind, ...]:
        """The kinds whose changes call the role again. Empty means every kind that any role names."""

    def reconcile(self, world: World, changed: Changes, /) -> None:
        """Compare actual and desired state; write the next step, or schedule it with `world.later`.

        Reconciling is level-triggered: a second call must change nothing, and after a restart a call must find pending steps.
        """


CORE = (
    "namespaces",
    "garbage_collector",
    "helm_controller",
    "argo_cd",
    "daemon_sets",
    "workload_controllers",
    "jobs",
    "scheduler",
    "kubelets",
)
"""Modules with the roles that every Kubernetes cluster has, or that install charts."""
PLAYS = ("rke2_plays",)
"""Modules that only register playbooks."""


def load_roles(off: Set[str] = frozenset()) -> tuple[SimulatorRole, ...]:
    """Return all roles except those switched off, in running order. Raises ValueError for a name that no role has.

    A module exports its classes as `ROLES`; a stage's module may have none. The import also registers plays, charts, checks and
    pods.
    """
    every: list[SimulatorRole] = []
    for module in (*CORE, *STAGES, *PLAYS):
        name = f"{__package__}.{module}"
        if importlib.util.find_spec(name) is not None:
            makers: tuple[Callable[[], SimulatorRole], ...] = getattr(importlib.import_module(name), "ROLES", ())
            every.extend(make() for make in makers)
    unknown = off - {role.name for role in every}
    if unknown:
        raise ValueError(f"no role {', '.join(sorted(unknown))}: there are {', '.join(role.name for role in every)}")
    return tuple(role for role in every if role.name not in off)
