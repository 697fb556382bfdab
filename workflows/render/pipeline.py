"""The frame of every pipeline: open, then stages one after another with their approvals, then report and seal on exit."""

from collections.abc import Iterable
from dataclasses import replace

from hera.workflows import DAG, Parameter, Task, WorkflowTemplate
from hera.workflows import models as m

from steps.contract import approval
from workflows.plan.model import Plan
from workflows.render import dags, names, steps
from workflows.render.grammar.field_rules import ARGOS_CONTAINERS
from workflows.render.secret_volumes import SecretVolumes
from workflows.stages.stage import Stage

FINISH = "finish"


def pipeline(kind: str, plan: Plan, stages: Iterable[Stage], settings: steps.Settings) -> WorkflowTemplate:
    """Return the WorkflowTemplate of one pipeline over the given stages. A mutex admits one run at a time for each cluster."""
    ordered, secrets, settings = tuple(stages), SecretVolumes(plan), replace(settings, proxies=plan.proxies)
    labels = {"bringup/pipeline": kind, "bringup/cluster": plan.name}
    notes = {"bringup/plan": plan.digest, "bringup/owner": plan.owner, "bringup/revision": plan.revision}
    template = WorkflowTemplate(
        name=f"{kind}-{names.short(plan.inputs)}",
        namespace=settings.namespace,
        labels=labels,
        annotations=notes,
        workflow_metadata=m.WorkflowMetadata(labels=labels, annotations=notes),  # for runs that `argo submit --from` creates
        entrypoint=kind,
        on_exit=FINISH,
        arguments=[Parameter(name="reuse", value="none"), Parameter(name="source", value="none")],
        service_account_name=steps.account("open"),
        automount_service_account_token=False,
        executor=m.ExecutorConfig(service_account_name=steps.EXECUTOR),
        synchronization=m.Synchronization(mutexes=[m.Mutex(name=f"target-{plan.name}")]),
        pod_gc=m.PodGC(strategy="OnPodSuccess", delete_delay_duration=steps.LOG_READABLE),
        security_context=steps.pod_security(),
        pod_spec_patch=ARGOS_CONTAINERS,
        image_pull_secrets=[m.LocalObjectReference(name=settings.pull_secret)] if settings.pull_secret else None,
        affinity=steps.placement(),
        volumes=steps.volumes(plan.inputs, settings, secrets),
    )
    with template:  # Hera adds every template that is created in this context
        steps.container(plan.open_task, settings, secrets)
        for stage in ordered:
            if stage.approval is not None:
                dags.approve(stage)
                if stage.id in plan.announce_tasks:
                    steps.container(plan.announce_tasks[stage.id], settings, secrets)
                steps.container(plan.confirm_tasks[stage.id], settings, secrets, inputs=tuple(approval.PARAMETERS))
            dags.stage(stage, settings, secrets)
        _finish(plan, settings, secrets)
        _main(kind, plan, ordered)
    return template


def _main(kind: str, plan: Plan, stages: tuple[Stage, ...]) -> None:
    shards = [Parameter(name=name, value=f"{{{{tasks.open.outputs.parameters.{name}}}}}") for name in dags.SHARD_LISTS]
    with DAG(name=kind):
        Task(name="open", template=names.template("run", "open"))
        ready, when = "open.Succeeded", None
        for stage in stages:
            name = names.dashed(stage.id)
            if stage.approval is not None:
                ready = _approval(name, ready, announced=stage.id in plan.announce_tasks)
            Task(name=name, template=name, depends=ready, when=when, arguments=shards)
            # only the stage after one with a shortcut has a condition: Argo omits the later stages with it
            ready, when = f"{name}.Succeeded", dags.proceeds(stage.shortcut) if stage.shortcut else None


def _approval(stage: str, ready: str, *, announced: bool) -> str:
    """Add the wait for a person before a stage and the check of the answer; return the condition under which the stage starts.

    The announcement runs beside the wait, and its success plays no part. The stage comes after both, because a DAG task without a
    successor decides how the whole run ends.
    """
    approve, confirm = f"{approval.NODE_PREFIX}{stage}", f"{approval.CONFIRM}-{stage}"
    answer = [Parameter(name=name, value=f"{{{{tasks.{approve}.outputs.parameters.{name}}}}}") for name in approval.PARAMETERS]
    Task(name=approve, template=approve, depends=ready)
    announce = f"{approval.ANNOUNCE}-{stage}"
    if announced:
        Task(name=announce, template=names.template(stage, approval.ANNOUNCE), depends=ready)
    Task(name=confirm, template=names.template(stage, approval.CONFIRM), depends=f"{approve}.Succeeded", arguments=answer)
    return f"{confirm}.Succeeded && {dags.ended(announce)}" if announced else f"{confirm}.Succeeded"


def _finish(plan: Plan, settings: steps.Settings, secrets: SecretVolumes) -> None:
    """Add the exit handler: report, then seal, however the run went. Argo does not run it after `terminate`, so both are best
    effort.
    """
    report, seal = plan.end_tasks
    steps.container(report, settings, secrets, inputs=("status",))
    steps.container(seal, settings, secrets, inputs=("status",))
    status = [Parameter(name="status", value="{{workflow.status}}")]
    # seal must run even if report failed
    with DAG(name=FINISH, fail_fast=False):
        Task(name="report", template=names.template("run", "report"), arguments=status)
        ended = "report.Succeeded || report.Failed || report.Errored"
        Task(name="seal", template=names.template("run", "seal"), depends=ended, arguments=status)
