"""Spec → linted manifests: what several commands do before they print, submit or run."""

from workflows import bringup, factory, image, stack
from workflows.plan.model import Plan
from workflows.render import house
from workflows.render.bundle import Build, Bundle, RenderError, render
from workflows.render.grammar import findings
from workflows.render.grammar.lint import lint
from workflows.render.steps import Settings

PIPELINES: dict[str, Build] = {
    bringup.KIND: bringup.build,
    factory.KIND: factory.build,
    stack.KIND: stack.build,
    image.KIND: image.build,
}
"""The four pipelines by kind."""


def rendered(plan: Plan, build: Build, settings: Settings | None = None) -> Bundle:
    """The bundle of a plan, linted. Raises RenderError with the first breach: what we render must be right."""
    bundle = render(plan, build, settings)
    name = bundle.template["metadata"]["name"]
    refused = findings.refused(lint(bundle.workflow, {name: bundle.template}))
    found = [f"{finding.path}: {finding.sentence}" for finding in refused]
    found += house.breaches(bundle.template)
    if found:
        raise RenderError(f"the rendered manifest breaks {len(found)} rules; the first: {found[0]}")
    return bundle
