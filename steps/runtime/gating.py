"""Gates and probes by gate id: `STAGE/NAME` is function `NAME` of `steps/stages/STAGE/gate.py`, with its probe beside it."""

import importlib
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.host_ranges import fold
from steps.contract.verdict import Verdict
from steps.errors import BadTask
from steps.stages.shared.kube_reader import KubeReader, Scope


class Gate(Struct, frozen=True):
    """A gate: its id `STAGE/NAME`, the pure decision, and the types that it compares."""

    id: str
    decide: Callable[[Any, Any], Verdict]
    observation: type
    expectation: type

    def expect(
        self,
        expectations: dict[str, Any],
        nodes: tuple[str, ...],
        groups: Mapping[str, str] | None = None,
        leaves: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the expectation as the gate's type: the task's values, plus the expected nodes if the type has a field `nodes`.

        Expectations with `pools` or `partitions` name host groups: a field `group_of` then gets the group of each node. With `tree`
        the field `topology` gets leaf switch → hosts as a range text, from `leaves` (host → leaf switch).
        Raises BadTask when the values do not fit the type.
        """
        filled, names = dict(expectations), {field.name for field in msgspec.structs.fields(self.expectation)}
        if "nodes" in names:
            filled["nodes"] = nodes
        if "group_of" in names and (filled.get("pools") or filled.get("partitions")):
            filled["group_of"] = {node: (groups or {}).get(node, "") for node in nodes}
        if "topology" in names and filled.get("tree"):
            filled["topology"] = _by_leaf(leaves or {})
        try:
            return msgspec.convert(filled, self.expectation)
        except msgspec.ValidationError as error:
            raise BadTask(f"expectations of gate {self.id}: {error}") from error


def _by_leaf(leaves: Mapping[str, str]) -> dict[str, str]:
    hosts: dict[str, list[str]] = {}
    for host, leaf in leaves.items():
        hosts.setdefault(leaf, []).append(host)
    return {leaf: fold(names) for leaf, names in hosts.items()}


def find(gate_id: str) -> Gate:
    """Return the gate with this id, `STAGE/NAME`. Raises BadTask when there is none."""
    stage, _, name = gate_id.partition("/")
    decide = _function(stage, "gate", name, gate_id)
    hints = typing.get_type_hints(decide)
    return Gate(gate_id, decide, hints["seen"], hints["want"])


def probe(gate_id: str) -> Callable[[KubeReader, Scope], Any]:
    """Return the probe that reads what a gate judges. Raises BadTask when there is none."""
    stage, _, name = gate_id.partition("/")
    return _function(stage, "probe", name, gate_id)


def reader(gate_id: str) -> Callable[[Any], Any]:
    """Return `from_play` of the stage's probe module, which turns the host outcomes of a play into the gate's observation."""
    stage = gate_id.partition("/")[0]
    return _function(stage, "probe", "from_play", gate_id)


def _function(stage: str, module_name: str, name: str, gate_id: str) -> Callable[..., Any]:
    """Return a public function of one of a stage's modules. Raises BadTask for an id that names none."""
    if not stage.isidentifier() or not name.isidentifier() or name.startswith("_"):
        raise BadTask(f"{gate_id!r} is no gate id (STAGE/NAME)")
    path = f"steps.stages.{stage}.{module_name}"
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise BadTask(f"gate {gate_id}: no module {path}") from error
    function = getattr(module, name, None)
    # functions that the module imports are no gates
    if not callable(function) or getattr(function, "__module__", None) != path:
        raise BadTask(f"gate {gate_id}: {path} has no {name}")
    return typing.cast(Callable[..., Any], function)
