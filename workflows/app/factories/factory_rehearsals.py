"""A rehearsal of a factory: its whole pipeline against a simulated cluster on this machine."""

from workflows.app.factories.factory_pipeline import FACTORY
from workflows.app.run_options import LOCAL, RehearsalRequest, UsageError, Wish
from workflows.app.runs import local_start
from workflows.app.runs.screen import Screen
from workflows.app.specs import manifests, revisions
from workflows.engines.folders import StateFolder, new_run_name
from workflows.rehearsal import loopback, rehearsal_run


def rehearse(screen: Screen, request: RehearsalRequest) -> int:
    """Rehearse a factory up to the stage that the request names, follow it, and return its exit code. Raises UsageError."""
    _refuse_options(request)
    path, spec = FACTORY.read(request.spec)
    plan = FACTORY.plan(path, spec, Wish(until=request.until))
    bundle = manifests.rendered(plan, manifests.PIPELINES[FACTORY.kind])
    options = rehearsal_run.RehearsalOptions(
        faults=tuple(request.fault or ()), seed=request.seed, restart_command=request.restart_command()
    )
    loopback.require_loopback()
    options.check(spec, plan)  # refuse options before a run exists
    folder = StateFolder.of_environment().run(new_run_name(plan.name))
    revisions.keep(folder, request.spec)
    with local_start.new_view(screen, folder, plan) as view:
        result = rehearsal_run.rehearse(folder, plan, bundle, options, [view.observe])
    return local_start.conclude(screen, folder, result)


def _refuse_options(request: RehearsalRequest) -> None:
    """Raise UsageError for options of rehearsals that are for clusters alone."""
    given_options = {
        "--only": request.only,
        "--operation": request.operation,
        "--kubeconfig": request.kubeconfig,
        "--roles-off": request.roles_off,
        "--hold": request.hold,
        "--engine": request.engine if request.engine != LOCAL else "",
    }
    if refused := ", ".join(name for name, value in given_options.items() if value):
        raise UsageError(f"{request.spec} is the spec of a factory, whose rehearsal has no {refused}")
