"""Check the `{{...}}` references of a manifest: each must name a declared input, an ancestor's output, or a known variable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from workflows.render.grammar import depends, expr, expr_nodes
from workflows.render.grammar.findings import LintFinding
from workflows.render.grammar.library import TemplateLibrary, TemplateLocation, parameters
from workflows.render.grammar.tags import strings, tags

_GLOBAL = frozenset({"name", "namespace", "mainEntrypoint", "serviceAccountName", "parameters", "labels", "annotations"})
_ON_EXIT = frozenset({"workflow.status", "workflow.failures"})
_RETRY = frozenset({"retries", "lastRetry.exitCode", "lastRetry.status", "lastRetry.message", "lastRetry.duration"})
_LOCAL = frozenset({"node.name", "tasks.name", "steps.name"})
_WORDS = frozenset({"workflow", "inputs", "outputs", "tasks", "steps", "item", "retries", "lastRetry", "node", "pod"})
Known = Callable[[str], str]  # "" when the name is known there, else why not


@dataclass(frozen=True, slots=True)
class _Scope:
    """The variables that references (`{{...}}`) in a template, or in one of its tasks, may name."""

    library: TemplateLibrary
    place: TemplateLocation
    on_entry: bool
    near: Callable[[], Mapping[str, Mapping[str, Any]]] = dict  # tasks that may be referred to
    all_tasks: frozenset[str] = frozenset()
    items: frozenset[str] = frozenset()
    """References to the item of a fan-out that its list allows: `item`, `item.KEY`, and `item.*` for a list of unknown content."""
    is_own: bool = False
    """The references are those of the template itself, for example in its outputs, and not those of one of its tasks."""

    def why_not(self, name: str) -> str:
        word, _, rest = name.partition(".")
        if word not in _WORDS or name in _LOCAL:
            return ""
        if word == "workflow":
            return self._global(name, rest)
        if word in ("retries", "lastRetry"):
            retried = any(raw.get("retryStrategy") is not None for raw in (self.place.raw, self.library.spec))
            return "" if name in _RETRY and retried else f"failed to resolve {{{{{name}}}}} (no retryStrategy here)"
        if word == "inputs":
            return self._input(rest)
        if word == "item":
            if name in self.items or (rest and "item.*" in self.items):
                return ""
            return f"failed to resolve {{{{{name}}}}} ({'no item has it' if self.items else 'the task does not fan out'})"
        if word == "outputs":
            return self._own_output(name, rest)
        if word in ("tasks", "steps"):
            return self._task(word, name, rest)
        return "" if name == "pod.name" and self.place.kind == "container" else f"failed to resolve {{{{{name}}}}}"

    def _global(self, name: str, rest: str) -> str:
        if name in _ON_EXIT:
            return f"{{{{{name}}}}} exists only in the exit handler; this template is called before" if self.on_entry else ""
        kind, _, key = rest.partition(".")
        if kind in _GLOBAL and (not key or key == "json"):
            empty = kind == "parameters" and self.library.is_workflow and not self.library.arguments
            return f"failed to resolve {{{{{name}}}}} (the workflow has no parameters)" if empty else ""
        if kind == "parameters" and (key in self.library.arguments or not self.library.is_workflow):
            return ""
        if kind in ("labels", "annotations"):
            return (
                ""
                if key in self.library.metadata_keys(kind) or not self.library.is_workflow
                else f"the workflow has no {kind[:-1]} '{key}'"
            )
        exported = {item.get("globalName") for place in self.library.places for item in parameters(place.raw.get("outputs"))}
        if rest.startswith("outputs.parameters.") and rest.removeprefix("outputs.parameters.") in exported:
            return ""
        return f"failed to resolve {{{{{name}}}}} (both engines support no such workflow variable)"

    def _input(self, rest: str) -> str:
        declared = {item["name"] for item in parameters(self.place.raw.get("inputs"))}
        if (rest == "parameters" and declared) or (rest.startswith("parameters.") and rest.removeprefix("parameters.") in declared):
            return ""
        return f"failed to resolve {{{{inputs.{rest}}}}}"

    def _own_output(self, name: str, rest: str) -> str:
        declared = {f"parameters.{item['name']}.path" for item in parameters(self.place.raw.get("outputs"))}
        return "" if self.place.kind == "container" and rest in declared else f"failed to resolve {{{{{name}}}}}"

    def _task(self, word: str, name: str, rest: str) -> str:
        task, _, field = rest.partition(".")
        if word != {"dag": "tasks", "steps": "steps"}.get(self.place.kind) or task not in self.all_tasks:
            return f"failed to resolve {{{{{name}}}}} (no such {word.removesuffix('s')} here)"
        if task not in (reachable := self.near()):
            return f"missing dependency '{task}': it is not an ancestor"
        callee = self.library.called(reachable[task], self.place.scope)
        if field == "status":
            # a DAG's own outputs are made when no task is an ancestor of anything
            unknown = self.is_own and word == "tasks" and not reachable[task].get("hooks")
            return f"failed to resolve {{{{{name}}}}} (a DAG's outputs have no status of tasks)" if unknown else ""
        if field in ("exitCode", "outputs.result"):
            ran = callee is None or callee.kind == "container"
            return "" if ran else f"failed to resolve {{{{{name}}}}} (only a container has it)"
        if field == "outputs.parameters":
            fans = any(reachable[task].get(key) for key in ("withItems", "withParam"))
            return "" if fans else f"failed to resolve {{{{{name}}}}} (task '{task}' has no withItems or withParam)"
        declared = {item["name"] for item in parameters(callee.raw.get("outputs"))} if callee else set()
        if field.startswith("outputs.parameters.") and field.removeprefix("outputs.parameters.") in declared:
            return ""
        return f"failed to resolve {{{{{name}}}}}"


def check_references(library: TemplateLibrary) -> Iterator[LintFinding]:
    """Yield findings about references in all templates and in the arguments of the workflow's hooks."""
    entry = library.spec.get("entrypoint")
    ordinary = [hook for path, hook in library.hooks() if path not in ("spec.onExit", "spec.hooks.exit")]
    before_exit = library.reachable([*([{"template": entry}] if entry else []), *ordinary])
    for place in library.places:
        on_entry = (place.scope, place.raw["name"]) in before_exit
        yield from _template(library, place, on_entry)
    nowhere = _Scope(library, TemplateLocation("", "spec", {}), False)
    for path, hook in library.hooks():
        yield from _texts(hook.get("arguments"), f"{path}.arguments", nowhere.why_not)


def _template(library: TemplateLibrary, place: TemplateLocation, on_entry: bool) -> Iterator[LintFinding]:
    scope = _Scope(library, place, on_entry)
    if place.kind not in ("dag", "steps"):
        yield from _texts(place.raw, place.path, scope.why_not)
        return
    tasks = list(place.tasks())
    by_name = {task["name"]: task for _, task in tasks}
    everything = frozenset(by_name)
    own = {key: value for key, value in place.raw.items() if key not in ("dag", "steps")}
    yield from _texts(own, place.path, _Scope(library, place, on_entry, lambda: by_name, everything, is_own=True).why_not)
    for path, task in tasks:
        yield from _task(_Scope(library, place, on_entry, all_tasks=everything), path, task, by_name)


def _task(scope: _Scope, path: str, task: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]]) -> Iterator[LintFinding]:
    def near() -> dict[str, Mapping[str, Any]]:
        return {name: by_name[name] for name in _ancestors(scope.place, task, by_name)}

    def near_and_itself() -> dict[str, Mapping[str, Any]]:
        return {**near(), task["name"]: task}

    inside = replace(scope, near=near, items=_items(task))
    yield from _texts({key: value for key, value in task.items() if key != "hooks"}, path, inside.why_not)
    yield from _texts(task.get("hooks"), f"{path}.hooks", replace(scope, near=near_and_itself).why_not)


def _items(task: Mapping[str, Any]) -> frozenset[str]:
    """Return the references to an item that a task may have, by the values of its list."""
    if task.get("withParam") is not None:
        return frozenset({"item", "item.*"})
    if task.get("withSequence") is not None:
        return frozenset({"item"})
    items = task.get("withItems")
    known = {f"item.{key}" for value in items or () if isinstance(value, Mapping) for key in value}
    return frozenset(known if items is None else known | {"item"})


def _ancestors(place: TemplateLocation, task: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]]) -> set[str]:
    if place.kind == "steps":
        earlier: set[str] = set()
        for group in place.raw["steps"]:
            if task in group:
                return earlier
            earlier |= {step["name"] for step in group}
        return earlier
    names: set[str] = set()
    waiting = [task]
    while waiting:
        parents = depends.parents(waiting.pop())
        waiting += [by_name[name] for name in parents if name not in names]
        names |= set(parents)
    return names


def _texts(value: Any, path: str, why_not: Known) -> Iterator[LintFinding]:
    for below, text in strings(value or {}, path):
        for tag in tags(text):
            if not tag.expression:
                sentence = why_not(tag.body)
                if sentence:
                    yield LintFinding(below, sentence)
                continue
            try:
                node = expr.read(tag.body)
            except expr.ExprSyntaxError as err:
                yield LintFinding(below, f"'{{{{{tag.text}}}}}' is not an expression that both engines support: {err}")
                continue
            for name, _ in dict.fromkeys(expr_nodes.references(node)):
                if sentence := why_not(name):
                    yield LintFinding(below, sentence)
