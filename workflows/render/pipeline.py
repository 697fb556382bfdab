"""Build the parts of the five pipelines: settings of the WorkflowTemplate, its templates, and the nodes of its DAG."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from hera.workflows import DAG, Container, Parameter, Suspend, Task
from hera.workflows import models as m

from steps.contract import run_records
from steps.contract.runs import approval
from steps.contract.task import Verb
from workflows.plan.model import Plan
from workflows.render import claim_volumes, graph_tasks, names, steps, titles
from workflows.render.bundle import RenderError
from workflows.render.grammar.field_rules import ARGOS_CONTAINERS
from workflows.render.graph_tasks import ended_condition
from workflows.render.secret_volumes import SecretVolumes
from workflows.stages.stage import ApprovalCondition, Stage, Step, When

FINISH = "finish"
"""Name of the template that is the exit handler."""
EVIDENCE = {"evidence": approval.NOBODY}
"""Output of the last task before an approval, and its default: the digest of the evidence that the approver looks at."""
APPROVAL_FORM: dict[str, dict[str, Any]] = {
    "decision": {
        "enum": [approval.HOLD, approval.PASS, approval.REJECT],
        "description": "pass starts the stage, reject ends the run; hold is no answer",
    },
    "approver": {"description": "your name; it becomes evidence"},
    "evidence": {"description": "digest of the evidence that you approve"},
}
"""Fields of each parameter of an approval by which Argo's UI asks for its value."""
SHARD_LISTS = ("shards", "agents")
"""Names of the lists of shard numbers that the task `open` outputs and every stage takes as input."""

Edge = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class PipelineNode:
    """A node of a pipeline's DAG: one task of the run, or a stage together with the approval before it.

    A pipeline module gets nodes from `PipelineTasks` and connects them by `>>`.
    """

    id: str
    first: tuple[Task, ...]
    """Tasks of this node that wait for the preceding node."""
    last: Task
    done: str
    """Condition on this node (`depends`) under which the next node starts."""
    proceed: str | None
    """Further condition (`when`) for the next node, or None. If it does not hold, Argo omits the next node and all later ones."""
    edges: list[Edge]
    """All edges of the pipeline drawn so far, shared by its nodes."""

    def __rshift__(self, following: "PipelineNode | None") -> "PipelineNode":
        """Make `following` start after this node and return it. None is a stage that the plan lacks: then return this node."""
        if following is None:
            return self
        for task in following.first:
            task.depends = self.done
        following.last.when = self.proceed
        self.edges.append((self.id, following.id))
        return following


class PipelineTasks:
    """Maker of the templates and DAG nodes of one run, for all stages of the plan or for those in `only`."""

    def __init__(self, kind: str, plan: Plan, settings: steps.Settings, only: Collection[str] | None = None) -> None:
        self._kind, self._plan = kind, plan
        self._settings, self._secrets = replace(settings, proxies=plan.proxies), SecretVolumes(plan)
        self._stages = {stage.id: stage for stage in plan.stages if only is None or stage.id in only}
        self._edges: list[Edge] = []

    def workflow_settings(self) -> dict[str, Any]:
        """Return the constructor arguments of the WorkflowTemplate that all pipelines share.

        Its mutex admits one run at a time per cluster.
        """
        plan, settings = self._plan, self._settings
        labels = {"bringup/pipeline": self._kind, "bringup/cluster": plan.name}
        notes = {"bringup/plan": plan.digest, "bringup/owner": plan.owner, "bringup/revision": plan.revision}
        notes |= titles.run_annotations(self._kind, plan)
        return {
            "name": f"{self._kind}-{plan.name}-{names.short(plan.inputs)}",
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": notes,
            # for runs that `argo submit --from` creates
            "workflow_metadata": m.WorkflowMetadata(labels=labels, annotations=notes),
            "arguments": [Parameter(name="reuse", value="none"), Parameter(name="source", value="none")],
            "service_account_name": steps.account("open"),
            "automount_service_account_token": False,
            "executor": m.ExecutorConfig(service_account_name=steps.EXECUTOR),
            "parallelism": graph_tasks.parallelism_of_workflow(self._stages.values()),
            "synchronization": m.Synchronization(mutexes=[m.Mutex(name=f"target-{plan.name}")]),
            "pod_gc": m.PodGC(strategy="OnPodSuccess", delete_delay_duration=steps.LOG_READABLE),
            "security_context": steps.pod_security(),
            "pod_spec_patch": ARGOS_CONTAINERS,
            "image_pull_secrets": [m.LocalObjectReference(name=settings.pull_secret)] if settings.pull_secret else None,
            "affinity": steps.placement(),
            "volumes": steps.volumes(plan.inputs, settings, self._secrets, claim_volumes.claim_of(plan)),
        }

    def add_templates(self) -> None:
        """Add the templates to the open WorkflowTemplate: a Container per task, a DAG per stage, a Suspend per approval."""
        plan, settings, secrets = self._plan, self._settings, self._secrets
        approved = {self._approved(stage) for stage in self._stages.values() if stage.approval is not None}
        opening = steps.OUTPUTS["open"] | (EVIDENCE if run_records.OPEN in approved else {})
        steps.container(plan.open_task, settings, secrets, outputs=opening)
        for stage in self._stages.values():
            if stage.approval is not None:
                _approval_wait(stage)
                if stage.id in plan.announce_tasks:
                    steps.container(plan.announce_tasks[stage.id], settings, secrets)
                steps.container(plan.confirm_tasks[stage.id], settings, secrets, inputs=tuple(approval.PARAMETERS))
            every = [entry.asked_if for entry in self._stages.values() if entry.asked_if is not None]
            conditions = [condition for condition in every if condition.stage == stage.id]
            _stage_dag(stage, settings, secrets, conditions, approved=names.dashed(stage.id) in approved)
        for task in plan.end_tasks:
            steps.container(task, settings, secrets, inputs=("status",))

    def open(self) -> PipelineNode:
        """Return the node of the task `open`, which starts the run and outputs the lists of shards."""
        return self._node("open", Task(name="open", template=names.template("run", "open")))

    def stage(self, stage_id: str) -> PipelineNode | None:
        """Return the node of a stage, behind its approval if it has one; None if the plan does not have the stage."""
        if (stage := self._stages.get(stage_id)) is None:
            return None
        name, lists = names.dashed(stage.id), SHARD_LISTS
        first, ready = self._approval(stage) if stage.approval is not None else ((), None)
        shards = [Parameter(name=entry, value=f"{{{{tasks.open.outputs.parameters.{entry}}}}}") for entry in lists]
        task = Task(name=name, template=name, depends=ready, arguments=shards)
        proceed, shortcut = None, stage.shortcut
        if shortcut is not None:  # all later stages are omitted with the next one
            output = f"tasks.{names.dashed(shortcut.stage)}.outputs.parameters.{shortcut.output}"
            proceed = f"{{{{{output}}}}} == {shortcut.proceed}"
        return self._node(stage.id, task, first, proceed=proceed)

    def report(self) -> PipelineNode:
        """Return the node of the task that writes the report. The next node starts even if the report failed."""
        return self._node("report", self._end_task("report"), done="report.Succeeded || report.Failed || report.Errored")

    def seal(self) -> PipelineNode:
        """Return the node of the task that lists the digests of all evidence."""
        return self._node("seal", self._end_task("seal"))

    def check_edges(self) -> None:
        """Raise RenderError unless the edges that the pipeline has drawn connect all stages in the order of the plan."""
        planned = [("report", "seal"), *pairwise(["open", *self._stages])]
        if sorted(planned) != sorted(self._edges):
            expected, drawn = (", ".join(f"{before} >> {after}" for before, after in edges) for edges in (planned, self._edges))
            raise RenderError(f"workflows/{self._kind}.py draws the edges {drawn}, but the plan has {expected}; draw those")

    def _approval(self, stage: Stage) -> tuple[tuple[Task, ...], str]:
        """Add the tasks of an approval; return those that start first, and the condition (`depends`) on which the stage starts.

        The announcement runs beside the wait for a person, and the stage starts even if the announcement failed. The stage waits
        for its end, because a DAG task without a successor would decide how the whole run ends.
        """
        name = names.dashed(stage.id)
        approve, announce, confirm = f"{approval.NODE_PREFIX}{name}", f"{approval.ANNOUNCE}-{name}", f"{approval.CONFIRM}-{name}"
        answer = [Parameter(name=key, value=f"{{{{tasks.{approve}.outputs.parameters.{key}}}}}") for key in approval.PARAMETERS]
        # the node shows the digest of the evidence that its approver looks at
        shown = Parameter(name="evidence", value=f"{{{{tasks.{self._approved(stage)}.outputs.parameters.evidence}}}}")
        asks = Task(name=approve, template=approve, arguments=[shown])
        first, ready = [asks], f"{confirm}.Succeeded"
        if (condition := stage.asked_if) is not None:
            output = f"tasks.{names.dashed(condition.stage)}.outputs.parameters.{condition.output}"
            asks.when, ready = f"{{{{{output}}}}} == {condition.value}", f"({ready} || {approve}.Skipped)"
        if stage.id in self._plan.announce_tasks:
            first.append(Task(name=announce, template=names.template(name, approval.ANNOUNCE)))
            ready += f" && {ended_condition(announce)}"
        Task(name=confirm, template=names.template(name, approval.CONFIRM), depends=f"{approve}.Succeeded", arguments=answer)
        return tuple(first), ready

    def _approved(self, stage: Stage) -> str:
        """Return the name of the DAG task that outputs the digest of the evidence that is approved before a stage."""
        approved = str(self._plan.confirm_tasks[stage.id].arguments["approved"])
        return names.dashed(approved) if approved in self._stages else run_records.OPEN

    def _end_task(self, name: str) -> Task:
        status = [Parameter(name="status", value="{{workflow.status}}")]
        return Task(name=name, template=names.template("run", name), arguments=status)

    def _node(
        self, node_id: str, last: Task, first: tuple[Task, ...] = (), *, done: str = "", proceed: str | None = None
    ) -> PipelineNode:
        done, first = done or f"{last.name}.Succeeded", first or (last,)
        return PipelineNode(id=node_id, first=first, last=last, done=done, proceed=proceed, edges=self._edges)


def _stage_dag(
    stage: Stage,
    settings: steps.Settings,
    secrets: SecretVolumes,
    conditions: Collection[ApprovalCondition],
    *,
    approved: bool,
) -> None:
    """Add the DAG template of one stage. Its judge is its only leaf, so the judge alone decides the stage's phase.

    `approved`: an approval comes after the stage, so its judge outputs the digest of the stage's evidence. `conditions` are those
    of later approvals on outputs of this stage.
    """
    more = {step.name: EVIDENCE if approved and step.task.verb is Verb.JUDGE else {} for step in stage.steps}
    more |= {condition.task: {condition.output: condition.value} for condition in conditions}
    containers = {step.name: steps.step_container(stage, step, settings, secrets, more[step.name]) for step in stage.steps}
    templates = {step.name: _template(stage, step, containers[step.name]) for step in stage.steps}
    with DAG(
        name=names.dashed(stage.id),
        inputs=[Parameter(name=name) for name in SHARD_LISTS],
        outputs=_outputs(stage, more) or None,
        # the judge must still run after a task has failed
        fail_fast=False,
        parallelism=stage.parallelism or None,
    ):
        for step in stage.steps:
            _task(step, templates[step.name])


def _outputs(stage: Stage, more: Mapping[str, Mapping[str, str]]) -> list[Parameter]:
    """Return the output parameters of a stage's DAG, each passed on from one of its tasks.

    By one of them a stage with a shortcut tells that later stages are skipped. `more` has task → outputs with defaults: the digest
    of the evidence from the judge, and what decides on a later approval.
    """
    passed_on = [(task, name, default) for task, outputs in more.items() for name, default in outputs.items()]
    if stage.shortcut is not None:
        passed_on.append((stage.shortcut.task, stage.shortcut.output, stage.shortcut.proceed))
    return [
        Parameter(
            name=name,
            value_from=m.ValueFrom(parameter=f"{{{{tasks.{names.dashed(task)}.outputs.parameters.{name}}}}}", default=default),
        )
        for task, name, default in passed_on
    ]


def _template(stage: Stage, step: Step, container: Container) -> str:
    """Return the name of the template that a step's task in the stage's DAG calls."""
    return graph_tasks.templates(stage, step, container) if step.graph else str(container.name)


def _task(step: Step, template: str) -> None:
    after = (names.dashed(name) for name in step.after)
    depends = " && ".join(f"{name}.Succeeded" if step.when is When.PASSED else ended_condition(name) for name in after)
    task = Task(name=names.dashed(step.name), template=template, depends=depends or None)
    if step.fan_out:
        task.with_param = f"{{{{inputs.parameters.{step.fan_out}}}}}"
        task.arguments = [Parameter(name="shard", value="{{item}}")]


def _approval_wait(stage: Stage) -> Suspend:
    """Return the suspend template that waits for the approval before a stage.

    Its outputs default to no approval, because Argo marks a suspend node that timed out as succeeded (`steps/docs/facts/argo.md`,
    Argo Workflows: approvals).
    """
    assert stage.approval is not None
    return Suspend(
        name=f"{approval.NODE_PREFIX}{names.dashed(stage.id)}",
        duration=str(stage.approval.timeout_seconds),
        # Argo's UI asks for parameters that are inputs and supplied outputs of the same name
        inputs=[Parameter(name=name, default=default, **APPROVAL_FORM[name]) for name, default in approval.PARAMETERS.items()],
        outputs=[
            Parameter(name=name, value_from=m.ValueFrom(supplied=m.SuppliedValueFrom(), default=default))
            for name, default in approval.PARAMETERS.items()
        ],
    )
