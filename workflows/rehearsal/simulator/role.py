"""What a role is, and which roles there are: everybody who acts in the simulated cluster, in running order."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Set
from typing import Protocol

from workflows.rehearsal.faults.registry import STAGES
from workflows.rehearsal.simulator.kinds import Kind, Ref
from workflows.rehearsal.simulator.world import World


class Changed:
    """What is new since a role looked last. `everything` is set on the first look and when hosts or faults changed."""

    def __init__(self, refs: Mapping[Kind, Set[Ref]], everything: bool = False) -> None:
        self._refs = refs
        self.everything = everything

    def refs(self, kind: Kind) -> tuple[Ref, ...]:
        """Created, changed and removed objects of a kind, in the order of their names."""
        return tuple(sorted(self._refs.get(kind, ())))


class Role(Protocol):
    """One actor: a controller, an operator, all kubelets. Roles that a real cluster has are switched off by name."""

    @property
    def name(self) -> str:
        """For `--roles-off`."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What the role looks at: it is called again when any object of these kinds changed. Empty: every kind that others name."""

    def reconcile(self, world: World, changed: Changed, /) -> None:
        """Compare what is with what should be; write the next step, or schedule it with `world.later`.

        Level-triggered: calling it twice must change nothing the second time, and after a restart it must find what is pending.
        """


CORE = ("namespaces", "garbage", "helm_controller", "argo_cd", "daemon_sets", "workloads", "jobs", "scheduler", "kubelet")
"""Modules of the roles that every Kubernetes cluster has, or that bring charts to it."""
PLAYS = ("rke2_plays", "site_roles")
"""Modules that only say what playbooks do: RKE2's, and Ansible roles of the site."""


def roles(off: Set[str] = frozenset()) -> tuple[Role, ...]:
    """All roles but those named, in running order. Raises ValueError for a name that no role has.

    A module exports `ROLES`, the classes of its roles; a stage's module may have none. Importing a stage's module also registers
    what its plays, charts, checks and pods do.
    """
    found: list[Role] = []
    for module in (*CORE, *STAGES, *PLAYS):
        name = f"{__package__}.{module}"
        if importlib.util.find_spec(name) is not None:
            makers: tuple[Callable[[], Role], ...] = getattr(importlib.import_module(name), "ROLES", ())
            found.extend(make() for make in makers)
    unknown = off - {role.name for role in found}
    if unknown:
        raise ValueError(f"no role {', '.join(sorted(unknown))}: there are {', '.join(role.name for role in found)}")
    return tuple(role for role in found if role.name not in off)
