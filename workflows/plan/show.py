"""Show a plan as data or as text: the changes of each stage, on which hosts, with which reboots, and the way back."""

from typing import Any

from steps.contract import plain_text
from steps.contract.host_ranges import fold
from workflows.catalog import PlannedRelease, unverified_values
from workflows.plan.model import Plan
from workflows.spec import Issue
from workflows.spec.pipelines.git_schedule import GitSchedule
from workflows.stages.stage import COMMAND, WEBHOOK, Approval, Stage

COLUMNS = ("stage", "changes", "where", "gates", "rollback")
"""Column names of `table_rows`."""


def to_data(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON data with stable keys for scripts, including the input digest of each task."""
    return {
        "cluster": plan.name,
        "owner": plan.owner,
        "revision": plan.revision,
        "targetUid": plan.target_uid,
        "digest": plan.digest,
        **({"operation": operation_text} if (operation_text := operation(plan)) else {}),
        "hosts": {"count": len(plan.hosts), "ranges": fold([host.name for host in plan.hosts])},
        "releases": [_release(release) for release in plan.releases],
        "issues": [_issue(issue) for issue in plan.issues],
        **({"untested": [_fields(part, "stage", "test", "reason") for part in plan.untested]} if plan.untested else {}),
        "stages": [_stage(plan, stage) for stage in plan.stages],
    }


def operation(plan: Plan) -> str:
    """Return the operation of a plan and its hosts as text, such as `reset h[1-2]`; empty for a whole bring-up."""
    return str(plan.open_task.arguments.get("operation", ""))


def is_targetless(plan: Plan) -> bool:
    """Return True if the plan has no target cluster and no hosts, as the plan of a node image."""
    return bool(plan.open_task.arguments.get("targetless"))


def size_text(plan: Plan) -> str:
    """Return the size of a run as text, such as `16 hosts, 9 stages`; without hosts only the number of stages."""
    hosts = f"{plain_text.count(len(plan.hosts), 'host')}, " if plan.hosts else ""
    return f"{hosts}{plain_text.count(len(plan.stages), 'stage')}"


def starts(plan: Plan) -> dict[str, Any]:
    """Return schedule and events as JSON data; for a narrowed plan the schedule is null and the list of events empty.

    `to_data` leaves them out, because the plan's digest does not cover them.
    """
    schedule, events = (plan.starts.schedule, plan.starts.events) if plan.starts else (None, ())
    timed = (
        {
            "cron": list(schedule.cron),
            "timezone": schedule.timezone,
            "startingDeadlineSeconds": int(schedule.starting_deadline.total_seconds()),
            "suspend": schedule.suspend,
            **({"source": _fields(schedule.source, "repository", "branch", "path")} if isinstance(schedule, GitSchedule) else {}),
        }
        if schedule
        else None
    )
    return {"schedule": timed, "events": [{"name": event.name, "selector": event.selector} for event in events]}


def issues(plan: Plan) -> list[dict[str, Any]]:
    """Return every warning of the spec as JSON data, including those caused by schedule and events."""
    return [_issue(issue) for issue in (*plan.issues, *(plan.starts.issues if plan.starts else ()))]


def warnings(plan: Plan) -> list[str]:
    """Return the warnings caused by schedule and events as lines with place and fix; `bringup validate` prints all others."""
    issues_of_starts = plan.starts.issues if plan.starts else ()
    return [f"{issue.severity} {issue.rule} {issue.path}: {issue.problem}; fix: {issue.fix}" for issue in issues_of_starts]


def untested_lines(plan: Plan) -> list[str]:
    """Return a line for each test that the configuration rules out, or that runs at a lower level."""
    return [f"stage {part.stage}: {part.sentence}" for part in plan.untested]


def start_lines(plan: Plan) -> list[str]:
    """Return the schedule and each event as a line of text; empty if the plan has none."""
    schedule, events = (plan.starts.schedule, plan.starts.events) if plan.starts else (None, ())
    lines = []
    if schedule:
        suspended = ", suspended" if schedule.suspend else ""
        source = schedule.source if isinstance(schedule, GitSchedule) else None
        origin = f" from branch {source.branch} of {source.repository}" if source else ""
        lines.append(f"Argo starts it by itself{origin}: {' and '.join(schedule.cron)} ({schedule.timezone}{suspended})")
    return [*lines, *(f"Argo starts it on the event {event.name}: {event.selector}" for event in events)]


def outline(plan: Plan) -> list[str]:
    """Return the plan as lines of an indented outline: stages, approvals, tasks with gates, changes, releases, rollback."""
    prefix = f"{operation_text}, " if (operation_text := operation(plan)) else ""
    hosts = "" if is_targetless(plan) else f"{len(plan.hosts)} hosts, "
    lines = [f"{plan.name} ({prefix}{hosts}plan {plan.digest[:19]})"]
    for stage in plan.stages:
        if stage.approval:
            lines.append(f"├─ approval before {stage.id}: {approval_text(stage.approval)}")
        lines.append(f"├─ {stage.id}: {stage.title}")
        gates = ((step, step.task.arguments.get("gate")) for step in stage.steps)
        lines += [f"│   ├─ {step.name}: {step.task.verb.value}{f' → gate {gate}' if gate else ''}" for step, gate in gates]
        lines += [
            f"│   ├─ changes {change.what} on {change.where}{' (reboots)' if change.reboots else ''}" for change in stage.changes
        ]
        lines += [
            f"│   ├─ release {', '.join(_release_facts(release))}" for release in plan.releases if release.id in stage.releases
        ]
        lines.append(f"│   └─ rollback: {stage.rollback}")
    return [*lines, *(f"├─ {line}" for line in (*untested_lines(plan), *start_lines(plan)))]


def approval_text(approval: Approval) -> str:
    """Return an approval as text: who may approve and how, how the approval is announced, and how long the run waits."""
    approvers = (
        ", ".join(f"{name} (signed)" if keys else name for name, keys in approval.approvers.items()) or "anybody who may approve"
    )
    channel = {WEBHOOK: ", announced by webhook", COMMAND: ", announced by a command on the machine that follows the run"}.get(
        approval.announced, ""
    )
    return f"{approvers}{channel}, within {duration_text(approval.timeout_seconds)}, else the run stops"


def duration_text(seconds: int) -> str:
    """Return a number of seconds in the form that a spec uses: `24h`, `1h30m`, `45s`."""
    parts = ((seconds // 3600, "h"), (seconds % 3600 // 60, "m"), (seconds % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def release_lines(plan: Plan) -> list[str]:
    """Return lines for each release: id, version, namespace and stage, then indented source, rollout, health and rollback."""
    lines = []
    for release in plan.releases:
        head, *rest = _release_facts(release)
        lines += [f"release {head}", *(f"  {line}" for line in rest)]
    return lines


def _release_facts(release: PlannedRelease) -> list[str]:
    parts = {
        "source": release.source,
        "rollout": release.rollout.replace("_", " "),
        "healthy when": release.health,
        "rollback": release.rollback,
    }
    if keys := unverified_values(release):
        parts["unverified values"] = ", ".join(keys)
    head = f"{release.id} {release.version} in namespace {release.namespace} (stage {release.stage})"
    return [head, *(f"{name}: {text}" for name, text in parts.items())]


def table_rows(plan: Plan) -> list[tuple[str, str, str, str, str]]:
    """Return the plan as table rows with the columns `COLUMNS`: a row per stage, preceded by a row for its approval."""
    result = []
    for stage in plan.stages:
        if stage.approval:
            result.append(("approval", f"before {stage.id}: {approval_text(stage.approval)}", "-", "-", "-"))
        result.append(_row(stage))
    return result


def _row(stage: Stage) -> tuple[str, str, str, str, str]:
    changes = [change.what + (" (reboots)" if change.reboots else "") for change in stage.changes]
    where = [change.where.replace("],", "], ") for change in stage.changes]
    gates = ", ".join(gate.partition("/")[2] for gate in stage.gates)
    return stage.id, "; ".join(changes) or "nothing", "; ".join(where) or "-", gates, stage.rollback


def _stage(plan: Plan, stage: Stage) -> dict[str, Any]:
    tasks = [*plan.approval_tasks(stage), *(step.task for step in stage.steps)]
    graphs = {step.name: len(step.graph) for step in stage.steps if step.graph}
    return {
        "id": stage.id,
        "title": stage.title,
        "approvalBefore": sorted(stage.approval.approvers) if stage.approval else None,
        "gates": list(stage.gates),
        "releases": list(stage.releases),
        "changes": [_fields(change, "what", "where", "reboots") for change in stage.changes],
        "rollback": stage.rollback,
        "tasks": [
            {"name": task.name, "verb": task.verb.value, "deadlineSeconds": task.deadline_seconds, "inputDigest": task.input_digest}
            for task in tasks
        ],
        # a task that runs as a graph: how many pods or processes
        **({"graphs": graphs} if graphs else {}),
    }


def _release(release: PlannedRelease) -> dict[str, Any]:
    fields = _fields(release, "id", "stage", "source", "version", "digest", "namespace", "rollout", "health", "rollback")
    unverified = list(unverified_values(release))
    values = [f"{layer.origin}: {', '.join(layer.keys)}" for layer in release.provenance]
    return fields | {"values": values} | ({"unverified": unverified} if unverified else {})


def _issue(issue: Issue) -> dict[str, Any]:
    return _fields(issue, "rule", "severity", "path", "problem", "fix", "source", "checked_later")


def _fields(value: object, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}
