"""The difference of two plans: cluster, hosts, releases, files, approvals, gates and tasks, each with old and new value."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract import approval as approvals
from steps.contract.delivery import Publication
from steps.contract.host_ranges import fold
from steps.contract.operation import RELEASES
from steps.contract.task import Verb
from steps.stages.rke2.contract import parse_version
from workflows.catalog import PlannedRelease
from workflows.catalog.resolve import may_upgrade
from workflows.plan import leaves, show
from workflows.plan.model import Plan, PlanError
from workflows.stages.stage import Approval, Stage

MOST = 6
"""Largest number of changed values that is printed for one thing; scripts get all of them."""

_RELEASE = ("version", "digest", "source", "namespace", "release_name", "timeout_seconds", "rollout", "health", "rollback")
_REPEATED = re.compile(r"^(arguments\.)?((gate_)?expectations\.)?")
_TOO_LARGE = ("objects", "values")
"""Parts of a release that are compared leaf by leaf."""


class Change(Struct, frozen=True, kw_only=True):
    """A difference between two plans.

    `what` is cluster, hosts, release, revision, file, approval, gates, stage or task; `name` says which one; `path` is the place in
    it, with its value `before` and `after`. `how` is added, removed or changed; for a revision it is `not changed`.
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
    grouped: dict[tuple[str, str, str], list[Change]] = defaultdict(list)
    for change in changes(before, after):
        grouped[change.what, change.name, change.how].append(change)
    return tuple(line for group in grouped.values() for line in _lines(group))


def changes(before: Plan, after: Plan) -> tuple[Change, ...]:
    """Return all differences in running order; empty for two equal plans.

    Raises PlanError if a release cannot be upgraded to its new version in one step (rule P14).
    """
    started = tuple(_starts(before, after))
    if before.digest == after.digest:
        return started
    refused = tuple(_forbidden(before, after))
    if refused:
        raise PlanError("; ".join(refused))
    parts = (_identity, _hosts, _rke2, _releases, _files, _stages, _tasks)
    result = (*(change for part in parts for change in part(before, after)), *started)
    # the digests differ, so never report two different plans as equal
    return result or (Change(what="cluster", name=after.name, path="plan", before=before.digest, after=after.digest),)


def _lines(group: list[Change]) -> Iterator[str]:
    first = group[0]
    subject = "" if first.what == "cluster" else f"{first.what} {first.name}"
    subject += " runs again" if first.what == "task" and first.how == "changed" else ""
    for change in group[:MOST]:
        if change.how != "changed":
            yield f"{subject}: {change.how}{change.note}" if change.what != "hosts" else f"hosts {change.how}: {change.name}"
        else:
            path = "" if change.what == "release" and change.path == "version" else change.path
            values = f"{leaves.shown(change.before)} → {leaves.shown(change.after)}"
            yield ": ".join(filter(None, (subject, path, values))) + change.note
    if len(group) > MOST:
        more = len(group) - MOST
        yield f"{subject}: and {more} more {'value' if more == 1 else 'values'}"


def _forbidden(before: Plan, after: Plan) -> Iterator[str]:
    old = {release.id: release for release in before.releases}
    for release in after.releases:
        known = old.get(release.id)
        if known is not None and not may_upgrade(known.version, release.upgrade_from):
            lines = " or ".join(release.upgrade_from)
            yield f"{release.id} cannot go from {known.version} to {release.version} in one step: only from {lines} (P14)"


def _identity(before: Plan, after: Plan) -> Iterator[Change]:
    for name in ("name", "owner", "revision", "target_uid"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield Change(what="cluster", name=after.name, path=name, before=old or None, after=new or None)


def _starts(before: Plan, after: Plan) -> Iterator[Change]:
    """Yield the differences in schedule and events, which are outside the digest."""
    for path, old, new in leaves.differing(show.starts(before), show.starts(after)):
        yield Change(what="cluster", name=after.name, path=path, before=old, after=new)


def _hosts(before: Plan, after: Plan) -> Iterator[Change]:
    """Yield removed and added hosts as ranges, and changed hosts grouped by the change."""
    old, new = ({host.name: msgspec.to_builtins(host) for host in plan.hosts} for plan in (before, after))
    for how, names in (
        ("removed", [name for name in old if name not in new]),
        ("added", [name for name in new if name not in old]),
    ):
        if names:
            yield Change(what="hosts", name=fold(names), how=how)
    alike: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name in (name for name in new if name in old):
        for path, old_value, new_value in leaves.differing(old[name], new[name]):
            alike[path, leaves.shown(old_value), leaves.shown(new_value)].append(name)
    for (path, old_value, new_value), names in alike.items():
        yield Change(what="hosts", name=fold(names), path=path, before=old_value, after=new_value)


def _releases(before: Plan, after: Plan) -> Iterator[Change]:
    old, new = ({release.id: release for release in plan.releases} for plan in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            note = " from the plan (nothing uninstalls it)"
            yield Change(what="release", name=name, how="removed", before=old[name].version, note=note)
        elif name not in old:
            old_value = new[name]
            note = f" at {old_value.version} from {old_value.source} into namespace {old_value.namespace}"
            yield Change(what="release", name=name, how="added", after=old_value.version, note=note)
        else:
            leaf_changes = leaves.differing(_release(old[name]), _release(new[name]))
            yield from (
                Change(what="release", name=name, path=path, before=old_value, after=new_value)
                for path, old_value, new_value in leaf_changes
            )


def _rke2(before: Plan, after: Plan) -> Iterator[Change]:
    """Yield a change of RKE2's version as its own line with the command that performs it, since people look for it first."""
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
    yield Change(what="release", name="rke2", path="version", before=old, after=new, note=note)


def _rke2_version(plan: Plan) -> str:
    """Return the RKE2 version that servers get; empty for a plan without that task."""
    played = (task.arguments for task in plan.tasks if (task.stage, task.name) == ("rke2", "servers"))
    return next((str(arguments.get("variables", {}).get("rke2_version", "")) for arguments in played), "")


def _release(release: PlannedRelease) -> dict[str, Any]:
    return {name: getattr(release, name) for name in (*_RELEASE, *_TOO_LARGE)}


def _stages(before: Plan, after: Plan) -> Iterator[Change]:
    """Yield added and removed stages, and changed approvals and gates of the stages that both plans have."""
    old, new = ({stage.id: stage for stage in plan.stages} for plan in (before, after))
    for name in (*old, *(name for name in new if name not in old)):
        if name not in new:
            yield Change(what="stage", name=name, how="removed")
        elif name not in old:
            yield Change(what="stage", name=name, how="added", note=f": {', '.join(step.name for step in new[name].steps)}")
        yield from _approvals(name, old.get(name), new.get(name))
        if name in old and name in new and old[name].gates != new[name].gates:
            yield Change(what="gates", name=f"of {name}", before=list(old[name].gates), after=list(new[name].gates))


def _approvals(name: str, old: Stage | None, new: Stage | None) -> Iterator[Change]:
    old_approval, new_approval = (stage.approval if stage else None for stage in (old, new))
    if old_approval == new_approval:
        return
    subject = f"before {name}"
    if new_approval is None:
        yield Change(what="approval", name=subject, how="removed")
    elif old_approval is None:
        yield Change(what="approval", name=subject, how="added", note=f": {show.approval(new_approval)}")
    else:
        leaf_changes = leaves.differing(_asked(old_approval), _asked(new_approval))
        yield from (Change(what="approval", name=subject, path=path, before=old, after=new) for path, old, new in leaf_changes)


def _asked(approval: Approval) -> dict[str, Any]:
    keys_by_name = {name: ", ".join(keys) or "by name" for name, keys in approval.approvers.items()}
    return {
        "approvers": keys_by_name,
        "timeout": show.span(approval.timeout_seconds),
        "announced": approval.announced or "nobody is told",
    }


def _tasks(before: Plan, after: Plan) -> Iterator[Change]:
    """Yield changed tasks of the stages that both plans have: a changed input means that the task runs again."""
    old, new = ({(task.stage, task.name): task for task in plan.tasks} for plan in (before, after))
    both = {stage.id for stage in before.stages} & {stage.id for stage in after.stages}
    approvals_by_stage = [{stage.id: stage.approval for stage in plan.stages} for plan in (before, after)]
    for key in (*new, *(key for key in old if key not in new)):
        stage, name = key
        if stage not in both or (name in approvals.TASKS and approvals_by_stage[0][stage] != approvals_by_stage[1][stage]):
            # the run's own tasks always differ; added stages and changed approvals have lines of their own
            continue
        if key not in new or key not in old:
            yield Change(what="task", name=".".join(key), how="removed" if key not in new else "added")
        elif old[key].input_digest != new[key].input_digest:
            leaf_changes = _told_once(leaves.differing(msgspec.to_builtins(old[key]), msgspec.to_builtins(new[key])))
            yield from (
                Change(what="task", name=".".join(key), path=path, before=old_value, after=new_value)
                for path, old_value, new_value in leaf_changes
            )


def _told_once(leaf_changes: Iterable[leaves.Leaf]) -> Iterator[leaves.Leaf]:
    """Yield the differences without those in expectations that only repeat a difference in the arguments."""
    seen: set[tuple[str, str]] = set()
    for path, old_value, new_value in leaf_changes:
        change = (_REPEATED.sub("", path), f"{old_value} {new_value}")
        if change not in seen:
            seen.add(change)
            yield path, old_value, new_value


def _published(plan: Plan) -> Publication:
    return next(msgspec.convert(task.arguments, Publication) for task in plan.tasks if task.verb is Verb.PUBLISH)


def _files(before: Plan, after: Plan) -> Iterator[Change]:
    """Yield the changed files that verb `publish` would commit, if both plans publish."""
    if not before.tree or not after.tree or before.tree == after.tree:
        return
    old, new = map(_published, (before, after))
    if (old.repo, old.revision) == (new.repo, new.revision) and not new.is_commit:
        note = ", though its files are: a tag is never moved, so write a new revision"
        yield Change(what="revision", name=new.revision, how="not changed", note=note)
    for path in sorted(before.tree.keys() | after.tree.keys()):
        if path not in after.tree or path not in before.tree:
            yield Change(what="file", name=path, how="removed" if path not in after.tree else "added")
        else:
            for place, old_value, new_value in leaves.differing(before.tree[path], after.tree[path]):
                yield Change(what="file", name=path, path=place.strip(), before=old_value, after=new_value)
