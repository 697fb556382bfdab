"""Rules of Argo's controller for a manifest that the API server has accepted, beyond names, calls and references.

They are those of `workflow/validate/validate.go` in Argo Workflows 4.1.2 for the fields that both engines know. The controller ends
a run that breaks one as `Failed` with "invalid spec: …" before any node exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from workflows.render.grammar.findings import LintFinding
from workflows.render.grammar.library import TemplateLibrary, TemplateLocation, parameters
from workflows.render.grammar.tags import tags

LONGEST_NAME = 63
"""Largest number of characters in a Workflow's name: it becomes the value of a label of each pod."""
_PARAMETER = re.compile(r"[-a-zA-Z0-9_]+")
_POD_RESOURCES = ("cpu", "memory")
_Value = Mapping[str, Any]


def check_controller_rules(library: TemplateLibrary) -> Iterator[LintFinding]:
    """Yield findings about values and combinations of fields that Argo's controller refuses."""
    name = (library.manifest.get("metadata") or {}).get("name") or ""
    if len(name) > LONGEST_NAME:
        yield LintFinding("metadata.name", f"has {len(name)} characters; Argo accepts {LONGEST_NAME} at most")
    if library.ref and library.own.get("templates"):
        yield LintFinding("spec.templates", "a Workflow with workflowTemplateRef may have no templates of its own")
    for key, value in library.arguments.items():
        if value.get("enum") is not None and value.get("value") is None and library.is_workflow:
            yield LintFinding(f"spec.arguments.{key}.value", "is required beside an enum")
    yield from _pod_resources("spec.podResources", library.spec.get("podResources"))
    for place in library.places:
        yield from _template(place)
        for path, task in place.tasks():
            yield from _arguments(path, task)
        if place.kind == "dag":
            yield from _dag(place)


def _template(place: TemplateLocation) -> Iterator[LintFinding]:
    raw, path = place.raw, place.path
    yield from _pod_resources(f"{path}.podResources", raw.get("podResources"))
    if place.kind == "container":
        yield from _container(path, raw["container"])
    elif raw.get("resourceClaims"):
        yield LintFinding(f"{path}.resourceClaims", f"a {place.kind} template makes no pod, so it takes no resourceClaims")
    if raw.get("pendingTimeout") and place.kind in ("dag", "steps"):
        yield LintFinding(f"{path}.pendingTimeout", f"a {place.kind} template takes no pendingTimeout")
    if re.fullmatch(r"[-+]?\d+", str(raw.get("timeout") or "")):
        yield LintFinding(f"{path}.timeout", f"{raw['timeout']} is not a duration: add a unit", f"use {raw['timeout']}s")
    deadline = raw.get("activeDeadlineSeconds")
    if deadline is not None and not tags(str(deadline)) and not re.fullmatch(r"\+?\d+", str(deadline)):
        yield LintFinding(f"{path}.activeDeadlineSeconds", f"{deadline} is not a whole number above 0")
    for section in ("inputs", "outputs"):
        for index, item in enumerate(parameters(raw.get(section))):
            exported = item.get("globalName")
            if exported and not tags(str(exported)) and not _PARAMETER.fullmatch(str(exported)):
                yield LintFinding(f"{path}.{section}.parameters[{index}].globalName", f"'{exported}' is not a name of a parameter")


def _container(path: str, container: _Value) -> Iterator[LintFinding]:
    if not container.get("image"):
        yield LintFinding(f"{path}.container.image", "is required: Argo makes no pod without an image")
    mounted: dict[str, str] = {}
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where = str(mount.get("mountPath"))
        if where in mounted:
            yield LintFinding(
                f"{path}.container.volumeMounts[{index}].mountPath", f"'{where}' is already mounted by {mounted[where]}"
            )
        mounted[where] = str(mount.get("name"))


def _pod_resources(path: str, resources: _Value | None) -> Iterator[LintFinding]:
    if not resources:
        return
    if resources.get("claims"):
        yield LintFinding(f"{path}.claims", "is not supported for the resources of a whole pod")
    for section in ("limits", "requests"):
        for name in resources.get(section) or {}:
            if name not in _POD_RESOURCES and not str(name).startswith("hugepages-"):
                yield LintFinding(f"{path}.{section}.{name}", "is not a resource of a whole pod: only cpu, memory and hugepages-*")


def _arguments(path: str, task: _Value) -> Iterator[LintFinding]:
    """Check the arguments of a task or step: each has a value, from its enum if it has one."""
    names: set[str] = set()
    for index, item in enumerate(parameters(task.get("arguments"))):
        here, value = f"{path}.arguments.parameters[{index}]", item.get("value")
        if item["name"] in names:
            yield LintFinding(here, f"a second argument is named '{item['name']}'")
        names.add(item["name"])
        if value is None:
            yield LintFinding(f"{here}.value", f"is required: the argument '{item['name']}' has none")
        elif item.get("enum") is not None and str(value) not in [str(choice) for choice in item["enum"]]:
            yield LintFinding(f"{here}.value", f"should be present in the enum list ({', '.join(map(str, item['enum']))})")


def _dag(place: TemplateLocation) -> Iterator[LintFinding]:
    tasks = list(place.tasks())
    with_depends = any(task.get("depends") for _, task in tasks)
    for path, task in tasks:
        if (with_depends or task.get("dependencies")) and task["name"][:1].isdigit():
            yield LintFinding(f"{path}.name", "cannot begin with a digit when the DAG uses 'depends' or 'dependencies'")
        if with_depends and task.get("continueOn"):
            yield LintFinding(f"{path}.continueOn", "cannot be used in a DAG with 'depends'", "name the results in depends")
