"""Announcements: what approvers are told when an approval waits, whoever tells them."""

import time
from collections.abc import Iterable

import msgspec
from msgspec import Struct


class Announcement(Struct, frozen=True, kw_only=True):
    """What approvers are told; `text` alone is what chat systems show. `since` is UTC, as in 2027-01-15T08:00:00Z; `evidence` is
    the digest of what is approved, empty where whoever tells it has not read that; `how` is the command that answers; `changes`
    what is about to change, where that is known."""

    text: str
    run: str
    cluster: str
    stage: str
    since: str
    approvers: tuple[str, ...]
    evidence: str
    how: str
    changes: str = ""


def command(run: str, *, evidence: str = "", namespace: str | None = None) -> str:
    """The command by which an approver answers, from any machine that reaches the run.

    `namespace` is that of a run on Argo, empty where it is not known; None for a run of the machine on which it is typed.
    """
    words = ["bringup approve", run, "--as NAME"]
    words += [f"--evidence {evidence}"] if evidence else []
    words += ["--engine argo"] if namespace is not None else []
    words += [f"--namespace {namespace}"] if namespace else []
    return " ".join(words)


def body(
    *,
    run: str,
    cluster: str,
    stage: str,
    since: float,
    approvers: Iterable[str],
    how: str,
    evidence: str = "",
    changes: str = "",
) -> bytes:
    """The announcement that `run` waits before `stage`, as JSON; `since` is in seconds since the epoch, `how` a `command`."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
    about = f" ({changes})" if changes else ""
    text = f"{cluster}: run {run} waits for an approval before {stage} since {when}{about}: {how}"
    made = Announcement(
        text=text,
        run=run,
        cluster=cluster,
        stage=stage,
        since=when,
        approvers=tuple(approvers),
        evidence=evidence,
        how=how,
        changes=changes,
    )
    return msgspec.json.encode(made)
