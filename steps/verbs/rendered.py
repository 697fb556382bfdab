"""The rendered tree, which lies beside the tasks: what is published, and texts that no task file has room for."""

from collections.abc import Mapping

import msgspec

from steps.contract import delivery
from steps.errors import BadTask
from steps.verbs.context import Context

HINT = "render again and submit all files together"


def tree(context: Context, file: str) -> Mapping[str, str]:
    """Path in the repository → text. Raises BadTask when there is none."""
    path = context.environment.tasks / file
    try:
        return delivery.decode_tree(path.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise BadTask(f"{path}: {error}", hint=HINT) from error


def texts(context: Context, wanted: delivery.ConfigMapKeys) -> dict[str, str]:
    """Key → text of a ConfigMap that the tree has. Raises BadTask when it is not what the task was made for."""
    import yaml  # no other task reads YAML of the tree

    try:
        found = yaml.load(tree(context, wanted.file).get(wanted.path, ""), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        made = msgspec.convert((found or {}).get("data"), dict[str, str])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise BadTask(f"{wanted.path} of the rendered tree is no ConfigMap: {error}", hint=HINT) from error
    if {key: delivery.text_digest(text) for key, text in made.items()} != wanted.keys:
        raise BadTask(f"{wanted.path} of the rendered tree is not that of this task", hint=HINT)
    return made
