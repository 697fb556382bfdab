"""Timeline of a run: its verdicts, changes, collected events and logs, and approvals in one order, for a post-incident note."""

import datetime
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from steps.contract import host_ranges
from steps.contract.runs.lost_attempts import LostAttempt
from steps.report import model

_STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)(?=\s)")
"""Beginning of a line of container logs or events that has its own time."""


class TimelineEntry(Struct, frozen=True, kw_only=True):
    """An entry of a run's timeline. `time` is UTC seconds since the epoch.

    `kind` is run, task, change, revision (state of a release in Argo CD), verdict, finding, waiting (for an approval) or approval.
    """

    time: float
    kind: str
    where: str
    text: str


def timeline(report: model.Report, lost: Iterable[LostAttempt] = ()) -> tuple[TimelineEntry, ...]:
    """Return the timeline of a run as entries, oldest first.

    They are: its start, tasks, lost attempts (which the engine alone knows), changes, verdicts, findings, Argo CD's states of
    releases, approvals and the waits for them, a cancellation, and last its end or present state.
    """
    order = ("run", "approval", "task", "change", "revision", "verdict", "finding", "waiting")  # order of entries with equal times
    entries = (*_entries(report), *map(_of_lost, lost))
    before = sorted(entries, key=lambda entry: (entry.time, order.index(entry.kind)))
    text = f"{'goes on' if report.running else 'ended'}: {report.status}: {report.sentence}"
    return (*before, TimelineEntry(time=max(report.finished, before[-1].time), kind="run", where=report.run, text=text))


def note(report: model.Report, lost: Iterable[LostAttempt] = ()) -> str:
    """Return the timeline as Markdown: a draft of a post-incident note, with headings for what a person must still write."""
    lines = [
        f"# {report.cluster}: {report.sentence}",
        "",
        f"Run {report.run}, plan {report.plan}, spec revision {report.revision}.",
        "",
    ]
    lines[-1:] = [f"The spec is {report.source.sentence}.", ""] if report.source else [""]
    entries = ((entry, entry.text.replace("\n", "\n    ")) for entry in timeline(report, lost))
    lines += [f"- {stamp(entry.time)} **{entry.kind}** {entry.where}: {text}" for entry, text in entries]
    lines += ["", "## Still to write", "", "- Impact, and who noticed it first.", "- Root cause.", "- What prevents it next time."]
    return "\n".join(lines) + "\n"


_YEAR_10000 = 253402300800.0


def stamp(seconds: float) -> str:
    """Return UTC seconds since the epoch as `2026-11-21 10:15:00Z`; a number that is no time, as of a broken file, as it is."""
    if not 0 <= seconds < _YEAR_10000:
        return f"{seconds:g} s"
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _entries(report: model.Report) -> Iterator[TimelineEntry]:
    what = f" for {report.operation}" if report.operation else ""
    identity = f"started{what}: spec revision {report.revision} of {report.cluster}, owner {report.owner}, plan {report.plan}"
    origin = f", {report.source.sentence}" if report.source else ""
    yield TimelineEntry(time=report.started, kind="run", where=report.run, text=identity + origin)
    if report.cancelled:
        yield TimelineEntry(time=report.cancelled.when, kind="run", where=report.run, text=report.cancelled.sentence)
    hosts = {node.name for node in report.nodes}
    for attempt in report.attempts:
        yield from _of_attempt(attempt, hosts)
    for trouble in (*report.overcome, *report.troubles):
        yield from _findings(trouble, trouble.time or report.finished, simulated=report.simulated)
    for revision in report.revisions:
        where = f"{revision.stage}/{revision.task}, release {revision.release}"
        yield TimelineEntry(time=revision.time, kind="revision", where=where, text=_revision(revision))
    for approval in report.approvals:
        yield from _of_approval(approval)


def _of_approval(approval: model.ApprovalReport) -> Iterator[TimelineEntry]:
    where = f"before {approval.stage}"
    if approval.asked:
        what = f"approval of {approval.approved}" if approval.approved else "an approval"
        yield TimelineEntry(time=approval.asked, kind="waiting", where=where, text=f"waits for {what}")
    if approval.time:
        yield TimelineEntry(time=approval.time, kind="approval", where=where, text=f"{approval.decision} by {approval.approver}")


def _findings(trouble: model.TroubleReport, collected: float, *, simulated: bool) -> Iterator[TimelineEntry]:
    """Yield an entry for each part of the collected findings, at the time that its lines give.

    A simulated cluster has another clock: its findings are placed at the time of collection, and their times are marked as
    simulated.
    """
    for finding in trouble.found:
        if simulated:
            remark = " (its times are simulated)" if any(map(_own_time, finding.content.splitlines())) else ""
            yield TimelineEntry(
                time=collected, kind="finding", where=finding.source + remark, text=f"{finding.what}: {finding.content}"
            )
            continue
        for time, content in _by_time(finding.content, collected):
            yield TimelineEntry(time=time, kind="finding", where=finding.source, text=f"{finding.what}: {content}")


def _revision(revision: model.RevisionReport) -> str:
    planned = f"planned chart {revision.chart or 'none'}, values {revision.planned or 'none'}"
    return f"{planned}; compared with {', '.join(revision.compared) or 'nothing'}; synced {', '.join(revision.synced) or 'nothing'}"


def _of_attempt(attempt: model.Attempt, hosts: set[str]) -> Iterator[TimelineEntry]:
    where = f"{attempt.stage}/{attempt.task}" + (f" shard {attempt.shard}" if attempt.shard else "")
    yield TimelineEntry(time=attempt.started, kind="task", where=where, text=f"{attempt.verb} started, attempt {attempt.attempt}")
    for change in host_ranges.fold_lines(attempt.changes, hosts):
        yield TimelineEntry(time=attempt.finished, kind="change", where=where, text=change)
    text = f"{attempt.status}: {attempt.reason}" if attempt.reason else (attempt.error or attempt.status)
    yield TimelineEntry(time=attempt.finished, kind="verdict", where=where, text=text)


def _of_lost(attempt: LostAttempt) -> TimelineEntry:
    where = f"{attempt.stage}/{attempt.task}" + (f" shard {attempt.shard}" if attempt.shard else "")
    took = f" {attempt.finished - attempt.started:.0f} s after its start" if attempt.started else ""
    return TimelineEntry(time=attempt.finished, kind="task", where=where, text=f"an attempt was lost{took}: {attempt.message}")


def _by_time(content: str, otherwise: float) -> Iterator[tuple[float, str]]:
    """Yield (time, lines) for each part of a text, in UTC seconds. A part begins at each line that begins with a time.

    `otherwise` is the time of lines before the first such line.
    """
    time, lines = otherwise, list[str]()
    for line in content.splitlines():
        own = _own_time(line)
        if own is not None and lines:
            yield time, "\n".join(lines)
            lines = []
        # lines without a time belong to the last one with a time
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
