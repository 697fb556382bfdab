"""Start runs on Argo: check, install, end superseded runs, submit, follow. Resuming starts a new run that reuses evidence."""

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from steps.contract import run_records
from steps.contract.exit import ExitCode
from steps.contract.runs.revision import SpecSource
from steps.errors import StepError, Temporary
from workflows.app import kubeconfigs, name_checks
from workflows.app.run_options import Pipeline, StartOptions, Wish
from workflows.app.runs import argo_runs, argo_watch, local_start, superseded_builds
from workflows.app.runs.screen import Screen
from workflows.app.specs import manifests, revisions, sources
from workflows.engines import approval_announcer, run_inputs, run_secrets
from workflows.engines.argo import installer, prerequisites, run_memory, submission
from workflows.engines.argo.home import Home, NoWorkflow
from workflows.engines.argo.workflow_objects import CLUSTER, PIPELINE, SUBMISSION, OwnerReference, UnreadableStatus, Workflow
from workflows.engines.folders import StateFolder, new_run_name
from workflows.plan import show
from workflows.plan.model import Plan
from workflows.render import names, titles
from workflows.render.bundle import Build, Object
from workflows.render.steps import Settings


class GoesOn(Exception):
    """Error for a submitted run that this command cannot follow.

    Its exit code is never 75, because a retry would start a second run.
    """

    def __init__(self, run: str, how: str, problem: StepError | OSError) -> None:
        super().__init__(f"run {run} goes on, but this command cannot follow it: {problem}")
        self.hint = f"follow it: {how}"
        code = problem.exit_code if isinstance(problem, StepError) else ExitCode.GATE_FAILED
        self.exit_code = ExitCode.GATE_FAILED if code == ExitCode.TEMPORARY else code


Begun = Callable[[str, str], object]
"""Callback that gets a run's name and the command that follows it, once the run is or may have been submitted."""


@dataclass(frozen=True, kw_only=True)
class StartInput:
    """The input of a start: the loaded spec, its plan and render function, the folder of its files, and its Git source."""

    loaded: Any
    plan: Plan
    build: Build
    folder: Path
    source: SpecSource | None


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """A run that is installed in the home cluster but not yet submitted: its Workflow, Argo's version, and its size in words."""

    home: Home
    manifest: Object
    version: str
    sizes: str


def run(screen: Screen, spec: str, at: StartOptions, wish: Wish, pipeline: Pipeline, begun: Begun) -> tuple[str, int]:
    """Install, submit and follow a run; return its name and exit code. All checks come before anything is installed."""
    path, loaded = pipeline.read(spec)
    home = kubeconfigs.home(at.home_kubeconfig, at.home_context, at.namespace)
    plan = pipeline.plan(path, loaded, wish)
    settings = manifests.installation(home.namespace, at.image, os.environ, at.builder or plan.builder)
    source = revisions.of(Path(spec)) if Path(spec).is_file() else None
    start = StartInput(
        loaded=loaded, plan=plan, build=manifests.PIPELINES[pipeline.kind], folder=sources.beside(spec), source=source
    )
    ready = prepared(screen, home, start, settings, at.version, wish.reuse)
    # last of all: a run that cannot start must not end others
    if wish.supersede:
        superseded_builds.end_on_argo(screen, home, plan.name, ready.manifest["metadata"]["labels"][PIPELINE])
    summary = f"{ready.sizes}, Argo Workflows {ready.version}, namespace {home.namespace}"
    memory = run_memory.RunMemory(where=home.where, version=at.version, telling=approval_announcer.announce_commands(loaded))
    return submitted(screen, home, ready.manifest, summary, memory, argo_watch.watch if at.wait else _left, begun)


def prepared(
    screen: Screen,
    home: Home,
    start: StartInput,
    settings: Settings,
    vouched: str,
    reuse: str = "none",
    *,
    settled: bool = False,
    owner: OwnerReference | None = None,
) -> PreparedRun:
    """Check a run as far as possible, install its objects in the home cluster, and return it ready to be submitted.

    `vouched` is the version of Argo that a person vouches for; `settled` and `owner` are those of `installer.install`.
    """
    plan = start.plan
    _check_reuse(screen, home, plan, reuse)
    run_inputs.require_target(plan)
    bundle = manifests.rendered(plan, start.build, settings)
    version = _version(home, vouched, plan, start.folder)
    submission.check(plan, bundle)
    doubts = prerequisites.check_prerequisites(home, bundle)
    prerequisites.check_namespaces(start.loaded, home)
    secret = prerequisites.collect_secrets(home, plan, start.folder, os.environ)
    installer.install(home, plan, bundle, secret, settled=settled, owner=owner)
    screen.lines([*show.warnings(plan), *(f"warning: {doubt}" for doubt in doubts)])
    manifest = submission.workflow(
        new_run_name(plan.name, bundle.template["metadata"]["labels"][PIPELINE]), plan, bundle, reuse, start.source, owner
    )
    return PreparedRun(home=home, manifest=manifest, version=version, sizes=f"{show.size_text(plan)}, plan {plan.digest[:19]}")


def leave(screen: Screen, ready: PreparedRun) -> int:
    """Submit a prepared run without following it; return the exit code. Raises GoesOn."""
    memory = run_memory.RunMemory(where=ready.home.where)
    return submitted(screen, ready.home, ready.manifest, f"{ready.sizes}, namespace {ready.home.namespace}", memory, _left)[1]


def _check_reuse(screen: Screen, home: Home, plan: Plan, earlier: str) -> None:
    """Raise NotReusable if the Workflow of the run to reuse is about another cluster. Raises NotAName.

    A missing Workflow is only noted, because the new run's task `open` checks the earlier run's store.
    """
    if earlier == "none":
        return
    name_checks.require(earlier)
    try:
        cluster = home.workflow(earlier).metadata.labels.get(CLUSTER, plan.name)
    except NoWorkflow:
        screen.lines([f"no Workflow {earlier} in namespace {home.namespace} (any more): the run itself looks for what it proved"])
        return
    if cluster != plan.name:
        raise local_start.NotReusable(f"run {earlier} was about cluster {cluster}, this one is about {plan.name}")


def _version(home: Home, vouched: str, plan: Plan, folder: Path) -> str:
    """Return Argo's version.

    If the cluster does not answer, missing secrets are raised first, because a retry would not mend those.
    """
    try:
        return prerequisites.check_argo_version(home, vouched)
    except Temporary:
        run_secrets.read_secrets([file for file in plan.secrets if not file.secret], folder, os.environ)
        raise


def submitted(
    screen: Screen,
    home: Home,
    manifest: Mapping[str, Any],
    summary: str,
    memory: run_memory.RunMemory,
    follow: Callable[[Screen, argo_runs.ArgoRun], int],
    begun: Begun = lambda _run, _how: None,
) -> tuple[str, int]:
    """Submit a run, print its name, record where it is, and call `follow`; return name and exit code. Raises GoesOn.

    After the submission nothing ends as temporary, because a retry by CI would start a second run.
    """
    name: str = manifest["metadata"]["name"]
    how = f"bringup watch {name} {home.where.options}"
    try:
        submission.submit(home, dict(manifest))
    except submission.Unsure:
        # the API server may have accepted the run, so its name must be known before the error
        begun(name, how)
        raise
    try:
        screen.lines([f"run {name}: {summary}"])
        begun(name, how)
        folder = StateFolder.of_environment().run(name)
        run_memory.write(folder, memory)
        code = follow(screen, argo_watch.patiently(lambda: argo_runs.known(home, folder)))
    except BrokenPipeError:
        raise  # the reader of the output is gone, which says nothing about the run
    except (StepError, OSError) as problem:
        raise GoesOn(name, how, problem) from problem
    return name, ExitCode.GATE_FAILED if code == ExitCode.TEMPORARY else code


def _left(screen: Screen, away: argo_runs.ArgoRun) -> int:
    memory = run_memory.read(away.folder)
    unheard = "; what a command announces is not announced until it is followed" if memory and memory.telling else ""
    screen.lines([f"submitted; follow it with: bringup watch {away.name}{unheard}"])
    return ExitCode.OK


def resume(screen: Screen, away: argo_runs.ArgoRun, version: str = "") -> int:
    """Start a new Workflow that reuses an ended run's evidence, or follow a run that has not ended; return the exit code.

    `version` is the version of Argo that a person vouches for now; if empty, the one vouched for when the earlier run was started.
    """
    before = away.workflow()
    if not before.finished:
        screen.lines([f"run {away.name} has not ended; following it"])
        return argo_watch.watch(screen, away)
    # without its template Argo would accept the new run, and end it with an error
    away.home.made_from(before)
    known = {**away.home.template(before.template)["metadata"]["labels"], **before.metadata.labels}
    kept = ("bringup/plan", "bringup/owner", "bringup/revision", titles.TITLE, titles.DESCRIPTION)
    annotations = {key: value for key, value in before.metadata.annotations.items() if key in kept}
    meta: Object = {
        "name": new_run_name(known.get(CLUSTER, "run"), known.get(PIPELINE, "")),
        "namespace": away.home.namespace,
        "labels": {key: value for key, value in known.items() if key.startswith("bringup/")},
        "annotations": {**annotations, SUBMISSION: secrets.token_hex(8)},
        # the ConfigMaps and Secrets that it needs are deleted together with these owners
        "ownerReferences": msgspec.to_builtins(before.metadata.owner_references),
    }
    has_begun = _began(before)
    arguments = submission.arguments(away.name if has_begun else before.argument("reuse"), before.argument("source"))
    spec = {"workflowTemplateRef": {"name": before.template}, "arguments": {"parameters": arguments}}
    manifest = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": msgspec.to_builtins(spec)}
    earlier = run_memory.read(away.folder) or run_memory.RunMemory(where=away.home.where)
    memory = msgspec.structs.replace(earlier, where=away.home.where, version=version or earlier.version)
    prerequisites.check_argo_version(away.home, memory.version)
    sentence = local_start.continues(away.name, proved=has_begun)
    return submitted(screen, away.home, manifest, sentence, memory, argo_watch.watch)[1]


def _began(run: Workflow) -> bool:
    """Return True if the first task of the run passed; otherwise no stage began, and the store may not know the run.

    A run whose nodes cannot be read counts as begun, because the new run checks for itself.
    """
    first = names.template(run_records.STAGE, run_records.OPEN)
    try:
        return any(node.template_name == first and node.phase == "Succeeded" for node in run.nodes().values())
    except UnreadableStatus:
        return True
