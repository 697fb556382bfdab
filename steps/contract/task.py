"""The task file: what one pod or process has to do. A pod gets its task, never the spec."""

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON, canonical, digest

SCHEMA = 1
MAX_BYTES = 8192
"""Limit of one task file in bytes. Larger data goes into the store and is named by key."""


class Verb(StrEnum):
    """Verbs of `python -m steps VERB`."""

    OPEN = "open"
    PLAY = "play"
    APPLY = "apply"
    WAIT = "wait"
    JUDGE = "judge"
    JOB = "job"
    LOCALISE = "localise"
    ANNOUNCE = "announce"
    CONFIRM = "confirm"
    BUILD = "build"
    PUBLISH = "publish"
    SEAL = "seal"
    REPORT = "report"


class Task(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task for one pod or process. It has no run id and no shard, so that the same plan gives the same bytes.

    `arguments` are the verb's own, read by a Struct in the verb's module. `expectations` go to the gate. `deadline_seconds` bounds
    the verb's waiting, in seconds of the target's clock.
    """

    stage: str
    name: str
    verb: Verb
    arguments: dict[str, Any] = {}
    expectations: dict[str, Any] = {}
    deadline_seconds: int = 600
    schema: int = SCHEMA

    @property
    def input_digest(self) -> str:
        """Return the digest of the whole task, by which resume and reuse compare inputs."""
        return digest(self)


class TaskError(ValueError):
    """Raised for a task file that this version cannot read, and for a task that is too large; the message names the place."""


def file_name(stage: str, name: str) -> str:
    """Return the name of a task file in the tasks folder, such as `gpu_operator.apply.json`."""
    return f"{stage}.{name}.json"


def encode(task: Task) -> bytes:
    """Return the bytes of a task file. Raises TaskError above 8 kB."""
    data = canonical(task)
    if len(data) > MAX_BYTES:
        raise TaskError(f"task {task.stage}.{task.name} has {len(data)} bytes, limit {MAX_BYTES}: put large data into the store")
    return data


def decode(data: bytes) -> Task:
    """Read a task file. Raises TaskError with the place of the first error."""
    if len(data) > MAX_BYTES:
        raise TaskError(f"task file has {len(data)} bytes, limit {MAX_BYTES}")
    try:
        task = msgspec.json.decode(data, type=Task)
    except UNREADABLE_JSON as error:
        raise TaskError(f"task file: {error}") from error
    if task.schema != SCHEMA:
        raise TaskError(f"task file has schema {task.schema}, this version reads {SCHEMA}: render again with this version")
    return task
