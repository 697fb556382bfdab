"""Finds a gate with its probe by id, and takes one observation to its verdict."""

import importlib
import typing
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.verdict import Verdict
from steps.errors import BadTask
from steps.probes.reader import KubeReader, Scope


class Gate(Struct, frozen=True):
    """A gate: its id `STAGE/NAME`, the pure decision, and the types of what it compares."""

    id: str
    decide: Callable[[Any, Any], Verdict]
    observation: type
    expectation: type

    def expect(self, expectations: dict[str, Any], nodes: tuple[str, ...]) -> Any:
        """The expectation of this gate: what the task says, plus the expected nodes where the gate asks for them."""
        filled = dict(expectations)
        if any(field.name == "nodes" for field in msgspec.structs.fields(self.expectation)):
            filled["nodes"] = nodes
        try:
            return msgspec.convert(filled, self.expectation)
        except msgspec.ValidationError as error:
            raise BadTask(f"expectations of gate {self.id}: {error}") from error


def find(gate_id: str) -> Gate:
    """The gate of an id. Raises BadTask when there is none."""
    stage, _, name = gate_id.partition("/")
    decide = _function("steps.gates", stage, name, gate_id)
    hints = typing.get_type_hints(decide)
    return Gate(gate_id, decide, hints["seen"], hints["want"])


def probe(gate_id: str) -> Callable[[KubeReader, Scope], Any]:
    """The probe that reads for a gate."""
    stage, _, name = gate_id.partition("/")
    return _function("steps.probes", stage, name, gate_id)


def reader(gate_id: str) -> Callable[[Any], Any]:
    """The pure function `from_play` beside a stage's probes: host outcomes of a play → the gate's observation."""
    stage = gate_id.partition("/")[0]
    return _function("steps.probes", stage, "from_play", gate_id)


def _function(package: str, stage: str, name: str, gate_id: str) -> Callable[..., Any]:
    if not stage.isidentifier() or not name.isidentifier() or name.startswith("_"):
        raise BadTask(f"{gate_id!r} is no gate id (STAGE/NAME)")
    try:
        module = importlib.import_module(f"{package}.{stage}")
    except ModuleNotFoundError as error:
        raise BadTask(f"gate {gate_id}: no module {package}.{stage}") from error
    found = getattr(module, name, None)
    if not callable(found) or getattr(found, "__module__", None) != module.__name__:
        raise BadTask(f"gate {gate_id}: {package}.{stage} has no {name}")
    return typing.cast(Callable[..., Any], found)
