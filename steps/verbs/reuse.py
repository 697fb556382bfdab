"""Reuse: an earlier run's record of this very task, if its input is the same and its stage passed (design §4)."""

from steps.contract.evidence import Evidence
from steps.verbs.context import Context

NONE = "none"


def earlier(context: Context) -> Evidence | None:
    """The record that may be reused, from the run that the workflow names; None when nothing may."""
    run = context.environment.reuse
    if not run or run == NONE:
        return None
    judged = context.store.records(run, context.task.stage, "judge")
    if not judged or not all(record.verdict and record.verdict.is_pass for record in judged):
        return None
    mine = context.store.records(run, context.task.stage, context.task.name)
    same = (record for record in mine if record.input_digest == context.task.input_digest and record.shard == context.shard)
    return next((record for record in same if record.verdict and record.verdict.is_pass), None)


def stage_is_reused(context: Context) -> bool:
    """Whether this run's own apply of the stage found everything in place; true for a stage that applies nothing."""
    applied = [record for record in _applies(context) if record.verb == "apply"]
    return all(record.reused for record in applied)


def _applies(context: Context) -> list[Evidence]:
    prefix = f"runs/{context.environment.run}/evidence/{context.task.stage}"
    tasks = {key.split("/")[4] for key in context.store.keys(prefix)}
    return [record for task in sorted(tasks) for record in context.store.records(context.environment.run, context.task.stage, task)]
