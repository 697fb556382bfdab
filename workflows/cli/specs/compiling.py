"""Spec → linted manifests: what several commands do before they print, submit or run."""

import re
from collections.abc import Mapping

from workflows import bringup, factory, image, stack
from workflows.cli import naming
from workflows.plan.model import Plan
from workflows.render import house, starts
from workflows.render.bundle import Build, Bundle, Object, RenderError, render
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


_IMAGE = re.compile(
    r"(?=.{1,255}\Z)([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?/)?"
    r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
"""An image reference: registry, path, tag, digest; all but the path may be left out."""


_SECRET = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")

IMAGE, BUILDER, PULL_SECRET = "BRINGUP_IMAGE", "BRINGUP_BUILDER_IMAGE", "BRINGUP_PULL_SECRET"
"""What an installation chooses once: the step image where no `--image` names one, the same for the builder image, and the Secret by
which nodes pull both."""


class NotAnInstallation(ValueError):
    """A namespace, an image or a pull secret that Kubernetes would refuse."""


def installation(namespace: str, image: str, environ: Mapping[str, str], builder: str = "") -> Settings:
    """What an installation chooses, checked; without an image it is the environment's, else this version's, as nodes have it that
    were given it by hand; the same for the builder image. Raises NotAnInstallation."""
    if not naming.is_namespace(namespace):
        raise NotAnInstallation(
            f"{namespace!r} cannot be a namespace: lower-case letters, digits and dashes, at most 63, as in bringup"
        )
    secret, usual = environ.get(PULL_SECRET, ""), Settings()
    if secret and not _SECRET.fullmatch(secret):
        raise NotAnInstallation(f"{PULL_SECRET}={secret!r} is no name of a Secret in the namespace of the runs")
    chosen = _chosen(image, IMAGE, environ) or usual.image
    return Settings(
        namespace=namespace, image=chosen, builder=_chosen(builder, BUILDER, environ) or usual.builder, pull_secret=secret
    )


def _chosen(image: str, variable: str, environ: Mapping[str, str]) -> str:
    """An image reference, given or the environment's; empty where neither says one."""
    chosen = image or environ.get(variable, "")
    if chosen and not _IMAGE.fullmatch(chosen):
        said = chosen if image else f"{variable}={chosen}"
        raise NotAnInstallation(
            f"{said!r} is no image reference: REGISTRY/PATH:TAG or REGISTRY/PATH@sha256:DIGEST, path in lower case"
        )
    return chosen


def rendered(plan: Plan, build: Build, settings: Settings | None = None) -> Bundle:
    """The bundle of a plan, linted. Raises RenderError with the first breach: what we render must be right."""
    bundle = render(plan, build, settings)
    name = bundle.template["metadata"]["name"]
    made = (bundle.workflow, *filter(None, map(starts.workflow, bundle.starts or ())))
    found = [sentence for one in made for sentence in _refused(one, {name: bundle.template})]
    found += house.breaches(bundle.template)
    if found:
        raise RenderError(f"the rendered manifest breaks {len(found)} rules; the first: {found[0]}")
    return bundle


def _refused(workflow: Object, templates: Mapping[str, Object]) -> list[str]:
    """What the linter says of a Workflow that is submitted: one that runs a template, or one that has its own."""
    by_itself = bool(workflow["spec"].get("templates"))
    refused = findings.refused(lint(workflow, {} if by_itself else templates))
    return [f"{one.path}: {one.sentence}" for one in refused] + [*(house.starting_breaches(workflow) if by_itself else ())]
