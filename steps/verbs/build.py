"""Verb build: make one part of a product, judge it and store the record. The judge decides the stage."""

from steps.contract.exit import ExitCode
from steps.errors import BadTask
from steps.runtime import product_tasks
from steps.runtime.context import Context


def run(context: Context) -> ExitCode:
    """Build what this task's stage makes, by the tasks of the stage's product. Raises BadTask for a stage without a product."""
    tasks = product_tasks.tasks_of(context.task.stage)
    if tasks is None:
        raise BadTask(f"stage {context.task.stage} builds nothing", hint="render with the version that runs the steps")
    return tasks.build(context)
