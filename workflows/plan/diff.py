"""What differs between two plans: stages, tasks, releases and hosts, each as one line."""

from collections.abc import Iterator

from workflows.plan.model import Plan
from workflows.spec.ranges import compress


def differences(before: Plan, after: Plan) -> tuple[str, ...]:
    """All differences in running order; empty when the two plans are the same plan."""
    if before.digest == after.digest:
        return ()
    return (*_identity(before, after), *_hosts(before, after), *_releases(before, after), *_tasks(before, after))


def _identity(before: Plan, after: Plan) -> Iterator[str]:
    for name in ("name", "owner", "revision", "target_uid"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield f"{name}: {old or 'none'} → {new or 'none'}"


def _hosts(before: Plan, after: Plan) -> Iterator[str]:
    old, new = ({host.name: host for host in plan.hosts} for plan in (before, after))
    gone, come = [name for name in old if name not in new], [name for name in new if name not in old]
    changed = [name for name in new if name in old and new[name] != old[name]]
    for word, names in (("removed", gone), ("added", come), ("changed", changed)):
        if names:
            yield f"hosts {word}: {compress(names)}"


def _releases(before: Plan, after: Plan) -> Iterator[str]:
    old, new = ({release.id: release for release in plan.releases} for plan in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"release {name} {old[name].version}: removed from the plan (nothing uninstalls it)"
        elif name not in old:
            yield f"release {name}: added at {new[name].version}"
        elif old[name] != new[name]:
            versions = f"{old[name].version} → {new[name].version}" if old[name].version != new[name].version else "values change"
            yield f"release {name}: {versions}"


def _tasks(before: Plan, after: Plan) -> Iterator[str]:
    old, new = ({f"{task.stage}.{task.name}": task.input_digest for task in plan.tasks} for plan in (before, after))
    for name in (*new, *(name for name in old if name not in new)):
        if name == "run.open":  # carries the plan's digest, so it always differs
            continue
        if name not in new:
            yield f"task {name}: removed"
        elif name not in old:
            yield f"task {name}: added"
        elif old[name] != new[name]:
            yield f"task {name}: runs again with other inputs"
