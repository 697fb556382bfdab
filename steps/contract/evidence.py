"""Evidence: the stored record of one attempt of one task, and its key in the store."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from steps.contract.verdict import Verdict

SCHEMA = 1
T = TypeVar("T")


class Diagnosis(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person would collect next about a verdict that is no pass: object reads, events, logs; redacted."""

    what: str
    source: str
    content: str


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt of one task.

    `input_digest` is the task's; `observation` is what the probe read, as data; times are UTC seconds since the epoch;
    `engine` is `local` or `argo`; `reused` names the run whose evidence still holds; `tools` are versions in use.
    """

    run: str
    stage: str
    task: str
    verb: str
    shard: int
    attempt: int
    input_digest: str
    engine: str
    started: float
    finished: float
    verdict: Verdict | None = None
    observation: Any = None
    changes: tuple[str, ...] = ()
    reused: str = ""
    error: str = ""
    tools: dict[str, str] = {}
    diagnosis: tuple[Diagnosis, ...] = ()
    schema: int = SCHEMA


def key(run: str, stage: str, task: str, shard: int, attempt: int) -> str:
    """Write-once key of a record: `runs/RUN/evidence/STAGE/TASK/SHARD/ATTEMPT.json`."""
    return f"runs/{run}/evidence/{stage}/{task}/{shard:04d}/{attempt:02d}.json"


Encoder = Callable[[Evidence], bytes]
"""Turns a record into the bytes that are stored; it redacts what must not be kept."""


def with_attempt(record: Evidence, attempt: int) -> Evidence:
    """The same record as another attempt."""
    return msgspec.structs.replace(record, attempt=attempt)


def decode(data: bytes) -> Evidence:
    """Read a stored record. Raises msgspec.ValidationError when it is none."""
    return msgspec.json.decode(data, type=Evidence)


def seen(observation: object, kind: type[T]) -> T | None:
    """A record's observation as what this kind of task sees; None where it is none, or another version wrote it in another form."""
    try:
        return msgspec.convert(observation, kind)
    except msgspec.ValidationError:
        return None
