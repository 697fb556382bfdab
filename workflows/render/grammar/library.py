"""Index of the templates of a manifest by scope and name, and the calls between these templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

KINDS = ("container", "suspend", "dag", "steps")


def parameters(section: Any) -> list[Mapping[str, Any]]:
    """Return the list of parameters in a section `inputs`, `outputs` or `arguments`; empty if the section is missing."""
    return list((section or {}).get("parameters") or [])


@dataclass(frozen=True, slots=True)
class TemplateLocation:
    """A template of a manifest, with its scope and its path in the document.

    The scope is "" for the manifest's own templates, else the name of a WorkflowTemplate.
    """

    scope: str
    path: str
    raw: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Return the kind of the template: container, suspend, dag or steps; "" unless it is exactly one."""
        kinds = [kind for kind in KINDS if self.raw.get(kind) is not None]
        return kinds[0] if len(kinds) == 1 else ""

    def tasks(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield path and content of every task of a DAG or step of a steps template; nothing for other kinds."""
        if self.kind == "dag":
            for index, task in enumerate(self.raw["dag"]["tasks"]):
                yield f"{self.path}.dag.tasks[{index}]", task
        elif self.kind == "steps":
            for row, group in enumerate(self.raw["steps"]):
                for column, task in enumerate(group):
                    yield f"{self.path}.steps[{row}][{column}]", task


class TemplateLibrary:
    """All templates and arguments of a manifest and of the WorkflowTemplates that it may name."""

    def __init__(self, manifest: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]]) -> None:
        self.manifest = manifest
        self.templates = templates
        self.own: Mapping[str, Any] = manifest["spec"]
        self.ref = (self.own.get("workflowTemplateRef") or {}).get("name")
        self.base: Mapping[str, Any] = (templates.get(self.ref) or {}).get("spec") or {} if self.ref else {}
        self.spec: Mapping[str, Any] = {**self.base, **self.own}
        self.is_workflow = manifest.get("kind") == "Workflow"
        self.arguments = {
            item["name"]: item for item in [*parameters(self.base.get("arguments")), *parameters(self.own.get("arguments"))]
        }
        self.places = list(self._places())
        self._found = {(place.scope, place.raw["name"]): place for place in self.places}

    def _places(self) -> Iterator[TemplateLocation]:
        start = f"{self.ref}:spec" if self.ref and not self.own.get("templates") else "spec"
        for index, raw in enumerate(self.spec.get("templates") or []):
            yield TemplateLocation("", f"{start}.templates[{index}]", raw)
        for name, document in self.templates.items():
            for index, raw in enumerate(document["spec"].get("templates") or []):
                yield TemplateLocation(name, f"{name}:spec.templates[{index}]", raw)

    def called(self, call: Mapping[str, Any], scope: str) -> TemplateLocation | None:
        """Return the template that a task, step or hook calls from `scope`, or None if it does not exist."""
        ref = call.get("templateRef")
        key = (ref["name"], ref["template"]) if ref else (scope, str(call.get("template")))
        return self._found.get(key)

    def by_name(self, name: str, scope: str = "") -> TemplateLocation | None:
        """Return the template with this name in a scope, or None if it does not exist."""
        return self._found.get((scope, name))

    def hooks(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield path and call for the exit handler and for each hook of the workflow."""
        if self.spec.get("onExit"):
            yield "spec.onExit", {"template": self.spec["onExit"]}
        for name, hook in (self.spec.get("hooks") or {}).items():
            yield f"spec.hooks.{name}", hook

    def metadata_keys(self, section: str) -> set[str]:
        """Return the keys of the run's `labels` or `annotations`: its own, and those that `workflowMetadata` adds."""
        added = self.spec.get("workflowMetadata") or {}
        sources = [(self.manifest.get("metadata") or {}).get(section), added.get(section)]
        sources += [added.get("labelsFrom")] if section == "labels" else []
        return {str(key) for source in sources for key in source or ()}

    def calls(self, place: TemplateLocation) -> Iterator[Mapping[str, Any]]:
        """Yield every call that a template makes, including the exit handlers and hooks of its tasks."""
        for _, task in place.tasks():
            yield task
            if task.get("onExit"):
                yield {"template": task["onExit"]}
            yield from (task.get("hooks") or {}).values()

    def sure_calls(self, place: TemplateLocation) -> Iterator[TemplateLocation]:
        """Yield the templates that a template calls in every case, that is, without `when` and without a `withParam` list."""
        for _, task in place.tasks():
            if task.get("when") is None and task.get("withParam") is None:
                callee = self.called(task, place.scope)
                if callee is not None:
                    yield callee

    def reachable(self, calls: list[Mapping[str, Any]]) -> set[tuple[str, str]]:
        """Return scope and name of every template that these calls run, directly or through other templates."""
        keys: set[tuple[str, str]] = set()
        waiting = [place for call in calls if (place := self.called(call, "")) is not None]
        while waiting:
            place = waiting.pop()
            key = (place.scope, place.raw["name"])
            if key not in keys:
                keys.add(key)
                waiting += [callee for call in self.calls(place) if (callee := self.called(call, place.scope)) is not None]
        return keys
