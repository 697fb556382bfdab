"""Which commit was delivered for the revision that a stage's root Application names: this run's word, else an earlier run's."""

from collections.abc import Iterator

import msgspec

from steps.contract import delivery
from steps.contract.charts import RootApplication
from steps.contract.delivery import Delivered
from steps.errors import BadTask
from steps.verbs.context import Context

_GATE = "gate_expectations"


def commit(context: Context) -> str:
    """The commit, empty where the task has no root Application or nobody knows. A later run of the same revision and tree may take
    an earlier one's word: a tag is never moved by us, and a commit that differs from what is in force then fails the gate."""
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
    """What was delivered: by this run, then by others, the newest first."""
    own = delivery.key(context.environment.run)
    for key in (own, *(key for key in context.store.of_runs(delivery.RECORD) if key != own)):
        if (data := context.store.read(key)) is not None:
            yield delivery.decode(data)
