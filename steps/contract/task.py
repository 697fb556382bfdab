"""The task file: what one pod or process is to do (design §4). A pod gets its task, never the spec."""

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.canonical import canonical, digest

SCHEMA = 1
MAX_BYTES = 8192
"""Limit of one task file; larger data goes into the store and is named by key."""


class Verb(StrEnum):
    """What `python -m steps VERB` does."""

    OPEN = "open"
    PLAY = "play"
    APPLY = "apply"
    WAIT = "wait"
    JUDGE = "judge"
    JOB = "job"
    ANNOUNCE = "announce"
    CONFIRM = "confirm"
    BUILD = "build"
    PUBLISH = "publish"
    SEAL = "seal"
    REPORT = "report"


class Task(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One task: no run id and no shard, so the same plan gives the same bytes.

    `arguments` are the verb's own (its module has the Struct that reads them); `expectations` go to the gate;
    `deadline_seconds` bounds the verb's waiting, in seconds of the target's clock.
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
        """Digest of all that this task is told: what resume and reuse compare."""
        return digest(self)


class TaskError(ValueError):
    """The task file is not one that this version understands; the message names the place."""


def file_name(stage: str, name: str) -> str:
    """Name of a task file in the tasks folder: `gpu_operator.apply.json`."""
    return f"{stage}.{name}.json"


def encode(task: Task) -> bytes:
    """The bytes of a task file. Raises TaskError above 8 kB."""
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
    except msgspec.MsgspecError as error:
        raise TaskError(f"task file: {error}") from error
    if task.schema != SCHEMA:
        raise TaskError(f"task file has schema {task.schema}, this version reads {SCHEMA}: render again with this version")
    return task
