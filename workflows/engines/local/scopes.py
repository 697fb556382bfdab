"""Build the scopes of `{{...}}` references: inputs, and the outputs, status and exit codes of finished tasks."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from workflows.engines.local.model import Output, TaskModel, TemplateModel
from workflows.engines.local.run_state import NOTHING, OMITTED, SKIPPED, SUCCEEDED, Outputs, RunNode
from workflows.engines.local.substitution import SubstitutionError, read_expression
from workflows.engines.local.working_run import CallError, WorkingRun
from workflows.render.grammar.expr_eval import ExprError, evaluate, from_json
from workflows.render.grammar.gotext import json_text
from workflows.render.grammar.tags import is_pure

ABSENT = "\0absent optional"  # an argument that is exactly a reference to an absent optional: "not supplied" for the callee
_NAMED = re.compile(r"(?:tasks|steps)(?:\.([A-Za-z0-9][-A-Za-z0-9]*)|\[\s*['\"]([A-Za-z0-9][-A-Za-z0-9]*)['\"]\s*\])")

MutableScope = dict[str, str | None]


def referenced_tasks(value: Any) -> frozenset[str]:
    """Return the names of the tasks or steps that texts in a model value refer to."""
    names: set[str] = set()

    def look(item: Any) -> None:
        if isinstance(item, str):
            if "{{" in item:
                names.update(plain or quoted for plain, quoted in _NAMED.findall(item))
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
    return frozenset(names)


def input_scope(template: TemplateModel) -> MutableScope:
    """Return the variables `inputs.parameters.*` of a template."""
    return {f"inputs.parameters.{item.name}": item.value for item in template.inputs}


def add_node(run: WorkingRun, scope: MutableScope, word: str, name: str, node: RunNode) -> None:
    """Add the variables `tasks.NAME.*` (or `steps.NAME.*`) of a finished node to the scope; of a Retry node, its last attempt's."""
    attempt = [node, *run.attempts(node)][-1]
    start, outputs = f"{word}.{name}", attempt.outputs
    scope[f"{start}.status"] = attempt.phase
    if outputs.result is not None:
        scope[f"{start}.outputs.result"] = outputs.result
    if outputs.exit_code is not None:
        scope[f"{start}.exitCode"] = str(outputs.exit_code)
    scope.update({f"{start}.outputs.parameters.{key}": value for key, value in outputs.parameters.items() if value is not None})


def add_absent(scope: MutableScope, word: str, name: str, node: RunNode, template: TemplateModel | None) -> None:
    """Add the output variables of a skipped or omitted node to the scope: declared defaults, or None without a default."""
    if node.phase not in (SKIPPED, OMITTED) or template is None or node.outputs is not NOTHING:
        return
    for output in template.outputs:
        scope[f"{word}.{name}.outputs.parameters.{output.name}"] = output.default


def aggregate(scope: MutableScope, word: str, name: str, children: Iterable[RunNode]) -> None:
    """Add lists over the successful calls of a fan-out to the scope, in item order. Raises CallError if a result is not JSON."""
    # Argo leaves failed children out of aggregates too, so a consumer must compare with the expected number of items
    succeeded = [child.outputs for child in children if child.phase == SUCCEEDED and child.outputs]
    rows = [{key: value or "" for key, value in outputs.parameters.items()} for outputs in succeeded if outputs.parameters]
    try:
        results = [from_json(outputs.result) for outputs in succeeded if outputs.result is not None]
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
    # like Argo: unless all values are objects or lists, all stay texts (`tryJSONUnmarshal` in workflow/controller/operator.go)
    return json_text(parsed if all(isinstance(item, (dict, list)) for item in parsed) else values)


def task_scope(run: WorkingRun, path: str, template: TemplateModel, task: TaskModel) -> MutableScope:
    """Return the scope of one DAG task: the DAG's inputs, and the outputs of the ancestors that the task refers to."""
    assert template.shape is not None
    scope = input_scope(template)
    referenced = (referenced_tasks(task) | template.results_read) & template.shape.ancestors(task.name)
    for name in template.shape.needed:
        if name in referenced:
            _add_task(run, scope, path, template, name)
    return scope


def _add_task(run: WorkingRun, scope: MutableScope, path: str, template: TemplateModel, name: str) -> None:
    assert template.shape is not None
    node = run.nodes[f"{path}.{name}"]
    if node.type == "TaskGroup":
        aggregate(scope, "tasks", name, group_members(run, node))
    add_node(run, scope, "tasks", name, node)
    called = run.plan.template(template.shape.tasks[name].call, template.scope)
    add_absent(scope, "tasks", name, node, called)


def group_members(run: WorkingRun, group: RunNode) -> list[RunNode]:
    """Return the nodes of a fan-out's calls in item order; calls without a node yet are left out."""
    boundary = group.options.boundary
    return [run.nodes[path] for branch in group.branches if (path := f"{boundary}.{branch.name}") in run.nodes]


def dag_scope(run: WorkingRun, path: str, template: TemplateModel) -> MutableScope:
    """Return the scope in which a finished DAG evaluates its own outputs: its inputs, and every task that has a node."""
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
        try:
            return value if isinstance(value, str) else json_text(value)
        except ValueError as err:
            raise SubstitutionError(f"failed to evaluate expression: {err}") from None
    name = is_pure(output.parameter)
    if name is None or name not in scope:
        raise SubstitutionError(f"Unable to resolve: {output.parameter}")
    return scope[name]


def template_outputs(template: TemplateModel, scope: MutableScope) -> Outputs:
    """Return the outputs of a finished DAG or steps template. Raises CallError if one has neither value nor default."""
    values: dict[str, str | None] = {}
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
        values[output.name] = value
    return Outputs(values)
