"""What a task may refer to: outputs, status and exit codes of finished tasks, aggregates of fan-outs, absent optionals."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from workflows.engines.local.model import Output, Task, Template
from workflows.engines.local.run import CallError, Run
from workflows.engines.local.state import NOTHING, OMITTED, SKIPPED, SUCCEEDED, Node, Outputs
from workflows.engines.local.substitution import SubstitutionError, read_expression
from workflows.render.grammar.expr_eval import ExprError, evaluate, from_json
from workflows.render.grammar.gotext import json_text
from workflows.render.grammar.tags import is_pure

ABSENT = "\0absent optional"  # an argument that is exactly a reference to an absent optional: "not supplied" for the callee
_NAMED = re.compile(r"(?:tasks|steps)(?:\.([A-Za-z0-9][-A-Za-z0-9]*)|\[\s*['\"]([A-Za-z0-9][-A-Za-z0-9]*)['\"]\s*\])")

MutableScope = dict[str, str | None]


def named(value: Any) -> frozenset[str]:
    """The tasks or steps that the texts in a model value refer to."""
    found: set[str] = set()

    def look(item: Any) -> None:
        if isinstance(item, str):
            if "{{" in item:
                found.update(plain or quoted for plain, quoted in _NAMED.findall(item))
        elif isinstance(item, (tuple, list)):
            for part in item:
                look(part)
        elif isinstance(item, Mapping):
            look(list(item.values()))
        elif dataclasses.is_dataclass(item) and not isinstance(item, type):
            for name in type(item).__dataclass_fields__:
                if name != "depends":
                    look(getattr(item, name))

    look(value)
    return frozenset(found)


def input_scope(template: Template) -> MutableScope:
    """The inputs of the enclosing template."""
    return {f"inputs.parameters.{item.name}": item.value for item in template.inputs}


def add_node(run: Run, scope: MutableScope, word: str, name: str, node: Node) -> None:
    """`tasks.NAME.*` (or `steps.NAME.*`) of a finished node; of a retried one, its last attempt."""
    shown = run.last_attempt(node) or node
    start = f"{word}.{name}"
    scope[f"{start}.status"] = shown.phase
    add_outputs(scope, start, shown.outputs)


def add_outputs(scope: MutableScope, start: str, outputs: Outputs) -> None:
    """Exit code, result and parameters below `start`."""
    if outputs.result is not None:
        scope[f"{start}.outputs.result"] = outputs.result
    if outputs.exit_code is not None:
        scope[f"{start}.exitCode"] = str(outputs.exit_code)
    scope.update({f"{start}.outputs.parameters.{key}": value for key, value in outputs.parameters.items() if value is not None})


def add_absent(scope: MutableScope, word: str, name: str, node: Node, template: Template | None) -> None:
    """Outputs of a skipped or omitted node: the declared default, else an absent optional."""
    if node.phase not in (SKIPPED, OMITTED) or template is None or node.outputs is not NOTHING:
        return
    for output in template.outputs:
        scope[f"{word}.{name}.outputs.parameters.{output.name}"] = output.default


def aggregate(scope: MutableScope, word: str, name: str, children: Iterable[Node]) -> None:
    """Lists over the children that succeeded, in item order (hera_argo §2.3).  CallError when a result is no JSON."""
    kept = [child.outputs for child in children if child.phase == SUCCEEDED and child.outputs]
    rows = [{key: value or "" for key, value in outputs.parameters.items()} for outputs in kept if outputs.parameters]
    try:
        results = [from_json(outputs.result) for outputs in kept if outputs.result is not None]
    except ExprError as err:
        raise CallError(str(err)) from None
    start = f"{word}.{name}.outputs"
    scope[f"{start}.result"] = json_text(results)
    scope[f"{start}.parameters"] = json_text(rows)
    for key in dict.fromkeys(key for row in rows for key in row):
        scope[f"{start}.parameters.{key}"] = _listed([row[key] for row in rows if key in row])


def _listed(values: list[str]) -> str:
    try:
        parsed = [from_json(value) for value in values]
    except ExprError:
        return json_text(values)
    return json_text(parsed if all(isinstance(item, (dict, list)) for item in parsed) else values)


def task_scope(run: Run, path: str, template: Template, task: Task) -> MutableScope:
    """The scope of one DAG task: inputs of the DAG and the ancestors that it names."""
    assert template.shape is not None
    scope = input_scope(template)
    wanted = (named(task) | template.results_read) & template.shape.ancestors(task.name)
    for name in template.shape.needed:
        if name in wanted:
            _add_task(run, scope, path, template, name)
    return scope


def _add_task(run: Run, scope: MutableScope, path: str, template: Template, name: str) -> None:
    assert template.shape is not None
    node = run.nodes[f"{path}.{name}"]
    if node.type == "TaskGroup":
        aggregate(scope, "tasks", name, group_members(run, node))
    add_node(run, scope, "tasks", name, node)
    called = run.plan.template(template.shape.tasks[name].call, template.scope)
    add_absent(scope, "tasks", name, node, called)


def group_members(run: Run, group: Node) -> list[Node]:
    """The nodes of a fan-out in item order."""
    boundary = group.options.boundary
    return [run.nodes[path] for branch in group.branches if (path := f"{boundary}.{branch.name}") in run.nodes]


def dag_scope(run: Run, path: str, template: Template) -> MutableScope:
    """The scope in which a finished DAG finds its own outputs: every task that has a node."""
    assert template.shape is not None
    scope = input_scope(template)
    for name in template.shape.needed:
        if f"{path}.{name}" in run.nodes:
            _add_task(run, scope, path, template, name)
    return scope


def _value(output: Output, scope: MutableScope) -> str | None:
    if output.expression:
        value = evaluate(read_expression(output.expression), scope)
        if value is None:
            raise SubstitutionError(f'failed to evaluate expression "{output.expression}"')
        return value if isinstance(value, str) else json_text(value)
    name = is_pure(output.parameter)
    if name is None or name not in scope:
        raise SubstitutionError(f"Unable to resolve: {output.parameter}")
    return scope[name]


def template_outputs(template: Template, scope: MutableScope) -> Outputs:
    """The outputs of a finished DAG or steps template.  CallError when one has neither value nor default."""
    found: dict[str, str | None] = {}
    for output in template.outputs:
        try:
            value = _value(output, scope)
        except (SubstitutionError, ExprError) as err:
            if output.default is None:
                raise CallError(str(err)) from None
            value = output.default
        value = output.default if value is None else value
        if value is None:
            sentence = "is an absent optional (skipped/omitted node output with no default)"
            raise CallError(f'output parameter "{output.name}": "{output.parameter}" {sentence}')
        found[output.name] = value
    return Outputs(found)
