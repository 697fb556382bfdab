"""The registry of faults that a rehearsal can play: what each disturbs, and which gate must catch it."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from workflows.stages import FACTORY_STAGES, FOLLOWING, OPERATIONS, ORDER

STAGES = (*ORDER, *(name for names in FOLLOWING.values() for name in names), *OPERATIONS, *FACTORY_STAGES)
"""Stages in running order, then those that follow some of them, operations, then the stages of a factory alone.

The module of each name in this folder holds its faults in the tuple `FAULTS`.
"""


class Fault(Struct, frozen=True, kw_only=True):
    """A disturbance that a rehearsal can play, with the sentences that `bringup faults` and `bringup explain` print about it."""

    name: str
    gate: str
    """The id (`STAGE/NAME`) of the gate that must not pass because of the fault. Its stage is the one that is disturbed."""
    summary: str
    """A sentence that says what is disturbed."""
    caught_by: str
    """A sentence that says what the gate sees of the fault."""
    cause: str = ""
    """A regular expression that the verdict's reason must match, so that the gate names the true cause; empty: not compared."""
    node: str = ""
    """The default victims as a selector for `SimulatedFleet.pick` (`gpus:2`, `servers:1`); empty: the fault hits the whole cluster.
    """
    false_green: str = ""
    """A sentence about a signal that looks healthy in spite of the fault; empty if a naive check would fail too."""
    needs: str = ""
    """A setting that the spec must have so that the fault can show, as `path=value` (`sharing.mode=mig`); empty: any spec will do.

    `*` stands for any key or entry, and for any value: `hosts.*.sharing.mode=mig`, `slurm.prolog.*=*`.
    """
    source: str = ""
    """The public URL or upstream issue that describes the mechanism; empty if there is none."""

    @property
    def stage(self) -> str:
        """The stage or operation that the fault disturbs, for instance `gang`."""
        return self.gate.partition("/")[0]

    def fits(self, spec: object) -> bool:
        """Return True if the spec has the setting in `needs`, or if `needs` is empty."""
        if not self.needs:
            return True
        path, _, wanted = self.needs.partition("=")
        values = [str(value) for value in _settings(spec, path.split("."))]
        return bool(values) if wanted == "*" else wanted in values


def _settings(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield the settings at a path; `*` stands for every key of a mapping, or every entry of a list."""
    if not path:
        if value is not None:  # a section that the spec leaves out
            yield value
    elif path[0] == "*":
        for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ():
            yield from _settings(inner, path[1:])
    else:
        yield from _settings(getattr(value, path[0], None), path[1:])


class UnknownFault(ValueError):
    """Raised for a fault name that does not exist (the message proposes near names), or for victims that the fleet lacks."""

    hint = "see `bringup faults`"


@functools.cache
def faults() -> tuple[Fault, ...]:
    """Return all faults, in the running order of their stages."""
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
    """Return the fault with this name. Raises UnknownFault, whose message proposes similar names."""
    by_name = _by_name()
    if name in by_name:
        return by_name[name]
    near = difflib.get_close_matches(name, by_name, n=3, cutoff=0.5)
    raise UnknownFault(f"no fault {name!r}" + (f": did you mean {' or '.join(near)}?" if near else f" among the {len(by_name)}"))


class ActiveFault(Struct, frozen=True):
    """A fault that the simulator plays now. `nodes` are the names of its victims; empty means the whole cluster."""

    fault: Fault
    nodes: tuple[str, ...] = ()

    def hits(self, node: str) -> bool:
        """Return True if `node` is a victim; without victims every node is one. An empty `node` is always a hit."""
        return not node or not self.nodes or node in self.nodes
