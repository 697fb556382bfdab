"""A plan as data and as text: what each stage changes, where, what reboots, how it is rolled back."""

from typing import Any

from workflows.plan.model import Plan
from workflows.spec.ranges import compress
from workflows.stages.stage import Stage


def to_data(plan: Plan) -> dict[str, Any]:
    """The plan for scripts: JSON data with stable keys, tasks with their input digests."""
    return {
        "cluster": plan.name,
        "owner": plan.owner,
        "revision": plan.revision,
        "targetUid": plan.target_uid,
        "digest": plan.digest,
        "hosts": {"count": len(plan.hosts), "ranges": compress([host.name for host in plan.hosts])},
        "releases": [_release(release) for release in plan.releases],
        "issues": [_issue(issue) for issue in plan.issues],
        "stages": [_stage(plan, stage) for stage in plan.stages],
    }


def tree(plan: Plan) -> list[str]:
    """The plan as an indented outline, one line an entry."""
    lines = [f"{plan.name} ({len(plan.hosts)} hosts, plan {plan.digest[:19]})"]
    for stage in plan.stages:
        if stage.approval:
            who = ", ".join(stage.approval.approvers) or "anybody who may approve"
            lines.append(f"├─ approval before {stage.id}: {who}, within {stage.approval.timeout_seconds} s, else the run stops")
        lines.append(f"├─ {stage.id}: {stage.title}")
        lines += [f"│   ├─ {step.name}: {step.task.verb.value}{_gate(step.task.arguments)}" for step in stage.steps]
        lines += [
            f"│   ├─ changes {change.what} on {change.where}{' (reboots)' if change.reboots else ''}" for change in stage.changes
        ]
        lines.append(f"│   └─ rollback: {stage.rollback}")
    return lines


def rows(plan: Plan) -> list[tuple[str, str, str, str, str]]:
    """The plan as table rows: stage, what changes, where, gates, rollback."""
    return [
        (
            stage.id,
            "; ".join(change.what + (" (reboots)" if change.reboots else "") for change in stage.changes) or "nothing",
            "; ".join(change.where for change in stage.changes) or "-",
            ", ".join(gate.partition("/")[2] for gate in stage.gates),
            stage.rollback,
        )
        for stage in plan.stages
    ]


def _stage(plan: Plan, stage: Stage) -> dict[str, Any]:
    tasks = [plan.confirm_tasks[stage.id]] if stage.approval else []
    tasks += [step.task for step in stage.steps]
    return {
        "id": stage.id,
        "title": stage.title,
        "approvalBefore": sorted(stage.approval.approvers) if stage.approval else None,
        "gates": list(stage.gates),
        "releases": list(stage.releases),
        "changes": [{"what": change.what, "where": change.where, "reboots": change.reboots} for change in stage.changes],
        "rollback": stage.rollback,
        "tasks": [
            {"name": task.name, "verb": task.verb.value, "deadlineSeconds": task.deadline_seconds, "inputDigest": task.input_digest}
            for task in tasks
        ],
    }


def _release(release: Any) -> dict[str, Any]:
    names = ("id", "stage", "source", "version", "digest", "namespace", "rollout", "health", "rollback")
    return {name: getattr(release, name) for name in names} | {
        "values": [f"{layer.origin}: {', '.join(layer.keys)}" for layer in release.provenance]
    }


def _issue(issue: Any) -> dict[str, Any]:
    names = ("rule", "severity", "path", "problem", "fix", "source", "checked_later")
    return {name: getattr(issue, name) for name in names}


def _gate(arguments: dict[str, Any]) -> str:
    return f" → gate {arguments['gate']}" if arguments.get("gate") else ""
