"""The registry of faults by name: what each disturbs, and which gate must catch it."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util

from msgspec import Struct

from workflows.stages import OPERATIONS, ORDER

STAGES = (*ORDER, *OPERATIONS)
"""Stages in running order, then operations. The faults of a stage are the tuple `FAULTS` in the module of that name."""


class Fault(Struct, frozen=True, kw_only=True):
    """A named disturbance, in the words that `bringup faults` and `bringup explain` print."""

    name: str
    gate: str
    """The id of the gate that must not pass because of the fault; its first part is the stage that is disturbed."""
    summary: str
    """A sentence about the disturbance."""
    caught_by: str
    """A sentence about what the gate sees."""
    node: str = ""
    """The default victims as a selector of `SimulatedFleet.pick` (`gpus:2`, `servers:1`); empty means the whole cluster."""
    false_green: str = ""
    """A sentence about a signal that still looks healthy; empty if naive checks would fail too."""
    needs: str = ""
    """A setting that a spec must have so that the fault can show, as `path=value` (`sharing.mode=mig`); empty means any spec."""
    source: str = ""
    """The public URL or upstream issue that describes the mechanism; empty if there is none."""

    @property
    def stage(self) -> str:
        """The stage or operation that is disturbed."""
        return self.gate.partition("/")[0]

    def fits(self, spec: object) -> bool:
        """Return True if a spec asks for what this fault disturbs."""
        if not self.needs:
            return True
        path, _, wanted = self.needs.partition("=")
        setting = functools.reduce(lambda value, name: getattr(value, name, None), path.split("."), spec)
        return str(setting) == wanted


class UnknownFault(ValueError):
    """An unknown fault name; the message proposes the nearest names."""

    hint = "see `bringup faults`"


@functools.cache
def faults() -> tuple[Fault, ...]:
    """Return all faults in the order of their stages."""
    every: list[Fault] = []
    for stage in STAGES:
        name = f"{__package__}.{stage}"
        if importlib.util.find_spec(name) is not None:
            every.extend(importlib.import_module(name).FAULTS)
    return tuple(every)


@functools.cache
def _by_name() -> dict[str, Fault]:
    return {fault.name: fault for fault in faults()}


def find_fault(name: str) -> Fault:
    """Return the fault of a name. Raises UnknownFault with a proposal."""
    by_name = _by_name()
    if name in by_name:
        return by_name[name]
    near = difflib.get_close_matches(name, by_name, n=3, cutoff=0.5)
    raise UnknownFault(f"no fault {name!r}" + (f": did you mean {' or '.join(near)}?" if near else f" among the {len(by_name)}"))


class ActiveFault(Struct, frozen=True):
    """A fault in force. `nodes` are its victims; empty means the whole cluster."""

    fault: Fault
    nodes: tuple[str, ...] = ()

    def hits(self, node: str) -> bool:
        """Return True if a node suffers from the fault; an empty name asks about the cluster as a whole."""
        return not node or not self.nodes or node in self.nodes
