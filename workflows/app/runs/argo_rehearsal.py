"""A rehearsal in the user's own Argo: the simulated cluster is a pod of home, and approvals are answered as on hardware."""

import os

from steps.contract.runs import approval
from workflows.app import kubeconfigs
from workflows.app.run_options import RehearsalRequest, UsageError
from workflows.app.runs import argo_runs, argo_start, argo_watch
from workflows.app.runs.screen import Screen
from workflows.app.specs import manifests, sources
from workflows.app.specs.cluster_pipeline import BRINGUP
from workflows.engines import approval_announcer
from workflows.engines.argo import installer, prerequisites, run_memory, submission
from workflows.engines.folders import new_run_name
from workflows.plan import show
from workflows.rehearsal import home_rehearsal
from workflows.rehearsal.rehearsal_run import RehearsalOptions


def require_options(request: RehearsalRequest) -> None:
    """Raise UsageError for options that a rehearsal on Argo does not have, or that it alone has."""
    here = {
        "--kubeconfig": request.kubeconfig,
        "--roles-off": request.roles_off,
        "--speed": request.speed,
        "--nodes-at": request.nodes_at,
        "--only": request.only,
        "--operation": request.operation,
        "--hosts": request.hosts,
        "--from": request.older,
        "--approve-as": request.approve_as if request.approve_as != approval.REHEARSAL else "",
        "--key": request.key,
    }
    if listed := ", ".join(name for name, value in here.items() if value):
        raise UsageError(
            f"a rehearsal on Argo takes no {listed}: it plays the whole pipeline, and people approve with `bringup approve`"
        )


def rehearse(screen: Screen, request: RehearsalRequest) -> int:
    """Rehearse a spec on the Argo of the home cluster, follow it, and return its exit code.

    All checks come before anything is created. The simulating pod is deleted at the end of the run. If this command ends before
    that, the run goes on, and the pod is deleted with its Workflow.
    """
    require_options(request)
    loaded = sources.read(request.spec)[1]
    plan = BRINGUP.plan_of(request.spec, (), request.until)
    options = RehearsalOptions(faults=tuple(request.fault or ()), seed=request.seed)
    options.check(loaded, plan)
    home = kubeconfigs.home(request.home_kubeconfig, request.home_context, request.namespace)
    settings = manifests.installation(home.namespace, request.image, os.environ, request.builder)
    version = prerequisites.check_argo_version(home, request.version)
    run = new_run_name(plan.name, home_rehearsal.REHEARSAL)
    rehearsal = home_rehearsal.new_rehearsal(run, home.namespace)
    bundle = home_rehearsal.rehearsed(manifests.rendered(plan, manifests.PIPELINES[BRINGUP.kind], settings), plan, rehearsal)
    manifests.require_clean(bundle)
    submission.check(plan, bundle)
    doubts = prerequisites.check_prerequisites(home, bundle)
    screen.lines([*show.warnings(plan), *(f"warning: {doubt}" for doubt in doubts)])
    created = home_rehearsal.objects(plan, rehearsal, settings, options.arguments())
    memory = run_memory.RunMemory(where=home.where, version=version, telling=approval_announcer.announce_commands(loaded))
    summary = f"rehearsal of {show.size_text(plan)}, Argo Workflows {version}, namespace {home.namespace}"
    screen.lines([f"simulating the cluster in pod {rehearsal.name} of namespace {home.namespace}"])
    with home_rehearsal.simulated_in_home(home, created) as pod:
        installer.install(home, plan, bundle, {})
        manifest = submission.workflow(run, plan, bundle)

        def follow(screen: Screen, away: argo_runs.ArgoRun) -> int:
            home_rehearsal.give_to(home, away.workflow(), [*created, bundle.template])
            pod.is_needed = True
            code = argo_watch.watch(screen, away)
            pod.is_needed = False
            return code

        return argo_start.submitted(screen, home, manifest, summary, memory, follow)[1]
