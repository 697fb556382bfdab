"""Pipeline bringup: bare OS on N hosts → an accepted GPU/HPC platform, and operations on such a cluster."""

from hera.workflows import DAG, WorkflowTemplate

from workflows.plan.model import Plan
from workflows.render.pipeline import FINISH, PipelineTasks
from workflows.render.steps import Settings

KIND = "bringup"


def build(plan: Plan, settings: Settings) -> WorkflowTemplate:
    """Return the whole bring-up as one WorkflowTemplate. Raises RenderError if the DAG is not the plan's.

    `a >> b` starts b once a has succeeded; where the plan lacks a stage, the stages around it are joined. A stage is a DAG of its
    own: the judge, its last task, decides whether it succeeds. With an approval before stage b, `a >> b` stands for
    `a >> [approve_b, announce_b]`, `approve_b >> confirm_b` and `[confirm_b, announce_b] >> b`, whatever becomes of announce_b.
    """
    tasks = PipelineTasks(KIND, plan, settings)
    with WorkflowTemplate(entrypoint=KIND, on_exit=FINISH, **tasks.workflow_settings()) as workflow:
        tasks.add_templates()
        with DAG(name=FINISH, fail_fast=False):  # exit handler, not run after `terminate`; seal starts even if report failed
            tasks.report() >> tasks.seal()
        with DAG(name=KIND):
            (
                tasks.open()
                >> tasks.stage("reset")  # operation `reset` alone; its plan has no other stage
                >> tasks.stage("os_prep")
                >> tasks.stage("rke2")  # operations `upgrade` and `rollback` have this stage alone
                >> tasks.stage("base_services")
                >> tasks.stage("gpu_operator")
                >> tasks.stage("network_operator")
                >> tasks.stage("sharing")
                >> tasks.stage("gang")
                >> tasks.stage("slurm")
                >> tasks.stage("slurm_login")  # with SUNK: old login pods, after an approval if somebody is logged in there
                >> tasks.stage("validation")
            )
    tasks.check_edges()
    return workflow
