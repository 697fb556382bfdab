"""Compare two plans: list changed cluster fields, hosts, releases, files, approvals, gates and tasks with old and new value."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.delivery import Publication
from steps.contract.host_ranges import fold
from steps.contract.runs import approval
from steps.contract.runs.operation import RELEASES
from steps.contract.task import Verb
from steps.stages.rke2.contract import parse_version
from workflows.catalog.resolve import may_upgrade
from workflows.plan import show
from workflows.plan.model import Plan, PlanError
from workflows.stages.stage import Approval, Stage

MOST = 6
"""Largest number of changed values printed for one host group, release or task; `changes` returns all of them."""

_RELEASE_FIELDS = (
    *("version", "digest", "source", "namespace", "release_name", "timeout_seconds", "rollout", "health", "rollback"),
    *("objects", "values"),
)
_REPEATED = re.compile(r"^(arguments\.)?((gate_)?expectations\.)?")
ABSENT = "(none)"
"""Text printed in place of a value for a path that only one of the two plans has."""

LONGEST = 60
_NAMES = ("name", "task", "id", "key")

Leaf = tuple[str, Any, Any]
"""A dotted path, its old value and its new value; a value is None where the path is missing."""


class PlanDifference(Struct, frozen=True, kw_only=True):
    """One difference between two plans, as `bringup plan --against` prints it or gives it to scripts.

    `what` is the kind of the changed thing (cluster, hosts, release, revision, file, approval, gates, stage or task) and `name` its
    name. `how` is `added`, `removed` or `changed`; for a revision it is `not changed`. `path` is the dotted path of the changed
    value, `before` and `after` are its old and new value, and `note` is text that ends the printed line.
    """

    what: str
    name: str
    how: str = "changed"
    path: str = ""
    before: Any = None
    after: Any = None
    note: str = ""


def differences(before: Plan, after: Plan) -> tuple[str, ...]:
    """Return all differences as lines for a person; empty for two equal plans. Raises PlanError as `changes` does."""
    grouped: dict[tuple[str, str, str], list[PlanDifference]] = defaultdict(list)
    for change in changes(before, after):
        grouped[change.what, change.name, change.how].append(change)
    return tuple(line for group in grouped.values() for line in _lines(group))


def changes(before: Plan, after: Plan) -> tuple[PlanDifference, ...]:
    """Return all differences between two plans in running order; empty if the plans are equal.

    Raises PlanError if a release cannot be upgraded to its new version in one step (rule P14).
    """
    # schedule and events are outside the digest
    started = tuple(_changed("cluster", after.name, differing_leaves(show.starts(before), show.starts(after))))
    if before.digest == after.digest:
        return started
    refused = tuple(_refused_upgrades(before, after))
    if refused:
        raise PlanError("; ".join(refused))
    parts = (_identity, _hosts, _rke2, _releases, _files, _stages, _tasks)
    result = (*(change for part in parts for change in part(before, after)), *started)
    # the digests differ, so never report two different plans as equal
    return result or (PlanDifference(what="cluster", name=after.name, path="plan", before=before.digest, after=after.digest),)


def _lines(group: list[PlanDifference]) -> Iterator[str]:
    first = group[0]
    subject = "" if first.what == "cluster" else f"{first.what} {first.name}"
    subject += " runs again" if first.what == "task" and first.how == "changed" else ""
    for change in group[:MOST]:
        if change.how != "changed":
            yield f"{subject}: {change.how}{change.note}" if change.what != "hosts" else f"hosts {change.how}: {change.name}"
        else:
            path = "" if change.what == "release" and change.path == "version" else change.path
            values = f"{short_text(change.before)} → {short_text(change.after)}"
            yield ": ".join(filter(None, (subject, path, values))) + change.note
    if len(group) > MOST:
        more = len(group) - MOST
        yield f"{subject}: and {more} more {'value' if more == 1 else 'values'}"


def _changed(what: str, name: str, leaves: Iterable[Leaf]) -> Iterator[PlanDifference]:
    for path, old, new in leaves:
        yield PlanDifference(what=what, name=name, path=path.strip(), before=old, after=new)


def _refused_upgrades(before: Plan, after: Plan) -> Iterator[str]:
    old = {release.id: release for release in before.releases}
    for release in after.releases:
        known = old.get(release.id)
        if known is not None and not may_upgrade(known.version, release.upgrade_from):
            lines = " or ".join(release.upgrade_from)
            yield f"{release.id} cannot go from {known.version} to {release.version} in one step: only from {lines} (P14)"


def _identity(before: Plan, after: Plan) -> Iterator[PlanDifference]:
    for name in ("name", "owner", "revision", "target_uid"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield PlanDifference(what="cluster", name=after.name, path=name, before=old or None, after=new or None)


def _hosts(before: Plan, after: Plan) -> Iterator[PlanDifference]:
    """Yield a difference for removed and for added hosts (as ranges), and for each changed value with the range of its hosts."""
    old, new = ({host.name: msgspec.to_builtins(host) for host in plan.hosts} for plan in (before, after))
    for how, these, others in (("removed", old, new), ("added", new, old)):
        if names := [name for name in these if name not in others]:
            yield PlanDifference(what="hosts", name=fold(names), how=how)
    alike: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name in (name for name in new if name in old):
        for path, old_value, new_value in differing_leaves(old[name], new[name]):
            alike[path, short_text(old_value), short_text(new_value)].append(name)
    for (path, old_value, new_value), names in alike.items():
        yield PlanDifference(what="hosts", name=fold(names), path=path, before=old_value, after=new_value)


def _releases(before: Plan, after: Plan) -> Iterator[PlanDifference]:
    old, new = ({release.id: release for release in plan.releases} for plan in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            note = " from the plan (nothing uninstalls it)"
            yield PlanDifference(what="release", name=name, how="removed", before=old[name].version, note=note)
        elif name not in old:
            old_value = new[name]
            note = f" at {old_value.version} from {old_value.source} into namespace {old_value.namespace}"
            yield PlanDifference(what="release", name=name, how="added", after=old_value.version, note=note)
        else:
            fields = [{part: getattr(releases[name], part) for part in _RELEASE_FIELDS} for releases in (old, new)]
            yield from _changed("release", name, differing_leaves(fields[0], fields[1]))


def _rke2(before: Plan, after: Plan) -> Iterator[PlanDifference]:
    """Yield a change of the RKE2 version as a difference of its own, which names the command that performs it.

    People look for this change first.
    """
    old, new = (_rke2_version(plan) for plan in (before, after))
    old_version, new_version = parse_version(old), parse_version(new)
    if old_version is None or new_version is None or old_version == new_version:
        return
    if show.operation(after).partition(" ")[0] in RELEASES:
        note = ""
    elif new_version < old_version:
        note = ", which is older: this is for `bringup rollback`, which sets etcd back to its snapshot from before the upgrade"
    else:
        note = ": this is for `bringup upgrade`, which saves etcd, drains, and goes server by server"
    yield PlanDifference(what="release", name="rke2", path="version", before=old, after=new, note=note)


def _rke2_version(plan: Plan) -> str:
    """Return the RKE2 version that the task `rke2.servers` installs; empty for a plan without that task."""
    played = (task.arguments for task in plan.tasks if (task.stage, task.name) == ("rke2", "servers"))
    return next((str(arguments.get("variables", {}).get("rke2_version", "")) for arguments in played), "")


def _stages(before: Plan, after: Plan) -> Iterator[PlanDifference]:
    """Yield added and removed stages, and changed approvals and gates of stages that both plans have."""
    old, new = ({stage.id: stage for stage in plan.stages} for plan in (before, after))
    for name in (*old, *(name for name in new if name not in old)):
        if name not in new:
            yield PlanDifference(what="stage", name=name, how="removed")
        elif name not in old:
            yield PlanDifference(what="stage", name=name, how="added", note=f": {', '.join(step.name for step in new[name].steps)}")
        yield from _approvals(name, old.get(name), new.get(name))
        if name in old and name in new and old[name].gates != new[name].gates:
            yield PlanDifference(what="gates", name=f"of {name}", before=list(old[name].gates), after=list(new[name].gates))


def _approvals(name: str, old: Stage | None, new: Stage | None) -> Iterator[PlanDifference]:
    old_approval, new_approval = (stage.approval if stage else None for stage in (old, new))
    if old_approval == new_approval:
        return
    subject = f"before {name}"
    if new_approval is None:
        yield PlanDifference(what="approval", name=subject, how="removed")
    elif old_approval is None:
        yield PlanDifference(what="approval", name=subject, how="added", note=f": {show.approval_text(new_approval)}")
    else:
        yield from _changed("approval", subject, differing_leaves(_approval_fields(old_approval), _approval_fields(new_approval)))


def _approval_fields(approval: Approval) -> dict[str, Any]:
    keys_by_name = {name: ", ".join(keys) or "by name" for name, keys in approval.approvers.items()}
    return {
        "approvers": keys_by_name,
        "timeout": show.duration_text(approval.timeout_seconds),
        "announced": approval.announced or "not announced",
    }


def _tasks(before: Plan, after: Plan) -> Iterator[PlanDifference]:
    """Yield added, removed and changed tasks of stages that both plans have. A task with changed input runs again."""
    old, new = ({(task.stage, task.name): task for task in plan.tasks} for plan in (before, after))
    both = {stage.id for stage in before.stages} & {stage.id for stage in after.stages}
    approvals_by_stage = [{stage.id: stage.approval for stage in plan.stages} for plan in (before, after)]
    for key in (*new, *(key for key in old if key not in new)):
        stage, name = key
        if stage not in both or (name in approval.TASKS and approvals_by_stage[0][stage] != approvals_by_stage[1][stage]):
            # the run's own tasks always differ; added stages and changed approvals have lines of their own
            continue
        if key not in new or key not in old:
            yield PlanDifference(what="task", name=".".join(key), how="removed" if key not in new else "added")
        elif old[key].input_digest != new[key].input_digest:
            leaves = differing_leaves(msgspec.to_builtins(old[key]), msgspec.to_builtins(new[key]))
            yield from _changed("task", ".".join(key), _without_repeats(leaves))


def _without_repeats(leaves: Iterable[Leaf]) -> Iterator[Leaf]:
    """Yield the differences of a task without those in its expectations that only repeat a difference in its arguments."""
    seen: set[tuple[str, str]] = set()
    for path, old_value, new_value in leaves:
        change = (_REPEATED.sub("", path), f"{old_value} {new_value}")
        if change not in seen:
            seen.add(change)
            yield path, old_value, new_value


def _files(before: Plan, after: Plan) -> Iterator[PlanDifference]:
    """Yield the changed files that verb `publish` would commit to Git, if both plans publish; else nothing.

    If the pinned tag is unchanged although files are not, the first difference says so, because a tag is never moved.
    """
    if not before.tree or not after.tree or before.tree == after.tree:
        return
    publishing = (next(task.arguments for task in plan.tasks if task.verb is Verb.PUBLISH) for plan in (before, after))
    old, new = (msgspec.convert(arguments, Publication) for arguments in publishing)
    if (old.repo, old.revision) == (new.repo, new.revision) and not new.is_commit:
        note = ", though its files are: a tag is never moved, so write a new revision"
        yield PlanDifference(what="revision", name=new.revision, how="not changed", note=note)
    for path in sorted(before.tree.keys() | after.tree.keys()):
        if path not in after.tree or path not in before.tree:
            yield PlanDifference(what="file", name=path, how="removed" if path not in after.tree else "added")
        else:
            yield from _changed("file", path, differing_leaves(before.tree[path], after.tree[path]))


def differing_leaves(before: Any, after: Any, path: str = "") -> Iterator[Leaf]:
    """Yield path, old and new value of every innermost value that differs between two nested values, in order.

    Maps in lists are matched by their name if all have unique names, else by position.
    """
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _each(before, after, f"{path}." if path else "")
    elif _is_list(before) and _is_list(after) and (_is_nested(before) or _is_nested(after)):
        yield from _each(_by_name(before), _by_name(after), path)
    elif isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        yield _first_line(before, after, path)
    else:
        yield path, before, after


def short_text(value: Any) -> str:
    """Return a value as text on one line, cut to `LONGEST` characters; `ABSENT` for None."""
    if value is None:
        return ABSENT
    text = _flow(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _each(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str) -> Iterator[Leaf]:
    for key in (*before, *(key for key in after if key not in before)):
        yield from differing_leaves(before.get(key), after.get(key), f"{prefix}{key}")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_nested(values: Sequence[Any]) -> bool:
    return any(isinstance(value, Mapping) for value in values)


def _by_name(values: Sequence[Any]) -> dict[str, Any]:
    """Return list items by their label in a path: `[Job nccl]`, `[worker]`, or `[2]` if names are missing or not unique."""
    names = [_name(value) for value in values]
    unique = all(names) and len(set(names)) == len(names)
    return {f"[{name if unique else number}]": value for number, (name, value) in enumerate(zip(names, values, strict=True))}


def _name(value: Any) -> str:
    if not isinstance(value, Mapping):
        return ""
    if isinstance(value.get("metadata"), Mapping):
        return f"{value.get('kind', '')} {value['metadata'].get('name', '')}".strip()
    return next((str(value[key]) for key in _NAMES if isinstance(value.get(key), str)), "")


def _first_line(before: str, after: str, path: str) -> Leaf:
    """Return path, old and new text of the first line at which two texts differ; None for a line that one of them lacks.

    The path looks like `valuesContent line 3`.
    """
    old, new = before.splitlines(), after.splitlines()
    number = next((row for row, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new)))
    first, second = (lines[number].strip() if number < len(lines) else None for lines in (old, new))
    return f"{path} line {number + 1}", first, second


def _flow(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if _is_list(value):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return " ".join(str(value).split()) if str(value) else '""'
