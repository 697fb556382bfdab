"""Names, calls, dependencies and conditions: what the controller's own validation refuses, and what the subset leaves out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from workflows.render.grammar import depends, expr
from workflows.render.grammar.findings import Finding
from workflows.render.grammar.gotext import seconds
from workflows.render.grammar.library import KINDS, Library, Place, parameters
from workflows.render.grammar.tags import replace, tags
from workflows.render.grammar.when import WhenError, compile_when

_NAME = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9]*")
_POLICIES = ("Always", "OnFailure", "OnError", "OnTransientError")
_FANS = ("withItems", "withParam", "withSequence")


def check_structure(library: Library) -> Iterator[Finding]:
    """Everything that can be said without looking into `{{...}}`."""
    yield from _workflow(library)
    seen: set[tuple[str, str]] = set()
    for place in library.places:
        key = (place.scope, place.raw["name"])
        if key in seen:
            yield Finding(f"{place.path}.name", f"a second template is named '{place.raw['name']}'")
        seen.add(key)
        yield from _template(library, place)
    yield from _endless(library)


def _endless(library: Library) -> Iterator[Finding]:
    """A template that always comes back to itself never ends; with a condition it may."""
    places = {id(place.raw): place for place in library.places}
    left = {key: {id(callee.raw) for callee in library.sure_calls(place)} for key, place in places.items()}
    while free := [key for key, calls in left.items() if not calls & left.keys()]:
        for key in free:
            del left[key]
    for key in left:
        yield Finding(places[key].path, "calls itself (or one that does) without end", "give the call a `when`")


def _workflow(library: Library) -> Iterator[Finding]:
    spec = library.spec
    if library.ref and library.ref not in library.templates:
        yield Finding("spec.workflowTemplateRef", f"no WorkflowTemplate '{library.ref}' is given")
        return
    meta = library.manifest.get("metadata") or {}
    if not meta.get("name") and not meta.get("generateName"):
        yield Finding("metadata.name", "is required")
    if library.is_workflow and not spec.get("entrypoint"):
        yield Finding("spec.entrypoint", "is required")
    if spec.get("entrypoint") and library.by_name(spec["entrypoint"]) is None:
        yield Finding("spec.entrypoint", f"template name '{spec['entrypoint']}' undefined")
    for path, hook in library.hooks():
        yield from _call(library, path, hook, "")
        if path.startswith("spec.hooks.") and path != "spec.hooks.exit":
            yield from _expression(f"{path}.expression", hook.get("expression") or "")
    for name, item in library.arguments.items():
        yield from _enum(f"spec.arguments.{name}", item, item.get("value"))
        if library.is_workflow and item.get("value") is None:
            yield Finding(f"spec.arguments.{name}", "has no value")
    yield from _retry("spec.retryStrategy", spec.get("retryStrategy"))
    entry = library.by_name(str(spec.get("entrypoint")))
    if library.is_workflow and entry is not None:
        yield from _inputs("spec.arguments", entry, set(library.arguments))


def _enum(path: str, item: Mapping[str, Any], value: Any) -> Iterator[Finding]:
    allowed = item.get("enum")
    if allowed is not None and value is not None and not tags(str(value)) and str(value) not in [str(entry) for entry in allowed]:
        yield Finding(f"{path}.value", f"should be present in the enum list ({', '.join(map(str, allowed))})")


def _inputs(path: str, callee: Place, given: set[str]) -> Iterator[Finding]:
    for item in parameters(callee.raw.get("inputs")):
        if item["name"] not in given and item.get("value") is None and item.get("default") is None:
            yield Finding(path, f"inputs.parameters.{item['name']} of template '{callee.raw['name']}' was not supplied")


def _call(library: Library, path: str, call: Mapping[str, Any], scope: str) -> Iterator[Finding]:
    ref = call.get("templateRef")
    if bool(ref) == bool(call.get("template")):
        yield Finding(path, "needs exactly one of template and templateRef")
        return
    callee = library.called(call, scope)
    if callee is None:
        missing = (
            f"template reference {ref['name']}.{ref['template']} not found"
            if ref
            else f"template name '{call['template']}' undefined"
        )
        yield Finding(f"{path}.{'templateRef' if ref else 'template'}", missing)
        return
    given = {item["name"] for item in parameters(call.get("arguments")) if item.get("value") is not None}
    yield from _inputs(path, callee, given)


def _template(library: Library, place: Place) -> Iterator[Finding]:
    raw = place.raw
    if not _NAME.fullmatch(raw["name"]):
        yield Finding(f"{place.path}.name", f"'{raw['name']}' is no name (letters, digits and '-')")
    held = [kind for kind in KINDS if raw.get(kind) is not None]
    if len(held) != 1:
        yield Finding(place.path, f"must have exactly one of {', '.join(KINDS)}; it has {', '.join(held) or 'none'}")
        return
    for section in ("inputs", "outputs"):
        yield from _distinct(f"{place.path}.{section}.parameters", [item["name"] for item in parameters(raw.get(section))])
    for index, item in enumerate(parameters(raw.get("inputs"))):
        for key in ("value", "default"):
            yield from _enum(f"{place.path}.inputs.parameters[{index}]", item, item.get(key))
    yield from _outputs(place)
    yield from _retry(f"{place.path}.retryStrategy", raw.get("retryStrategy"))
    yield from _limits(place)
    if place.kind == "container" and not raw["container"]["command"]:
        yield Finding(f"{place.path}.container.command", "is empty; an image's own entry point is unknown here")
    if place.kind in ("dag", "steps"):
        yield from _tasks(library, place)


def _distinct(path: str, names: list[str]) -> Iterator[Finding]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Finding(path, f"'{name}' is not unique")


def _outputs(place: Place) -> Iterator[Finding]:
    allowed = {
        "container": ("path",),
        "suspend": ("supplied",),
        "dag": ("parameter", "expression"),
        "steps": ("parameter", "expression"),
    }
    for index, item in enumerate(parameters(place.raw.get("outputs"))):
        path = f"{place.path}.outputs.parameters[{index}].valueFrom"
        sources = [key for key in ("path", "parameter", "expression", "supplied") if key in item["valueFrom"]]
        if len(sources) != 1 or sources[0] not in allowed[place.kind]:
            yield Finding(path, f"needs exactly one of {' or '.join(allowed[place.kind])} in a {place.kind} template")
        if "expression" in item["valueFrom"]:
            yield from _expression(f"{path}.expression", str(item["valueFrom"]["expression"]))


def _limits(place: Place) -> Iterator[Finding]:
    raw = place.raw
    for key in ("timeout", "activeDeadlineSeconds"):
        if raw.get(key) is not None and place.kind != "container":
            yield Finding(f"{place.path}.{key}", f"a {place.kind} template takes no {key}", "give it to the containers inside")
    if raw.get("timeout") is not None:
        yield from _duration(f"{place.path}.timeout", raw["timeout"])
    if place.kind == "suspend" and raw["suspend"].get("duration") is not None:
        yield from _duration(f"{place.path}.suspend.duration", raw["suspend"]["duration"])
    if raw.get("failFast"):
        yield Finding(f"{place.path}.failFast", "the template's own failFast is outside of the executed subset", "use dag.failFast")
    if raw.get("parallelism") is not None and place.kind not in ("dag", "steps"):
        yield Finding(f"{place.path}.parallelism", f"a {place.kind} template takes no parallelism")
    for key in ("parallelism", "activeDeadlineSeconds"):
        if str(raw.get(key)) == "0":
            yield Finding(f"{place.path}.{key}", "must be more than 0")


def _duration(path: str, value: Any) -> Iterator[Finding]:
    try:
        seconds(str(value))
    except ValueError as err:
        yield Finding(path, str(err))


def _retry(path: str, raw: Mapping[str, Any] | None) -> Iterator[Finding]:
    if raw is None:
        return
    policy = raw.get("retryPolicy")
    if policy is not None and policy not in _POLICIES:
        yield Finding(f"{path}.retryPolicy", f"'{policy}' is not a valid retry policy (one of {', '.join(_POLICIES)})")
    for key in ("duration", "cap", "maxDuration"):
        if (raw.get("backoff") or {}).get(key) is not None:
            yield from _duration(f"{path}.backoff.{key}", raw["backoff"][key])
    if raw.get("expression"):
        yield from _expression(f"{path}.expression", replace(raw["expression"], lambda _: "x"))


def _expression(path: str, text: str) -> Iterator[Finding]:
    try:
        expr.read(text)
    except expr.ExprSyntaxError as err:
        yield Finding(path, f"'{text}' is no expression of the executed subset: {err}")


# --- tasks and steps -------------------------------------------------------------------------------------------------------


def _tasks(library: Library, place: Place) -> Iterator[Finding]:
    listed = list(place.tasks())
    yield from _distinct(place.path, [task["name"] for _, task in listed])
    for path, task in listed:
        yield from _task(library, place, path, task)
    if place.kind == "dag":
        yield from _graph(place, [task for _, task in listed])


def _task(library: Library, place: Place, path: str, task: Mapping[str, Any]) -> Iterator[Finding]:
    if not _NAME.fullmatch(task["name"]):
        yield Finding(f"{path}.name", f"'{task['name']}' is no name (letters, digits and '-')")
    yield from _call(library, path, task, place.scope)
    if task.get("onExit"):
        yield from _call(library, f"{path}.onExit", {"template": task["onExit"]}, place.scope)
    for name, hook in (task.get("hooks") or {}).items():
        yield from _call(library, f"{path}.hooks.{name}", hook, place.scope)
        if hook.get("expression"):
            yield from _expression(f"{path}.hooks.{name}.expression", hook["expression"])
    fans = [key for key in _FANS if task.get(key) is not None]
    if len(fans) > 1:
        yield Finding(path, f"only one of {', '.join(_FANS)} can be specified")
    yield from _sequence(f"{path}.withSequence", task.get("withSequence"))
    if task.get("when") is not None:
        try:
            compile_when(replace(str(task["when"]), lambda _: "x"))
        except WhenError as err:
            yield Finding(f"{path}.when", f"'{task['when']}' is no condition of the executed subset: {err}")


def _sequence(path: str, raw: Mapping[str, Any] | None) -> Iterator[Finding]:
    if raw is None:
        return
    if (raw.get("end") is None) == (raw.get("count") is None):
        yield Finding(path, "needs exactly one of end and count")
    for key in ("start", "end", "count"):
        value = str(raw.get(key, "0"))
        if not tags(value) and not re.fullmatch(r"-?\d+", value):
            yield Finding(f"{path}.{key}", f"'{value}' is no whole number")


def _graph(place: Place, tasks: list[Mapping[str, Any]]) -> Iterator[Finding]:
    if any(task.get("depends") for task in tasks) and any(task.get("dependencies") for task in tasks):
        yield Finding(place.path, "cannot use both 'depends' and 'dependencies' in the same DAG template")
        return
    parents: dict[str, tuple[str, ...]] = {}
    fans = {task["name"] for task in tasks if any(task.get(key) for key in _FANS)}
    for index, task in enumerate(tasks):
        path = f"{place.path}.dag.tasks[{index}]"
        try:
            parents[task["name"]] = _parents(task)
        except depends.DependsError as err:
            yield Finding(f"{path}.depends", f"'{task['depends']}' does not parse: {err}")
            continue
        yield from _parents_fit(path, task, parents[task["name"]], {other["name"] for other in tasks}, fans)
    for target in str(place.raw["dag"].get("target") or "").split():
        if target not in parents:
            yield Finding(f"{place.path}.dag.target", f"target '{target}' is no task")
    yield from _cycle(place, parents)


def _parents(task: Mapping[str, Any]) -> tuple[str, ...]:
    if task.get("depends"):
        return depends.read(str(task["depends"])).tasks
    return tuple(task.get("dependencies") or ())


def _parents_fit(
    path: str, task: Mapping[str, Any], parents: tuple[str, ...], names: set[str], fans: set[str]
) -> Iterator[Finding]:
    key = "depends" if task.get("depends") else "dependencies"
    for parent in parents:
        if parent not in names:
            yield Finding(f"{path}.{key}", f"invalid dependency {parent}")
    text = str(task.get("depends") or "")
    for parent, result in re.findall(r"([-A-Za-z0-9]+)\.(AnySucceeded|AllFailed)", text):
        if parent in names - fans:
            yield Finding(f"{path}.depends", f"'{parent}.{result}' is only for a fan-out; '{parent}' is none")
    if text and task["name"][:1].isdigit():
        yield Finding(f"{path}.name", "a task with depends does not begin with a digit")
    if text and task.get("continueOn"):
        yield Finding(f"{path}.continueOn", "cannot be used together with depends", "name the results in depends")


def _cycle(place: Place, parents: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    left = {name: {parent for parent in found if parent in parents} for name, found in parents.items()}
    while free := [name for name, waits in left.items() if not waits & left.keys()]:
        for name in free:
            del left[name]
    if left:
        yield Finding(f"{place.path}.dag", f"graph with cycle: {', '.join(sorted(left))}")
