"""Starts runs on Argo: check, install, end what is superseded, submit, then follow; resuming is a new run that reuses an earlier
one's evidence."""

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from steps.contract import run as contract
from steps.contract.exit import ExitCode
from steps.contract.revision import Source
from steps.errors import StepError, Temporary
from workflows.cli import kubeconfigs, naming, output
from workflows.cli.argo import acting
from workflows.cli.images import superseding
from workflows.cli.runs import running
from workflows.cli.runs.starting import Place
from workflows.cli.specs import compiling, revisions, sources
from workflows.cli.specs.pipelines import Pipeline, Wish
from workflows.engines import announce, inputs
from workflows.engines.argo import install, installation, place, remembered, secret_files, size, submit
from workflows.engines.argo.home import Home, NoWorkflow
from workflows.engines.argo.objects import CLUSTER, PIPELINE, SUBMISSION, Owner, Unreadable, Workflow
from workflows.engines.folders import Home as Runs
from workflows.engines.folders import new_run_name
from workflows.plan import show
from workflows.plan.model import Plan
from workflows.render import names
from workflows.render.bundle import Build, Object
from workflows.render.steps import Settings


class GoesOn(Exception):
    """A run was submitted, but this command cannot follow it. Never temporary: to try again would start a second run."""

    def __init__(self, run: str, how: str, problem: StepError | OSError) -> None:
        super().__init__(f"run {run} goes on, but this command cannot follow it: {problem}")
        self.hint = f"follow it: {how}"
        code = problem.exit_code if isinstance(problem, StepError) else ExitCode.GATE_FAILED
        self.exit_code = ExitCode.GATE_FAILED if code == ExitCode.TEMPORARY else code


Begun = Callable[[str, str], object]
"""Told the name of a run, and what follows it, as soon as it is submitted or may have been."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is to run: a spec as it was loaded, its plan, what renders that; the folder of its files, and where it came from."""

    loaded: Any
    plan: Plan
    build: Build
    folder: Path
    source: Source | None


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A run of which everything is installed: what it is submitted as, which version of Argo runs it, and its size in words."""

    home: Home
    manifest: Object
    version: str
    sizes: str


def run(spec: str, at: Place, wish: Wish, pipeline: Pipeline, begun: Begun) -> tuple[str, int]:
    """Install, submit and follow; the run's name and its exit code. Raises before anything is written where it could not run."""
    path, loaded = pipeline.read(spec)
    home = kubeconfigs.home(at.kubeconfig, at.context, at.namespace)
    settings = compiling.installation(home.namespace, at.image, os.environ, at.builder)
    plan = pipeline.plan(path, loaded, wish)
    source = revisions.of(Path(spec)) if Path(spec).is_file() else None
    asked = Asked(loaded=loaded, plan=plan, build=pipeline.build, folder=sources.beside(spec), source=source)
    ready = prepared(home, asked, settings, at.version, wish.reuse)
    if wish.supersede:
        superseding.on_argo(home, plan.name, ready.manifest["metadata"]["labels"][PIPELINE])
    said = f"{ready.sizes}, Argo Workflows {ready.version}, namespace {home.namespace}"
    memory = remembered.Memory(where=home.where, version=at.version, telling=announce.tellings(loaded))
    return _submitted(home, ready.manifest, said, memory, acting.watch if at.wait else _left, begun)


def prepared(
    home: Home,
    asked: Asked,
    settings: Settings,
    vouched: str,
    reuse: str = "none",
    *,
    settled: bool = False,
    owner: Owner | None = None,
) -> Ready:
    """Check all that can be checked, and install; `settled` and `owner` are those of `install`."""
    plan = asked.plan
    _check_reuse(home, plan, reuse)
    inputs.require_target(plan)
    bundle = compiling.rendered(plan, asked.build, settings)
    version = _version(home, vouched, plan, asked.folder)
    size.check(plan, bundle)
    doubts = place.check(home, bundle)
    secret_files.check_namespaces(asked.loaded, home)
    secret = secret_files.gathered(home, plan, asked.folder, os.environ)
    install.install(home, plan, bundle, secret, settled=settled, owner=owner)
    output.lines([*show.warnings(plan), *(f"warning: {one}" for one in doubts)])
    manifest = submit.workflow(new_run_name(plan.name), plan, bundle, reuse, asked.source, owner)
    return Ready(home=home, manifest=manifest, version=version, sizes=f"{show.size(plan)}, plan {plan.digest[:19]}")


def leave(ready: Ready) -> int:
    """Submit a run that nobody waits for. Raises GoesOn."""
    memory = remembered.Memory(where=ready.home.where)
    return _submitted(ready.home, ready.manifest, f"{ready.sizes}, namespace {ready.home.namespace}", memory, _left)[1]


def _check_reuse(home: Home, plan: Plan, earlier: str) -> None:
    """What can be told of it without its store, which `open` reads. Raises NotAName, running.NotReusable."""
    if earlier == "none":
        return
    naming.require(earlier)
    try:
        cluster = home.workflow(earlier).metadata.labels.get(CLUSTER, plan.name)
    except NoWorkflow:
        output.lines([f"no Workflow {earlier} in namespace {home.namespace} (any more): the run itself looks for what it proved"])
        return
    if cluster != plan.name:
        raise running.NotReusable(f"run {earlier} was about cluster {cluster}, this one is about {plan.name}")


def _version(home: Home, vouched: str, plan: Plan, folder: Path) -> str:
    """Argo's version. A cluster that is away does not hide that a secret is missing here, which trying again would not mend."""
    try:
        return installation.check(home, vouched)
    except Temporary:
        inputs.gathered([file for file in plan.secrets if not file.secret], folder, os.environ)
        raise


def _submitted(
    home: Home,
    manifest: Mapping[str, Any],
    said: str,
    memory: remembered.Memory,
    follow: Callable[[acting.Away], int],
    begun: Begun = lambda _run, _how: None,
) -> tuple[str, int]:
    """Submit, say its name before anything else can go wrong, remember, follow; its name and exit code. Raises GoesOn.

    From the submission on nothing ends as temporary: what CI tries again would be a second run.
    """
    name: str = manifest["metadata"]["name"]
    how = f"bringup watch {name} {home.where.options}"
    try:
        submit.submit(home, dict(manifest))
    except submit.Unsure:
        begun(name, how)
        raise
    try:
        output.lines([f"run {name}: {said}"])
        begun(name, how)
        folder = Runs.of_environment().run(name)
        remembered.write(folder, memory)
        code = follow(acting.patiently(lambda: acting.known(home, folder)))
    except BrokenPipeError:
        raise  # nobody reads what is said any more, which is no trouble of the run
    except (StepError, OSError) as problem:
        raise GoesOn(name, how, problem) from problem
    return name, ExitCode.GATE_FAILED if code == ExitCode.TEMPORARY else code


def _left(away: acting.Away) -> int:
    """Of a run that is not waited for."""
    memory = remembered.read(away.folder)
    unheard = "; what a command announces is not announced until it is followed" if memory and memory.telling else ""
    output.lines([f"submitted; follow it with: bringup watch {away.name}{unheard}"])
    return ExitCode.OK


def resume(away: acting.Away, version: str = "") -> int:
    """A new Workflow of the same template that reuses what the earlier one proved. A run that goes on is only followed.

    `version` is what a person vouches for now, else what was vouched for when the earlier run was started here.
    """
    before = away.workflow()
    if not before.finished:
        output.lines([f"run {away.name} has not ended; following it"])
        return acting.watch(away)
    away.home.made_from(before)  # Argo would take the new run, and end it because there is nothing to make it from
    known = {**away.home.template(before.template)["metadata"]["labels"], **before.metadata.labels}
    meta: Object = {
        "name": new_run_name(known.get(CLUSTER, "run")),
        "namespace": away.home.namespace,
        "labels": {key: value for key, value in known.items() if key.startswith("bringup/")},
        "annotations": {**_ours(before.metadata.annotations), SUBMISSION: secrets.token_hex(8)},
        "ownerReferences": msgspec.to_builtins(before.metadata.owner_references),  # what it needs of home ends with those
    }
    began = _began(before)
    told = submit.arguments(away.name if began else before.argument("reuse"), before.argument("source"))
    spec = {"workflowTemplateRef": {"name": before.template}, "arguments": {"parameters": told}}
    manifest = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": msgspec.to_builtins(spec)}
    earlier = remembered.read(away.folder) or remembered.Memory(where=away.home.where)
    memory = msgspec.structs.replace(earlier, where=away.home.where, version=version or earlier.version)
    installation.check(away.home, memory.version)
    said = running.continues(away.name, proved=began)
    return _submitted(away.home, manifest, said, memory, acting.watch)[1]


def _began(run: Workflow) -> bool:
    """Whether its first task ended well; without that no stage began, and the store need not know the run. A run whose nodes
    cannot be read is taken for one that began: the new run looks for itself."""
    first = names.template(contract.STAGE, contract.OPEN)
    try:
        return any(node.template_name == first and node.phase == "Succeeded" for node in run.nodes().values())
    except Unreadable:
        return True


def _ours(annotations: Mapping[str, str]) -> dict[str, str]:
    kept = ("bringup/plan", "bringup/owner", "bringup/revision")
    return {key: value for key, value in annotations.items() if key in kept}
