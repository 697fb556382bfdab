"""Evidence: the stored record of one attempt of one task, and its key in the store."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from steps.contract.verdict import Verdict

SCHEMA = 1
T = TypeVar("T")


class Diagnosis(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding of a diagnosis: an object, events or a log to look at next after a verdict that is no pass; redacted."""

    what: str
    source: str
    content: str


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one attempt of one task, which a step stores and judge, report and resume read.

    `input_digest` is the task's. `observation` is the data that the probe read. Times are UTC seconds since the epoch. `engine` is
    `local` or `argo`. `reused` names the run whose evidence still holds. `tools` are versions in use.
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
    """Return the write-once store key of a record: `runs/RUN/evidence/STAGE/TASK/SHARD/ATTEMPT.json`."""
    return f"runs/{run}/evidence/{stage}/{task}/{shard:04d}/{attempt:02d}.json"


Encoder = Callable[[Evidence], bytes]
"""A function that turns a record into the bytes to store, with secrets redacted."""


def decode(data: bytes) -> Evidence:
    """Read a stored record. Raises msgspec.ValidationError if the data is none."""
    return msgspec.json.decode(data, type=Evidence)


def read_observation(observation: object, kind: type[T]) -> T | None:
    """Return a record's observation as type `kind`; None if there is none, or if another version wrote it in another form."""
    # another version may have written the record: reports must not fail on it
    try:
        return msgspec.convert(observation, kind)
    except msgspec.ValidationError:
        return None
