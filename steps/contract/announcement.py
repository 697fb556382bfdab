"""Announcements: what approvers are told when an approval waits, whoever tells them."""

import time
from collections.abc import Iterable

import msgspec
from msgspec import Struct


class Announcement(Struct, frozen=True, kw_only=True):
    """What approvers are told; `text` alone is what chat systems show. `since` is UTC, as in 2027-01-15T08:00:00Z."""

    text: str
    run: str
    cluster: str
    stage: str
    since: str
    approvers: tuple[str, ...]
    how: str


def body(*, run: str, cluster: str, stage: str, since: float, approvers: Iterable[str]) -> bytes:
    """The announcement that `run` waits before `stage`, as JSON; `since` is in seconds since the epoch."""
    how = f"bringup approve {run} --as NAME"
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
    text = f"{cluster}: run {run} waits for an approval before {stage} since {when}: {how}"
    made = Announcement(text=text, run=run, cluster=cluster, stage=stage, since=when, approvers=tuple(approvers), how=how)
    return msgspec.json.encode(made)
