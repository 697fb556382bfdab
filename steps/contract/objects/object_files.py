"""Files of Kubernetes objects beside the tasks, for objects that do not fit into a task file; tasks name them by digest."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON, canonical, digest_bytes

MOST_BYTES = 400_000
"""Most bytes of a file: it is part of a ConfigMap, which holds 1 MiB with everything else."""


class TaskObjects(Struct, frozen=True, kw_only=True):
    """A file in the tasks folder: its name, and the digest of its content."""

    name: str
    digest: str


class NotTheObjects(ValueError):
    """Error for a file whose content has another digest than the task names, or holds no objects."""


def encode(objects: Iterable[dict[str, Any]]) -> bytes:
    """Return the content of a file of objects; equal objects give equal bytes."""
    return canonical(list(objects))


def file_of(name: str, data: bytes) -> TaskObjects:
    """Return the name and digest by which a task refers to a file."""
    return TaskObjects(name=name, digest=digest_bytes(data))


def decode(file: TaskObjects, data: bytes) -> tuple[dict[str, Any], ...]:
    """Return the objects of a file. Raises NotTheObjects."""
    if digest_bytes(data) != file.digest:
        raise NotTheObjects(f"{file.name} has another digest than the task names")
    try:
        return msgspec.json.decode(data, type=tuple[dict[str, Any], ...])
    except UNREADABLE_JSON as error:
        raise NotTheObjects(f"{file.name} holds no objects: {error}") from error
