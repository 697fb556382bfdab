"""Convert a manifest to the types in `model`; the linter must have accepted the manifest."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from workflows.engines.local.model import (
    LOCAL,
    Argument,
    Backoff,
    ContainerModel,
    DagShape,
    Hook,
    Input,
    NumberSequence,
    Output,
    Retry,
    TaskModel,
    TemplateCall,
    TemplateModel,
    WorkflowPlan,
)
from workflows.render.grammar.depends import Depends, classic, read
from workflows.render.grammar.gotext import display, json_text, seconds
from workflows.render.grammar.tags import strings

_RESULT = re.compile(r"(?:tasks|steps)(?:\.([-\w]+)|\[['\"]([-\w]+)['\"]\])\.outputs\.result")
_T = TypeVar("_T")

_UNITS = {
    unit: base**power
    for base, units in ((1024, ("", "Ki", "Mi", "Gi", "Ti")), (1000, ("", "k", "M", "G", "T")))
    for power, unit in enumerate(units)
}
_QUANTITY = re.compile(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(_UNITS)})")


def text(value: Any) -> str:
    """Return a scalar of the manifest as a string, as Argo's AnyString does; "" for None."""
    return "" if value is None else display(value)


def optional_text(value: Any) -> str | None:
    """Return a scalar of the manifest as a string, as Argo's AnyString does; None for None."""
    return None if value is None else display(value)


def map_strings(value: _T, change: Callable[[str], str]) -> _T:
    """Return a copy of `value` (model types, tuples, dicts, lists) with `change` applied to every string.

    Unchanged parts are shared with the original.
    """
    result: Any = value
    if isinstance(value, str):
        result = change(value)
    elif isinstance(value, tuple):
        items = [map_strings(item, change) for item in value]
        result = value if all(a is b for a, b in zip(items, value, strict=True)) else tuple(items)
    elif isinstance(value, list):
        result = [map_strings(item, change) for item in value]
    elif isinstance(value, dict):
        result = {key: map_strings(item, change) for key, item in value.items()}
    elif dataclasses.is_dataclass(value) and not isinstance(value, (type, DagShape, Depends)):
        changed = {}
        for name in type(value).__dataclass_fields__:
            original = getattr(value, name)
            mapped = map_strings(original, change) if original else original
            if mapped is not original:
                changed[name] = mapped
        result = dataclasses.replace(value, **changed) if changed else value
    return result  # type: ignore[no-any-return]  # the walk keeps the type, which mypy cannot see


def _arguments(raw: Any) -> tuple[Argument, ...]:
    return tuple(Argument(item["name"], optional_text(item.get("value"))) for item in (raw or {}).get("parameters") or [])


def _output(raw: Mapping[str, Any]) -> Output:
    source = raw.get("valueFrom") or {}
    return Output(
        raw["name"],
        text(source.get("path")),
        text(source.get("parameter")),
        text(source.get("expression")),
        optional_text(source.get("default")),
        "supplied" in source,
        text(raw.get("globalName")),
    )


_MOST_MEMORY = float(1 << 62)  # more than any machine has, and as much as a limit of a process can say


def _memory_limit(container: Mapping[str, Any]) -> int:
    """Return a container's memory limit in bytes, 0 without one; Kubernetes' quantities, such as `512Mi`, `1G` or `1.5Gi`."""
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    parts = _QUANTITY.fullmatch(str(limit))
    size = float(parts[1]) * _UNITS[parts[2]] if parts else 0.0
    return int(size) if size < _MOST_MEMORY else 0


def _retry(raw: Mapping[str, Any] | None) -> Retry | None:
    if raw is None:
        return None
    backoff = raw.get("backoff")
    wait = None
    if backoff:
        wait = Backoff(
            text(backoff.get("duration")),
            int(backoff.get("factor") or 0),
            text(backoff.get("cap")),
            text(backoff.get("maxDuration")),
        )
    limit = raw.get("limit")
    return Retry(None if limit is None else int(limit), text(raw.get("retryPolicy")), text(raw.get("expression")), wait)


def _call(raw: Mapping[str, Any]) -> TemplateCall:
    ref = raw.get("templateRef")
    return TemplateCall(ref["template"], ref["name"]) if ref else TemplateCall(text(raw.get("template")))


def _hook(raw: Mapping[str, Any]) -> Hook:
    return Hook(_call(raw), _arguments(raw.get("arguments")), text(raw.get("expression")))


def _exit_hook(raw: Mapping[str, Any]) -> Hook | None:
    hook = (raw.get("hooks") or {}).get("exit")
    if hook:
        return _hook(hook)
    return Hook(TemplateCall(raw["onExit"]), ()) if raw.get("onExit") else None


def _task(raw: Mapping[str, Any], continues: Mapping[str, frozenset[str]]) -> TaskModel:
    depends = None
    if raw.get("depends"):
        depends = read(raw["depends"])
    elif raw.get("dependencies"):
        results = {"Failed": "Failed", "Error": "Errored"}
        depends = classic({name: frozenset(results[phase] for phase in continues[name]) for name in raw["dependencies"]})
    items, sequence = raw.get("withItems"), raw.get("withSequence")
    return TaskModel(
        raw["name"],
        _call(raw),
        _arguments(raw.get("arguments")),
        text(raw.get("when")),
        None if items is None else tuple(items),
        text(raw.get("withParam")),
        None if sequence is None else NumberSequence(*(text(sequence.get(key)) for key in ("start", "end", "count", "format"))),
        depends,
        continues[raw["name"]],
        _exit_hook(raw),
    )


def _tasks(raws: list[Mapping[str, Any]]) -> tuple[TaskModel, ...]:
    phases = (("failed", "Failed"), ("error", "Error"))
    continues = {raw["name"]: frozenset(phase for key, phase in phases if (raw.get("continueOn") or {}).get(key)) for raw in raws}
    return tuple(_task(raw, continues) for raw in raws)


def _shape(tasks: tuple[TaskModel, ...], target: str) -> DagShape:
    by_name = {task.name: task for task in tasks}
    dependencies = {task.name: task.depends.tasks if task.depends else () for task in tasks}
    parents = {parent for names in dependencies.values() for parent in names}
    targets = tuple(target.split()) if target else tuple(name for name in by_name if name not in parents)
    needed = set(targets)
    waiting = list(targets)
    while waiting:
        fresh = set(dependencies[waiting.pop()]) - needed
        needed |= fresh
        waiting += fresh
    return DagShape(by_name, dependencies, targets, tuple(name for name in by_name if name in needed))


def _results_read(raw: Mapping[str, Any]) -> frozenset[str]:
    matches = (match for _, string in strings(dict(raw)) for match in _RESULT.findall(string))
    return frozenset(plain or quoted for plain, quoted in matches)


def parse_template(raw: Mapping[str, Any], scope: str, default_retry: Retry | None) -> TemplateModel:
    """Return one template of a manifest as a model; `default_retry` is the strategy of a template without its own."""
    kind = next(key for key in ("container", "suspend", "dag", "steps") if raw.get(key) is not None)
    tasks = _tasks(raw["dag"]["tasks"]) if kind == "dag" else ()
    container = raw.get("container") or {}
    return TemplateModel(
        raw["name"],
        kind,
        scope,
        tuple(
            Input(item["name"], optional_text(item.get("value")), optional_text(item.get("default")))
            for item in (raw.get("inputs") or {}).get("parameters") or []
        ),
        tuple(_output(item) for item in (raw.get("outputs") or {}).get("parameters") or []),
        _retry(raw.get("retryStrategy")) or default_retry,
        text(raw.get("timeout")),
        text(raw.get("activeDeadlineSeconds")),
        raw.get("parallelism"),
        tuple(item["name"] for item in (raw.get("synchronization") or {}).get("mutexes") or []),
        ContainerModel(
            tuple(container.get("command") or ()),
            tuple(container.get("args") or ()),
            tuple((item["name"], text(item.get("value"))) for item in container.get("env") or []),
            _memory_limit(container),
        )
        if kind == "container"
        else None,
        text((raw.get("suspend") or {}).get("duration")),
        tasks,
        tuple(_tasks(list(group)) for group in raw["steps"]) if kind == "steps" else (),
        (raw.get("dag") or {}).get("failFast") is not False,
        _shape(tasks, text(raw["dag"].get("target"))) if kind == "dag" else None,
        _results_read(raw) if kind in ("dag", "steps") else frozenset(),
    )


def merged_spec(manifest: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the spec that runs: that of `workflowTemplateRef`, overridden by the Workflow's own fields and arguments."""
    spec = dict(manifest["spec"])
    ref = spec.pop("workflowTemplateRef", None)
    if not ref:
        return spec
    base = dict(templates[ref["name"]]["spec"])
    own = {item["name"]: item for item in (spec.get("arguments") or {}).get("parameters") or []}
    base_parameters = [{**item, **own.pop(item["name"], {})} for item in (base.get("arguments") or {}).get("parameters") or []]
    return {**base, **spec, "arguments": {"parameters": base_parameters + list(own.values())}}


def _variables(manifest: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, str]:
    meta = manifest.get("metadata") or {}
    parameters = (spec.get("arguments") or {}).get("parameters") or []
    parameter_rows = [
        {key: (optional_text(item[key]) if key in ("value", "default") else item[key]) for key in _PARAMETER_KEYS if key in item}
        for item in parameters
    ]
    variables = {
        "workflow.name": text(meta.get("name")),
        "workflow.namespace": text(meta.get("namespace")) or "default",
        "workflow.mainEntrypoint": text(spec.get("entrypoint")),
        "workflow.serviceAccountName": text(spec.get("serviceAccountName")),
        "workflow.parameters": json_text(parameter_rows, sort=False),
        "workflow.parameters.json": json_text(parameter_rows, sort=False),
    }
    for kind in ("labels", "annotations"):
        values = {key: text(value) for key, value in (meta.get(kind) or {}).items()}
        variables |= {f"workflow.{kind}": json_text(values), f"workflow.{kind}.json": json_text(values)}
        variables |= {f"workflow.{kind}.{key}": value for key, value in values.items()}
    variables |= {f"workflow.parameters.{item['name']}": text(item.get("value")) for item in parameters}
    return variables


_PARAMETER_KEYS = ("name", "default", "value", "globalName", "enum", "description")  # the order in which the controller writes them


def parse_plan(manifest: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]], slots: int) -> WorkflowPlan:
    """Return the model of a Workflow and of the WorkflowTemplates `templates` (by name) that it may use.

    `slots` is how many pods run at the same time.
    """
    spec = merged_spec(manifest, templates)
    default_retry = _retry(spec.get("retryStrategy"))
    parsed: dict[tuple[str, str], TemplateModel] = {}
    for raw in spec.get("templates") or []:
        parsed[LOCAL, raw["name"]] = parse_template(raw, LOCAL, default_retry)
    for name, document in templates.items():
        for raw in document["spec"].get("templates") or []:
            parsed[name, raw["name"]] = parse_template(raw, name, default_retry)
    deadline = spec.get("activeDeadlineSeconds")
    limits = spec.get("parallelism") is not None or any(item.parallelism is not None or item.mutexes for item in parsed.values())
    return WorkflowPlan(
        text((manifest.get("metadata") or {}).get("name")),
        text(spec.get("entrypoint")),
        _arguments(spec.get("arguments")),
        parsed,
        _exit_hook(spec),
        {name: _hook(raw) for name, raw in (spec.get("hooks") or {}).items() if name != "exit"},
        _variables(manifest, spec),
        spec.get("parallelism"),
        None if deadline is None else seconds(text(deadline)),
        bool(spec.get("suspend")),
        slots,
        limits,
    )
