"""The start of a run: on the embedded engine of this machine, or on Argo in a home cluster."""

from workflows.app.run_options import LOCAL, Pipeline, StartOptions, Wish
from workflows.app.runs import argo_start, local_start, run_reports
from workflows.app.runs.screen import Screen
from workflows.app.specs.cluster_pipeline import BRINGUP
from workflows.engines.folders import StateFolder


def start(screen: Screen, spec: str, options: StartOptions, wish: Wish, pipeline: Pipeline = BRINGUP) -> int:
    """Run a spec on the engine of the options, follow the run, write its JUnit report if asked for, and return the exit code."""
    unfinished = run_reports.Unfinished(screen, options.junit)
    with unfinished.explained(spec):
        if options.engine == LOCAL:
            name, code = local_start.start(screen, spec, wish, pipeline, unfinished.begun_here)
        else:
            name, code = argo_start.run(screen, spec, options, wish, pipeline, unfinished.begun)
            if not options.wait:
                return code or unfinished.code
    code = pipeline.ended(name, code)
    return (
        code if options.junit is None else run_reports.keep_junit(screen, StateFolder.of_environment(), name, options.junit, code)
    )
