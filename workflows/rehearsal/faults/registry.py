"""Faults by name: what each disturbs, and which gate must catch it."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util

from msgspec import Struct

from workflows.stages import OPERATIONS, ORDER

STAGES = (*ORDER, *OPERATIONS)
"""Stages in running order, those of operations last; the faults of each are the tuple `FAULTS` of the module of its name here."""


class Fault(Struct, frozen=True, kw_only=True):
    """One named disturbance.

    `gate` is the id of the gate that must not pass because of it; `summary` says what it does, `caught_by` in one sentence what the
    gate sees. `node` selects the default victims (`Fleet.pick`: `gpus:2`, `servers:1`, …; empty: the whole cluster). `false_green`
    names the fact of gpu_stack §0 that a naive gate would trip over, else empty. `needs` is what the spec must ask for so that the
    fault can show, as `path=value` (`sharing.mode=mig`); empty: any spec that has its stage.
    """

    name: str
    stage: str
    gate: str
    summary: str
    caught_by: str
    node: str = ""
    false_green: str = ""
    needs: str = ""

    def fits(self, spec: object) -> bool:
        """Whether a spec asks for what this fault disturbs."""
        if not self.needs:
            return True
        path, _, wanted = self.needs.partition("=")
        found = functools.reduce(lambda value, name: getattr(value, name, None), path.split("."), spec)
        return str(found) == wanted


class UnknownFault(ValueError):
    """No fault has this name; the message proposes the nearest ones."""

    hint = "see `bringup faults`"


@functools.cache
def faults() -> tuple[Fault, ...]:
    """All faults, in the order of their stages."""
    found: list[Fault] = []
    for stage in STAGES:
        name = f"{__package__}.{stage}"
        if importlib.util.find_spec(name) is not None:
            found.extend(importlib.import_module(name).FAULTS)
    return tuple(found)


@functools.cache
def _by_name() -> dict[str, Fault]:
    return {fault.name: fault for fault in faults()}


def find(name: str) -> Fault:
    """The fault of a name. Raises UnknownFault with a proposal."""
    by_name = _by_name()
    if name in by_name:
        return by_name[name]
    near = difflib.get_close_matches(name, by_name, n=3, cutoff=0.5)
    raise UnknownFault(f"no fault {name!r}" + (f": did you mean {' or '.join(near)}?" if near else f" among the {len(by_name)}"))


class Active(Struct, frozen=True):
    """A fault in force. `nodes` are its victims; empty means the whole cluster."""

    fault: Fault
    nodes: tuple[str, ...] = ()

    def hits(self, node: str) -> bool:
        """Whether a node suffers from it; an empty name asks for the cluster as a whole."""
        return not node or not self.nodes or node in self.nodes
