"""One ordered record of a run: verdicts, changes, collected events and logs, approvals: the post-incident note."""

import datetime
import re
from collections.abc import Iterator

from msgspec import Struct

from steps.report import model, ranges

_STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)(?=\s)")
"""How container logs and events begin a line that says its own time."""


class Entry(Struct, frozen=True, kw_only=True):
    """One thing that happened. `time` is UTC seconds since the epoch; `kind` is run, task, verdict, change, finding or approval."""

    time: float
    kind: str
    where: str
    text: str


def timeline(report: model.Report) -> tuple[Entry, ...]:
    """Everything the report knows, in the order in which it happened."""
    order = {"run": 0, "task": 1, "change": 2, "verdict": 3, "finding": 4, "approval": 5}
    ended = Entry(time=report.finished, kind="run", where=report.run, text=f"ended: {report.status}: {report.sentence}")
    return (*sorted(_entries(report), key=lambda entry: (entry.time, order[entry.kind])), ended)


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
    hosts = {node.name for node in report.nodes}
    for attempt in report.attempts:
        yield from _of_attempt(attempt, hosts)
    for trouble in (*report.overcome, *report.troubles):
        for found in trouble.found:
            for time, content in _by_time(found.content, trouble.time or report.finished):
                yield Entry(time=time, kind="finding", where=found.source, text=f"{found.what}: {content}")
    for approval in report.approvals:
        yield Entry(
            time=approval.time,
            kind="approval",
            where=f"before {approval.stage}",
            text=f"{approval.decision} by {approval.approver}",
        )


def _of_attempt(attempt: model.Attempt, hosts: set[str]) -> Iterator[Entry]:
    where = f"{attempt.stage}/{attempt.task}" + (f" shard {attempt.shard}" if attempt.shard else "")
    yield Entry(time=attempt.started, kind="task", where=where, text=f"{attempt.verb} started, attempt {attempt.attempt}")
    for change in ranges.by_hosts(attempt.changes, hosts):
        yield Entry(time=attempt.finished, kind="change", where=where, text=change)
    text = f"{attempt.status}: {attempt.reason}" if attempt.reason else (attempt.error or attempt.status)
    yield Entry(time=attempt.finished, kind="verdict", where=where, text=text)


def _by_time(content: str, otherwise: float) -> Iterator[tuple[float, str]]:
    """The content cut before each line that says its own time (UTC seconds); `otherwise` is the time of what says none."""
    time, lines = otherwise, list[str]()
    for line in content.splitlines():
        own = _own_time(line)
        if own is not None and lines:
            yield time, "\n".join(lines)
            lines = []
        time = time if own is None else own
        lines.append(line)
    yield time, "\n".join(lines)


def _own_time(line: str) -> float | None:
    match = _STAMPED.match(line)
    if match is None:
        return None
    try:
        return datetime.datetime.fromisoformat(match[0]).timestamp()
    except ValueError:
        return None


def _indent(text: str) -> str:
    return text.replace("\n", "\n    ")
