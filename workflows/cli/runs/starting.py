"""The start of a run, for every command that has one: on the embedded engine here, or on Argo in a home cluster."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from steps.contract.operation import Kind
from workflows.cli import output
from workflows.cli.argo.options import (
    LOCAL,
    ArgoVersion,
    HomeContext,
    HomeKubeconfig,
    Namespace,
    refuse_for_local,
    require_engine,
)
from workflows.cli.specs.pipelines import BRINGUP, Pipeline, Wish
from workflows.engines.folders import StateFolder, new_run_name


@dataclass(frozen=True, kw_only=True)
class Place:
    """Options of every command that starts a run: the engine, whether to follow the run, and the home cluster."""

    engine: Annotated[str, typer.Option("--engine", help="local, or argo: in the home cluster.")] = LOCAL
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow to the end; only argo can do without.")] = True
    junit: Annotated[Path | None, typer.Option("--junit", help="Write the report for CI servers to this file.")] = None
    kubeconfig: HomeKubeconfig = ""
    context: HomeContext = ""
    namespace: Namespace = ""
    image: Annotated[str, typer.Option("--image", help="The step image, with argo; or BRINGUP_IMAGE.")] = ""
    version: ArgoVersion = ""
    builder = ""
    """The image of pods that build node images; only commands that have such pods have an option for it."""

    def check(self) -> None:
        """Raise BadParameter for options that the engine does not have."""
        require_engine(self.engine)
        if self.engine != LOCAL:
            return
        options = {"--home-kubeconfig": self.kubeconfig, "--home-context": self.context, "--namespace": self.namespace}
        images = {"--image": self.image, "--builder-image": self.builder}
        refuse_for_local({**options, **images, "--argo-version": self.version})
        if not self.wait:
            raise typer.BadParameter("the local engine runs in this command: --no-wait is for --engine argo")


def start(spec: str, place: Place, wish: Wish, pipeline: Pipeline = BRINGUP) -> int:
    """Run a spec, follow the run, and return its exit code."""
    from workflows.cli.argo import running as argo_running
    from workflows.cli.runs import reporting

    unfinished = reporting.Unfinished(place.junit)
    with unfinished.explained(spec):
        if place.engine == LOCAL:
            name, code = _here(spec, wish, pipeline, unfinished.begun_here)
        else:
            name, code = argo_running.run(spec, place, wish, pipeline, unfinished.begun)
            if not place.wait:
                return code or unfinished.code
    code = pipeline.ended(name, code)
    return code if place.junit is None else reporting.keep_junit(StateFolder.of_environment(), name, place.junit, code)


def _here(spec: str, wish: Wish, pipeline: Pipeline, begun: Callable[[str], object]) -> tuple[str, int]:
    from workflows.cli.images import superseding
    from workflows.cli.runs import announcing, running
    from workflows.cli.specs import compiling, revisions, sources
    from workflows.engines import launch, run_inputs

    path, loaded = pipeline.read(spec)
    plan = pipeline.plan(path, loaded, wish)
    bundle = compiling.rendered(plan, pipeline.build)
    home = StateFolder.of_environment()
    running.check_reuse(home, plan, wish.reuse)
    folder = home.run(new_run_name(plan.name))
    if plan.starts and (plan.starts.schedule or plan.starts.events) and wish.operation.kind is Kind.BRINGUP:
        output.lines(["the local engine has no scheduler: schedule and events of this spec act with --engine argo alone"])
    run_inputs.write(folder, plan, bundle, sources.beside(spec), os.environ)
    revisions.keep(folder, spec)
    announcing.keep(folder, loaded)
    if wish.supersede:
        superseding.here(home, bundle)
    begun(folder.name)
    with run_inputs.inputs_removed_if_busy(folder), announcing.announced(folder) as tell, running.shown(plan, folder) as view:
        result = launch.start(folder, {}, tell(view.observe), wish.reuse)
    return folder.name, running.conclude(folder, result)
