"""Render a plan into linted manifests, for all commands that print, submit or run them."""

import re
from collections.abc import Mapping

from workflows import bringup, factory, image, slurm_acceptance_pipeline, stack
from workflows.app import name_checks
from workflows.app.run_options import UsageError
from workflows.plan.model import Plan
from workflows.render import manifest_policy, starts
from workflows.render.bundle import Build, Bundle, Object, RenderError, render
from workflows.render.grammar import findings
from workflows.render.grammar.lint import lint
from workflows.render.grammar.schema_check import check_schema
from workflows.render.steps import Settings

PIPELINES: dict[str, Build] = {
    bringup.KIND: bringup.build,
    factory.KIND: factory.build,
    stack.KIND: stack.build,
    image.KIND: image.build,
    slurm_acceptance_pipeline.KIND: slurm_acceptance_pipeline.build,
}

_IMAGE = re.compile(
    r"(?=.{1,255}\Z)([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?/)?"
    r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
"""Pattern of an image reference: registry, path, tag, digest; all but the path may be left out."""

_SECRET = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")

IMAGE, BUILDER, PULL_SECRET = "BRINGUP_IMAGE", "BRINGUP_BUILDER_IMAGE", "BRINGUP_PULL_SECRET"
"""Environment variables of an installation: step image, builder image, and the Secret by which nodes pull both."""


class NotAnInstallation(ValueError):
    """Error for a namespace, an image or a pull secret that Kubernetes would refuse."""


def installation(namespace: str, image: str, environ: Mapping[str, str], builder: str = "") -> Settings:
    """Return the checked settings (namespace, images, pull secret) of bringup in the home cluster. Raises NotAnInstallation.

    An image that is not given comes from the environment, else it is this version's image name, for nodes that were given the image
    by hand.
    """
    if not name_checks.is_namespace(namespace):
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
    """Return an image reference, given or from the environment; empty if there is none. Raises NotAnInstallation."""
    chosen = image or environ.get(variable, "")
    if chosen and not _IMAGE.fullmatch(chosen):
        shown = chosen if image else f"{variable}={chosen}"
        raise NotAnInstallation(
            f"{shown!r} is no image reference: REGISTRY/PATH:TAG or REGISTRY/PATH@sha256:DIGEST, path in lower case"
        )
    return chosen


def builder(source: str, own_kind: str, named: str) -> Build:
    """Return the function that renders plans of pipeline `named`, or of the spec's own if that is empty. Raises UsageError."""
    if named and named not in PIPELINES:
        raise UsageError(f"{named!r} is no pipeline; use {', '.join(PIPELINES)}")
    if named and named != own_kind and {named, own_kind} & {image.KIND, factory.KIND, stack.KIND}:
        subject = {image.KIND: "a node image", factory.KIND: "a factory", stack.KIND: "a software stack"}.get(own_kind, "a cluster")
        raise UsageError(f"{source} is the spec of {subject}: pipeline {named} cannot be rendered from it")
    return PIPELINES[named or own_kind]


def rendered(plan: Plan, build: Build, settings: Settings | None = None) -> Bundle:
    """Return the linted manifests of a plan. Raises RenderError with the first breach, which is a bug of bringup."""
    bundle = render(plan, build, settings)
    require_clean(bundle)
    return bundle


def require_clean(bundle: Bundle) -> None:
    """Raise RenderError with the first breach of the linter's and our own rules in the manifests of a plan."""
    starters = starts.starter_templates(bundle.starts or ())
    templates = {manifest["metadata"]["name"]: manifest for manifest in (bundle.template, *starters)}
    workflows = (bundle.workflow, *filter(None, map(starts.workflow, bundle.starts or ())))
    sentences = [sentence for workflow in workflows for sentence in _refused(workflow, templates)]
    sentences += manifest_policy.breaches(bundle.template)
    sentences += [sentence for manifest in starters for sentence in manifest_policy.starter_breaches(manifest)]
    sentences += [str(finding) for manifest in bundle.starts or () for finding in check_schema(manifest)]
    if sentences:
        raise RenderError(f"the rendered manifest breaks {len(sentences)} rules; the first: {sentences[0]}")


def _refused(workflow: Object, templates: Mapping[str, Object]) -> list[str]:
    """Return the linter's findings on a Workflow, which refers to one of `templates`, and on that one."""
    name = workflow["spec"]["workflowTemplateRef"]["name"]
    refused = findings.refused(lint(workflow, {name: templates[name]} if name in templates else {}))
    return [f"{finding.path}: {finding.sentence}" for finding in refused]
