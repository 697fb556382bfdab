"""The rendered tree beside the tasks: the files to publish, and texts too large for a task file."""

from collections.abc import Mapping

import msgspec

from steps.contract import delivery
from steps.errors import BadTask
from steps.runtime.context import Context

HINT = "render again and submit all files together"


def tree(context: Context, file: str) -> Mapping[str, str]:
    """Return path in the repository → text. Raises BadTask if the file is missing or unreadable."""
    path = context.environment.tasks / file
    try:
        return delivery.decode_tree(path.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise BadTask(f"{path}: {error}", hint=HINT) from error


def texts(context: Context, wanted: delivery.ConfigMapKeys) -> dict[str, str]:
    """Return key → text of a ConfigMap in the tree. Raises BadTask if the texts are not those that the task was made for."""
    import yaml  # imported here: no other task reads YAML of the tree

    try:
        document = yaml.load(tree(context, wanted.file).get(wanted.path, ""), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        data = msgspec.convert((document or {}).get("data"), dict[str, str])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise BadTask(f"{wanted.path} of the rendered tree is no ConfigMap: {error}", hint=HINT) from error
    if {key: delivery.text_digest(text) for key, text in data.items()} != wanted.keys:
        raise BadTask(f"{wanted.path} of the rendered tree is not that of this task", hint=HINT)
    return data
