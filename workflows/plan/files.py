"""The tasks folder of a plan: one file a task, the plan's summary for the report, and the tree that is published to Git."""

from steps.contract import run
from steps.contract.canonical import canonical
from steps.contract.delivery import TREE_FILE
from steps.contract.task import TaskError
from workflows.plan import show
from workflows.plan.model import Plan

MAX_BYTES = 900_000
"""Size limit of the whole folder: on Argo it is one ConfigMap, limited by the API server to 1 MiB with names and metadata."""


def tasks_folder(plan: Plan) -> dict[str, bytes]:
    """Return file name → bytes. Raises TaskError for a task above 8 kB, or if all files together are too large for a ConfigMap."""
    files = {**plan.task_files, **plan.archives, run.PLAN_FILE: canonical(show.to_data(plan))}
    if plan.tree:
        files[TREE_FILE] = canonical(dict(plan.tree))
    size = sum(map(len, files.values()))
    if size > MAX_BYTES:
        largest = max(files, key=lambda name: len(files[name]))
        raise TaskError(
            f"the tasks of {plan.name} have {size} bytes, the largest {largest} {len(files[largest])}, limit {MAX_BYTES}: "
            "make Helm values shorter (long texts belong into ConfigMaps of their own), or your own roles smaller"
        )
    return files
