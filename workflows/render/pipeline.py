"""The frame of every pipeline: open, then stages one after another with their approvals, then report and seal on exit."""

from collections.abc import Iterable

from hera.workflows import DAG, Parameter, Task, WorkflowTemplate
from hera.workflows import models as m

from steps.contract import approval
from workflows.plan.model import Plan
from workflows.render import dags, names, steps
from workflows.stages.stage import Stage

FINISH = "finish"


def pipeline(kind: str, plan: Plan, stages: Iterable[Stage], settings: steps.Settings) -> WorkflowTemplate:
    """The WorkflowTemplate of one pipeline over the stages it names. One run at a time for each cluster (mutex)."""
    ordered = tuple(stages)
    template = WorkflowTemplate(
        name=f"{kind}-{names.short(plan.digest)}",
        namespace=settings.namespace,
        labels={"bringup/pipeline": kind, "bringup/cluster": plan.name},
        annotations={"bringup/plan": plan.digest, "bringup/owner": plan.owner, "bringup/revision": plan.revision},
        entrypoint=kind,
        on_exit=FINISH,
        arguments=[Parameter(name="reuse", value="none"), Parameter(name="source", value="none")],
        service_account_name=steps.account("open"),
        automount_service_account_token=False,
        executor=m.ExecutorConfig(service_account_name=steps.EXECUTOR),
        synchronization=m.Synchronization(mutexes=[m.Mutex(name=f"target-{plan.name}")]),
        pod_gc=m.PodGC(strategy="OnPodSuccess", delete_delay_duration=steps.LOG_READABLE),
        security_context=steps.pod_security(),
        affinity=steps.placement(),
        volumes=steps.volumes(plan.digest, settings, _secrets(plan)),
    )
    with template:  # Hera adds every template that is made in here
        steps.container(plan.open_task, settings)
        for stage in ordered:
            if stage.approval is not None:
                dags.approve(stage)
                if stage.id in plan.announce_tasks:
                    steps.container(plan.announce_tasks[stage.id], settings)
                steps.container(plan.confirm_tasks[stage.id], settings, inputs=tuple(approval.PARAMETERS))
            dags.stage(stage, settings)
        _finish(plan, settings)
        _main(kind, plan, ordered)
    return template


def _main(kind: str, plan: Plan, stages: tuple[Stage, ...]) -> None:
    shards = [Parameter(name=name, value=f"{{{{tasks.open.outputs.parameters.{name}}}}}") for name in dags.SHARD_LISTS]
    with DAG(name=kind):
        Task(name="open", template=names.template("run", "open"))
        ready = "open.Succeeded"
        for stage in stages:
            name = names.dashed(stage.id)
            if stage.approval is not None:
                ready = _approval(name, ready, announced=stage.id in plan.announce_tasks)
            Task(name=name, template=name, depends=ready, arguments=shards)
            ready = f"{name}.Succeeded"


def _approval(stage: str, ready: str, *, announced: bool) -> str:
    """The wait for a person before a stage, and the check of the answer; the condition under which the stage starts.

    It is announced beside the wait. The stage comes after both, because a task that nothing comes after decides how the whole run
    ends; whether the announcement succeeded plays no part.
    """
    approve, confirm = f"{approval.NODE_PREFIX}{stage}", f"{approval.CONFIRM}-{stage}"
    answer = [Parameter(name=name, value=f"{{{{tasks.{approve}.outputs.parameters.{name}}}}}") for name in approval.PARAMETERS]
    Task(name=approve, template=approve, depends=ready)
    announce = f"{approval.ANNOUNCE}-{stage}"
    if announced:
        Task(name=announce, template=names.template(stage, approval.ANNOUNCE), depends=ready)
    Task(name=confirm, template=names.template(stage, approval.CONFIRM), depends=f"{approve}.Succeeded", arguments=answer)
    return f"{confirm}.Succeeded && {dags.ended(announce)}" if announced else f"{confirm}.Succeeded"


def _finish(plan: Plan, settings: steps.Settings) -> None:
    """The exit handler: report, then seal, whatever happened; both are best effort there (hera_argo §2.5)."""
    report, seal = plan.end_tasks
    steps.container(report, settings, inputs=("status",))
    steps.container(seal, settings, inputs=("status",))
    status = [Parameter(name="status", value="{{workflow.status}}")]
    with DAG(name=FINISH, fail_fast=False):
        Task(name="report", template=names.template("run", "report"), arguments=status)
        ended = "report.Succeeded || report.Failed || report.Errored"
        Task(name="seal", template=names.template("run", "seal"), depends=ended, arguments=status)


def _secrets(plan: Plan) -> tuple[m.VolumeProjection, ...]:
    """The secret files: keys of Kubernetes Secrets as the spec names them, all others from one Secret made at submit."""
    named: dict[str, list[tuple[str, str]]] = {}
    for file in plan.secrets:
        named.setdefault(file.secret or f"bringup-secrets-{names.short(plan.digest)}", []).append(
            (file.key or file.name, file.name)
        )
    return tuple(
        m.VolumeProjection(
            secret=m.SecretProjection(name=secret, items=[m.KeyToPath(key=key, path=path) for key, path in items], optional=True)
        )
        for secret, items in sorted(named.items())
    )
