"""Announcements: the message that tells approvers that a run waits for an approval."""

import time
from collections.abc import Iterable

import msgspec
from msgspec import Struct


class Announcement(Struct, frozen=True, kw_only=True):
    """The JSON body of an announcement; chat systems show `text` alone.

    `since` is UTC, such as 2027-01-15T08:00:00Z. `evidence` is the digest of the evidence to approve, empty if the sender has not
    read it. `how` is the command that answers. `changes` says what is about to change, if that is known.
    """

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
    """Return the command by which an approver answers, from any machine that reaches the run.

    `namespace` is that of a run on Argo, empty if unknown. None means a run on the machine where the command is typed.
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
    """Return the announcement that `run` waits before `stage` as JSON. `since` is in seconds since the epoch, `how` is a
    `command`.
    """
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
    about = f" ({changes})" if changes else ""
    text = f"{cluster}: run {run} waits for an approval before {stage} since {when}{about}: {how}"
    announcement = Announcement(
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
    return msgspec.json.encode(announcement)
