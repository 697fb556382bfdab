"""One ordered record of a run: verdicts, changes, collected events and logs, approvals: the post-incident note."""

import datetime
from collections.abc import Iterator

from msgspec import Struct

from steps.report import model


class Entry(Struct, frozen=True, kw_only=True):
    """One thing that happened. `time` is UTC seconds since the epoch; `kind` is run, task, verdict, change, finding or approval."""

    time: float
    kind: str
    where: str
    text: str


def timeline(report: model.Report) -> tuple[Entry, ...]:
    """Everything the report knows, in the order in which it happened."""
    order = {"run": 0, "task": 1, "change": 2, "verdict": 3, "finding": 4, "approval": 5}
    return tuple(sorted(_entries(report), key=lambda entry: (entry.time, order[entry.kind])))


def note(report: model.Report) -> str:
    """The timeline as Markdown: a draft of a post-incident note with its open questions."""
    lines = [f"# {report.cluster}: {report.sentence}", "", f"Run {report.run}, plan {report.plan}, revision {report.revision}.", ""]
    lines += [f"- {stamp(entry.time)} **{entry.kind}** {entry.where}: {_indent(entry.text)}" for entry in timeline(report)]
    lines += ["", "## Still to write", "", "- Impact, and who noticed it first.", "- Root cause.", "- What prevents it next time."]
    return "\n".join(lines) + "\n"


def stamp(seconds: float) -> str:
    """`2026-11-21 10:15:00Z`."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _entries(report: model.Report) -> Iterator[Entry]:
    identity = f"started: revision {report.revision} of {report.cluster}, owner {report.owner}, plan {report.plan}"
    yield Entry(time=report.started, kind="run", where=report.run, text=identity)
    ended = {}
    for attempt in report.attempts:
        where = f"{attempt.stage}/{attempt.task}" + (f" shard {attempt.shard}" if attempt.shard else "")
        ended[attempt.stage, attempt.task] = attempt.finished
        yield Entry(time=attempt.started, kind="task", where=where, text=f"{attempt.verb} started, attempt {attempt.attempt}")
        for change in attempt.changes:
            yield Entry(time=attempt.finished, kind="change", where=where, text=change)
        text = f"{attempt.status}: {attempt.reason}" if attempt.reason else (attempt.error or attempt.status)
        yield Entry(time=attempt.finished, kind="verdict", where=where, text=text)
    for trouble in report.troubles:
        for found in trouble.found:
            time = ended.get((trouble.stage, trouble.task), report.finished)
            yield Entry(time=time, kind="finding", where=found.source, text=f"{found.what}: {found.content}")
    for approval in report.approvals:
        yield Entry(
            time=approval.time,
            kind="approval",
            where=f"before {approval.stage}",
            text=f"{approval.decision} by {approval.approver}",
        )
    yield Entry(time=report.finished, kind="run", where=report.run, text=f"ended: {report.status}: {report.sentence}")


def _indent(text: str) -> str:
    return text.replace("\n", "\n    ")
