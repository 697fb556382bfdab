"""Inputs of delivery by Argo CD: the rendered Git folder beside the tasks, and the commit of a root Application's revision."""

from collections.abc import Iterator, Mapping

import msgspec

from steps.contract import delivery
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.delivery import Delivered
from steps.contract.objects.charts import RootApplication
from steps.errors import BadTask
from steps.runtime.context import Context

_GATE = "gate_expectations"


def delivered_commit(context: Context) -> str:
    """Return the Git commit that was delivered for the revision of the stage's root Application.

    Empty if the task has no root Application or no record names a commit. A record of an earlier run with the same revision and
    rendered folder counts, because bringup never moves a tag. If the commit differs from the one in force, the gate fails.
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
    """Yield delivery records: this run's, then those of other runs, newest first."""
    own = delivery.key(context.environment.run)
    for key in (own, *(key for key in context.store.of_runs(delivery.RECORD) if key != own)):
        if (data := context.store.read(key)) is not None:
            yield delivery.decode(data)


HINT = "render again and submit all files together"


def tree(context: Context, file: str) -> Mapping[str, str]:
    """Return the rendered Git folder (path → text) from a file in the tasks folder. Raises BadTask if that is unreadable."""
    path = context.environment.tasks / file
    try:
        return delivery.decode_tree(path.read_bytes())
    except (OSError, *UNREADABLE_JSON) as error:
        raise BadTask(f"{path}: {error}", hint=HINT) from error


def texts(context: Context, wanted: delivery.ConfigMapKeys) -> dict[str, str]:
    """Return key → text for a ConfigMap, from the rendered Git folder.

    Raises BadTask if the texts are not those that the task was made for.
    """
    import yaml  # imported here: no other task reads YAML of the tree

    try:
        document = yaml.load(tree(context, wanted.file).get(wanted.path, ""), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        data = msgspec.convert((document or {}).get("data"), dict[str, str])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise BadTask(f"{wanted.path} of the rendered tree is no ConfigMap: {error}", hint=HINT) from error
    if {key: delivery.text_digest(text) for key, text in data.items()} != wanted.keys:
        raise BadTask(f"{wanted.path} of the rendered tree is not that of this task", hint=HINT)
    return data
