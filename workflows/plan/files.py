"""Plan → the files of the tasks folder: one a task, and the plan's summary for the report."""

from steps.contract import run
from steps.contract.canonical import canonical
from workflows.plan import show
from workflows.plan.model import Plan


def tasks_folder(plan: Plan) -> dict[str, bytes]:
    """File name → bytes. Raises TaskError for a task above 8 kB."""
    return {**plan.task_files, run.PLAN_FILE: canonical(show.to_data(plan))}
