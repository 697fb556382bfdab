"""Delivered commit: the commit of the revision that a stage's root Application names, from records of this run or earlier ones."""

from collections.abc import Iterator

import msgspec

from steps.contract import delivery
from steps.contract.charts import RootApplication
from steps.contract.delivery import Delivered
from steps.errors import BadTask
from steps.runtime.context import Context

_GATE = "gate_expectations"


def commit(context: Context) -> str:
    """Return the commit; empty if the task has no root Application or no record names one.

    The record of an earlier run with the same revision and tree is good enough: bringup never moves a tag. If the commit differs
    from the one in force, the gate fails.
    """
    arguments = context.task.arguments
    wanted = arguments.get("root_app") or arguments.get(_GATE, {}).get("root_app")
    if not wanted:
        return ""
    try:
        root = msgspec.convert(wanted, RootApplication)
    except msgspec.ValidationError as error:
        raise BadTask(f"root_app of task {context.task.stage}.{context.task.name}: {error}") from error
    return delivery.commit_of(_known(context), root.repo, root.revision, root.tree)


def _known(context: Context) -> Iterator[Delivered]:
    """Yield delivery records: that of this run, then those of others, newest first."""
    own = delivery.key(context.environment.run)
    for key in (own, *(key for key in context.store.of_runs(delivery.RECORD) if key != own)):
        if (data := context.store.read(key)) is not None:
            yield delivery.decode(data)
