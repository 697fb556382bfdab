"""Plans of one stage with a graph of builds, and their pipeline, for tests of rendering and of the embedded engine."""

from collections.abc import Iterable

from hera.workflows import DAG, WorkflowTemplate

from steps.contract.task import Task, Verb
from workflows.plan import approvals
from workflows.plan.compiler import END_TASKS
from workflows.plan.model import Plan
from workflows.render.pipeline import FINISH, PipelineTasks
from workflows.render.steps import Settings
from workflows.stages.stage import GraphTask, Stage, Step, judge_step, task

STAGE = "stack_build"


def plan(graph: Iterable[GraphTask], parallelism: int = 0) -> Plan:
    """Return the plan of a stage that has the graph and a judge, on no hosts."""
    tasks = tuple(graph)
    builds = Step(task=task(STAGE, "package", Verb.BUILD, deadline=600, arguments={"part": "package"}), graph=tasks)
    checks = [{"task": "package", "gate": f"{STAGE}/package", "fanned": True, "records": len(tasks)}]
    judge = judge_step(STAGE, checks, needed=0, members="all")
    stage = Stage(
        id=STAGE, title="Builds", steps=(builds, judge), gates=(), changes=(), rollback="nothing", parallelism=parallelism
    )
    return Plan(
        name="small",
        owner="ops",
        revision="1",
        target_uid="",
        accelerator="",
        built={},
        stages=(stage,),
        hosts=(),
        releases=(),
        issues=(),
        secrets=(),
        digest=f"sha256:{'0' * 64}",
        open_task=Task(stage=approvals.RUN, name="open", verb=Verb.OPEN, arguments={"targetless": True}),
        confirm_tasks={},
        end_tasks=END_TASKS,
    )


def build(planned: Plan, settings: Settings) -> WorkflowTemplate:
    """Return the pipeline of such a plan."""
    tasks = PipelineTasks("stack", planned, settings)
    with WorkflowTemplate(entrypoint="stack", on_exit=FINISH, **tasks.workflow_settings()) as workflow:
        tasks.add_templates()
        with DAG(name=FINISH, fail_fast=False):
            tasks.report() >> tasks.seal()
        with DAG(name="stack"):
            tasks.open() >> tasks.stage(STAGE)
    tasks.check_edges()
    return workflow
