"""Spec → linted manifests: what several commands do before they print, submit or run."""

from workflows import bringup, factory, image, stack
from workflows.plan.model import Plan
from workflows.render import grammar, house
from workflows.render.bundle import Build, Bundle, RenderError, render
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
    found = [f"{finding.path}: {finding.sentence}" for finding in grammar.lint(bundle.workflow, {name: bundle.template})]
    found += house.breaches(bundle.template)
    if found:
        raise RenderError(f"the rendered manifest breaks {len(found)} rules; the first: {found[0]}")
    return bundle
