"""Check names, calls, dependencies and conditions of a manifest, which Argo's controller or the supported subset restrict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from workflows.render.grammar import depends, expr
from workflows.render.grammar.findings import LintFinding
from workflows.render.grammar.gotext import MOST_ITEMS, SEQUENCE_FORMAT, seconds
from workflows.render.grammar.library import KINDS, TemplateLibrary, TemplateLocation, parameters
from workflows.render.grammar.tags import replace, strings, tags
from workflows.render.grammar.when import WhenError, compile_when

_NAME = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9]*")
_POLICIES = ("Always", "OnFailure", "OnError", "OnTransientError")
_FANS = ("withItems", "withParam", "withSequence")
_Key = TypeVar("_Key", int, str)


def check_structure(library: TemplateLibrary) -> Iterator[LintFinding]:
    """Yield findings about names, calls, dependencies and conditions; the contents of `{{...}}` are not looked at."""
    yield from _workflow(library)
    seen: set[tuple[str, str]] = set()
    for place in library.places:
        key = (place.scope, place.raw["name"])
        if key in seen:
            yield LintFinding(f"{place.path}.name", f"a second template is named '{place.raw['name']}'")
        seen.add(key)
        yield from _template(library, place)
    yield from _endless(library)


def _endless(library: TemplateLibrary) -> Iterator[LintFinding]:
    """Yield a finding for each template that calls itself without end. A call with a condition may end, so it does not count."""
    places = {id(place.raw): place for place in library.places}
    for key in _in_circles({key: {id(callee.raw) for callee in library.sure_calls(place)} for key, place in places.items()}):
        yield LintFinding(places[key].path, "calls itself without end, directly or through others", "give the call a `when`")


def _in_circles(edges: dict[_Key, set[_Key]]) -> list[_Key]:
    """Return the nodes of a graph that lie in a cycle or lead into one; `edges` is emptied of all other nodes."""
    callers: dict[_Key, list[_Key]] = {}
    for key, targets in edges.items():
        targets &= edges.keys()
        for target in targets:
            callers.setdefault(target, []).append(key)
    ends = [key for key, targets in edges.items() if not targets]
    while ends:
        end = ends.pop()
        del edges[end]
        for key in callers.get(end, ()):
            edges[key].discard(end)
            if not edges[key]:
                ends.append(key)
    return list(edges)


def _workflow(library: TemplateLibrary) -> Iterator[LintFinding]:
    spec = library.spec
    if library.ref and library.ref not in library.templates:
        yield LintFinding("spec.workflowTemplateRef", f"the WorkflowTemplate '{library.ref}' is missing")
        return
    meta = library.manifest.get("metadata") or {}
    if not meta.get("name") and not meta.get("generateName"):
        yield LintFinding("metadata.name", "is required")
    if library.is_workflow and not spec.get("entrypoint"):
        yield LintFinding("spec.entrypoint", "is required")
    if spec.get("entrypoint") and library.by_name(spec["entrypoint"]) is None:
        yield LintFinding("spec.entrypoint", f"template name '{spec['entrypoint']}' undefined")
    for path, hook in library.hooks():
        yield from _call(library, path, hook, "")
        if path.startswith("spec.hooks.") and path != "spec.hooks.exit":
            yield from _expression(f"{path}.expression", hook.get("expression") or "")
    for name, item in library.arguments.items():
        yield from _enum(f"spec.arguments.{name}", item, item.get("value"))
        if library.is_workflow and item.get("value") is None:
            yield LintFinding(f"spec.arguments.{name}", "has no value")
    yield from _retry("spec.retryStrategy", spec.get("retryStrategy"))
    entry = library.by_name(str(spec.get("entrypoint")))
    if library.is_workflow and entry is not None:
        yield from _inputs("spec.arguments", entry, set(library.arguments))


def _enum(path: str, item: Mapping[str, Any], value: Any) -> Iterator[LintFinding]:
    allowed = item.get("enum")
    if allowed is not None and value is not None and not tags(str(value)) and str(value) not in [str(entry) for entry in allowed]:
        yield LintFinding(f"{path}.value", f"should be present in the enum list ({', '.join(map(str, allowed))})")


def _inputs(path: str, callee: TemplateLocation, supplied: set[str]) -> Iterator[LintFinding]:
    for item in parameters(callee.raw.get("inputs")):
        if item["name"] not in supplied and item.get("value") is None and item.get("default") is None:
            yield LintFinding(path, f"inputs.parameters.{item['name']} of template '{callee.raw['name']}' was not supplied")


def _call(library: TemplateLibrary, path: str, call: Mapping[str, Any], scope: str) -> Iterator[LintFinding]:
    ref = call.get("templateRef")
    if bool(ref) == bool(call.get("template")):
        yield LintFinding(path, "needs exactly one of template and templateRef")
        return
    callee = library.called(call, scope)
    if callee is None:
        missing = (
            f"template reference {ref['name']}.{ref['template']} not found"
            if ref
            else f"template name '{call['template']}' undefined"
        )
        yield LintFinding(f"{path}.{'templateRef' if ref else 'template'}", missing)
        return
    supplied = {item["name"] for item in parameters(call.get("arguments")) if item.get("value") is not None}
    yield from _inputs(path, callee, supplied)


def _template(library: TemplateLibrary, place: TemplateLocation) -> Iterator[LintFinding]:
    raw = place.raw
    if not _NAME.fullmatch(raw["name"]):
        yield LintFinding(f"{place.path}.name", f"'{raw['name']}' is not a valid name (letters, digits and '-')")
    kinds = [kind for kind in KINDS if raw.get(kind) is not None]
    if len(kinds) != 1:
        yield LintFinding(place.path, f"must have exactly one of {', '.join(KINDS)}; it has {', '.join(kinds) or 'none'}")
        return
    for section in ("inputs", "outputs"):
        yield from _distinct(f"{place.path}.{section}.parameters", [item["name"] for item in parameters(raw.get(section))])
    for index, item in enumerate(parameters(raw.get("inputs"))):
        for key in ("value", "default"):
            yield from _enum(f"{place.path}.inputs.parameters[{index}]", item, item.get(key))
    yield from _outputs(place)
    yield from _retry(f"{place.path}.retryStrategy", raw.get("retryStrategy"))
    yield from _limits(place)
    if place.kind == "container":
        yield from _words(f"{place.path}.container", raw["container"])
    if place.kind == "container" and not raw["container"]["command"]:
        yield LintFinding(f"{place.path}.container.command", "is empty; the local engine cannot know the image's entry point")
    if place.kind in ("dag", "steps"):
        yield from _tasks(library, place)


def _words(path: str, container: Mapping[str, Any]) -> Iterator[LintFinding]:
    """Yield findings about what no process can be started with: a NUL in its words, and names of variables that are none."""
    for below, text in strings({key: container.get(key) or [] for key in ("command", "args", "env")}, path):
        if "\0" in text:
            yield LintFinding(below, "has a NUL character, which no command and no variable can have")
    for index, item in enumerate(container.get("env") or ()):
        if not re.fullmatch(r"[ -<>-~]+", item["name"]):
            yield LintFinding(f"{path}.env[{index}].name", f"{item['name']!r} is not the name of a variable (ASCII, without '=')")


def _distinct(path: str, names: list[str]) -> Iterator[LintFinding]:
    for name in sorted(name for name, times in Counter(names).items() if times > 1):
        yield LintFinding(path, f"'{name}' is not unique")


def _outputs(place: TemplateLocation) -> Iterator[LintFinding]:
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
            yield LintFinding(path, f"needs exactly one of {' or '.join(allowed[place.kind])} in a {place.kind} template")
        if "expression" in item["valueFrom"]:
            yield from _expression(f"{path}.expression", str(item["valueFrom"]["expression"]))


def _limits(place: TemplateLocation) -> Iterator[LintFinding]:
    raw = place.raw
    for key in ("timeout", "activeDeadlineSeconds"):
        if raw.get(key) is not None and place.kind != "container":
            yield LintFinding(f"{place.path}.{key}", f"a {place.kind} template takes no {key}", "give it to the containers inside")
    if raw.get("timeout") is not None:
        yield from _duration(f"{place.path}.timeout", raw["timeout"])
    if place.kind == "suspend" and raw["suspend"].get("duration") is not None:
        yield from _duration(f"{place.path}.suspend.duration", raw["suspend"]["duration"])
    if raw.get("failFast"):
        yield LintFinding(
            f"{place.path}.failFast", "the template's own failFast is not supported by both engines", "use dag.failFast"
        )
    if raw.get("parallelism") is not None and place.kind not in ("dag", "steps"):
        yield LintFinding(f"{place.path}.parallelism", f"a {place.kind} template takes no parallelism")
    for key in ("parallelism", "activeDeadlineSeconds"):
        if str(raw.get(key)) == "0":
            yield LintFinding(f"{place.path}.{key}", "must be more than 0")


def _duration(path: str, value: Any) -> Iterator[LintFinding]:
    try:
        seconds(str(value))
    except ValueError as err:
        yield LintFinding(path, str(err))


def _retry(path: str, raw: Mapping[str, Any] | None) -> Iterator[LintFinding]:
    if raw is None:
        return
    policy = raw.get("retryPolicy")
    if policy is not None and policy not in _POLICIES:
        yield LintFinding(f"{path}.retryPolicy", f"'{policy}' is not a valid retry policy (one of {', '.join(_POLICIES)})")
    for key in ("duration", "cap", "maxDuration"):
        if (raw.get("backoff") or {}).get(key) is not None:
            yield from _duration(f"{path}.backoff.{key}", raw["backoff"][key])
    if raw.get("expression"):
        yield from _expression(f"{path}.expression", replace(raw["expression"], lambda _: "x"))


def _expression(path: str, text: str) -> Iterator[LintFinding]:
    try:
        expr.read(text)
    except expr.ExprSyntaxError as err:
        yield LintFinding(path, f"'{text}' is not an expression that both engines support: {err}")


# --- tasks and steps -------------------------------------------------------------------------------------------------------


def _tasks(library: TemplateLibrary, place: TemplateLocation) -> Iterator[LintFinding]:
    tasks = list(place.tasks())
    yield from _distinct(place.path, [task["name"] for _, task in tasks])
    for path, task in tasks:
        yield from _task(library, place, path, task)
    if place.kind == "dag":
        yield from _graph(place, [task for _, task in tasks])


def _task(library: TemplateLibrary, place: TemplateLocation, path: str, task: Mapping[str, Any]) -> Iterator[LintFinding]:
    if not _NAME.fullmatch(task["name"]):
        yield LintFinding(f"{path}.name", f"'{task['name']}' is not a valid name (letters, digits and '-')")
    yield from _call(library, path, task, place.scope)
    if task.get("onExit"):
        yield from _call(library, f"{path}.onExit", {"template": task["onExit"]}, place.scope)
    for name, hook in (task.get("hooks") or {}).items():
        yield from _call(library, f"{path}.hooks.{name}", hook, place.scope)
        if hook.get("expression"):
            yield from _expression(f"{path}.hooks.{name}.expression", hook["expression"])
    fans = [key for key in _FANS if task.get(key) is not None]
    if len(fans) > 1:
        yield LintFinding(path, f"only one of {', '.join(_FANS)} can be specified")
    yield from _sequence(f"{path}.withSequence", task.get("withSequence"))
    if task.get("when") is not None:
        try:
            compile_when(replace(str(task["when"]), lambda _: "x"))
        except WhenError as err:
            yield LintFinding(f"{path}.when", f"'{task['when']}' is not a condition that both engines support: {err}")


def _sequence(path: str, raw: Mapping[str, Any] | None) -> Iterator[LintFinding]:
    if raw is None:
        return
    if (raw.get("end") is None) == (raw.get("count") is None):
        yield LintFinding(path, "needs exactly one of end and count")
    for key in ("start", "end", "count"):
        value = str(raw.get(key, "0"))
        if not tags(value) and not re.fullmatch(r"-?[0-9]{1,18}", value):
            yield LintFinding(f"{path}.{key}", f"'{value[:40]}' is not a whole number of 18 digits at most")
            return
    start, end, count = (str(raw.get(key) or "0") for key in ("start", "end", "count"))
    size = int(count) or abs(int(end) - int(start)) + 1 if not tags(f"{start} {end} {count}") else 0
    if size > MOST_ITEMS:
        yield LintFinding(path, f"has {size} items; the engines run {MOST_ITEMS} at most")
    form = str(raw.get("format") or "")
    if form and not tags(form) and not SEQUENCE_FORMAT.fullmatch(form):
        yield LintFinding(f"{path}.format", f"'{form[:40]}' is not supported by both engines", "supported: %d, %03d, %x")


def _graph(place: TemplateLocation, tasks: list[Mapping[str, Any]]) -> Iterator[LintFinding]:
    if any(task.get("depends") for task in tasks) and any(task.get("dependencies") for task in tasks):
        yield LintFinding(place.path, "cannot use both 'depends' and 'dependencies' in the same DAG template")
        return
    parents: dict[str, tuple[str, ...]] = {}
    fans = {task["name"] for task in tasks if any(task.get(key) for key in _FANS)}
    names = {task["name"] for task in tasks}
    for index, task in enumerate(tasks):
        path = f"{place.path}.dag.tasks[{index}]"
        try:
            parents[task["name"]] = depends.parents(task)
        except depends.DependsError as err:
            yield LintFinding(f"{path}.depends", f"'{task['depends']}' does not parse: {err}")
            continue
        yield from _parents_fit(path, task, parents[task["name"]], names, fans)
    for target in str(place.raw["dag"].get("target") or "").split():
        if target not in parents:
            yield LintFinding(f"{place.path}.dag.target", f"target '{target}' is not a task of this DAG")
    yield from _cycle(place, parents)


def _parents_fit(
    path: str, task: Mapping[str, Any], parents: tuple[str, ...], names: set[str], fans: set[str]
) -> Iterator[LintFinding]:
    key = "depends" if task.get("depends") else "dependencies"
    for parent in parents:
        if parent not in names:
            yield LintFinding(f"{path}.{key}", f"invalid dependency {parent}")
    text = str(task.get("depends") or "")
    for parent, result in re.findall(r"([-A-Za-z0-9]+)\.(AnySucceeded|AllFailed)", text):
        if parent in names - fans:
            yield LintFinding(f"{path}.depends", f"'{parent}.{result}' is only for a fan-out, and '{parent}' does not fan out")
    if text and task["name"][:1].isdigit():
        yield LintFinding(f"{path}.name", "the name of a task with depends may not begin with a digit")
    if text and task.get("continueOn"):
        yield LintFinding(f"{path}.continueOn", "cannot be used together with depends", "name the results in depends")


def _cycle(place: TemplateLocation, parents: Mapping[str, tuple[str, ...]]) -> Iterator[LintFinding]:
    if circles := _in_circles({name: set(names) for name, names in parents.items()}):
        yield LintFinding(f"{place.path}.dag", f"graph with cycle: {', '.join(sorted(circles))}")
