"""A rehearsal: the whole pipeline, or an operation, against a simulated cluster on this machine."""

from steps.contract.runs.operation import OperationKind
from workflows.app import kubeconfigs
from workflows.app.factories import factory_rehearsals
from workflows.app.run_options import ARGO, RehearsalRequest
from workflows.app.runs import local_start
from workflows.app.runs.screen import Screen
from workflows.app.specs import operations, revisions, sources
from workflows.engines.folders import StateFolder, new_run_name
from workflows.rehearsal import approver, earlier_stages, loopback, rehearsal_run, starting_cluster
from workflows.rehearsal.existing_server import existing_server

_KEEPS_STATE = "keeps what was simulated: no other rehearsal can use it until its etcd is empty again"


def rehearse(screen: Screen, request: RehearsalRequest) -> int:
    """Run the rehearsal that a command line describes, follow it, and return its exit code."""
    if sources.is_factory(request.spec):
        return factory_rehearsals.rehearse(screen, request)
    if request.engine == ARGO:
        from workflows.app.runs import argo_rehearsal  # imports the client of the home cluster

        return argo_rehearsal.rehearse(screen, request)
    existing = existing_server(request.kubeconfig, request.roles_off, request.speed, request.nodes_at)
    work = operations.named(request.operation, request.hosts or (), request.older)
    options = rehearsal_run.RehearsalOptions(
        faults=tuple(request.fault or ()),
        seed=request.seed,
        existing=existing,
        bare=starting_cluster.replaced_hosts(work),
        restart_command=request.restart_command(),
    )
    loaded = sources.read(request.spec)[1]
    work = operations.scoped(loaded, work)
    plan, bundle = local_start.prepare(loaded, operations.only(work, request.only or (), request.until), request.until, work)
    approver.check_approver(plan, request.approve_as, request.key)
    if work.kind is OperationKind.BRINGUP:
        before = earlier_stages.plan_of_earlier_stages(loaded, plan)
    else:
        before = starting_cluster.starting_plan(loaded, plan, work, request.older)
    loopback.require_loopback()
    if request.kubeconfig is not None:
        kubeconfigs.require(request.kubeconfig, "--kubeconfig")
    options.check(loaded, plan)  # refuse options before a run exists
    screen.lines(
        [f"brought up first, healthy and without output: {', '.join(stage.id for stage in before.stages)}"] if before else []
    )
    folder = StateFolder.of_environment().run(new_run_name(plan.name))
    revisions.keep(folder, request.spec)
    with local_start.new_view(screen, folder, plan) as view:
        approving = [] if request.hold else [approver.approving_observer(folder, request.approve_as, request.key)]
        result = rehearsal_run.rehearse(folder, plan, bundle, options, [view.observe, *approving], before)
    code = local_start.conclude(screen, folder, result)
    if request.kubeconfig is not None:
        screen.lines([f"cluster  {request.kubeconfig} {_KEEPS_STATE}"])
    return code
