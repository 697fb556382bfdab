"""The compiler, spec → plan: resolve the catalog, build each stage, attach approvals, and compute all digests."""

import difflib
import importlib
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from steps.contract.canonical import digest
from steps.contract.operation import BRINGUP, STANDING, Kind, Operation
from steps.contract.task import Task, Verb
from workflows import catalog as catalogs
from workflows.plan import approvals, fleet, judging, lease, operations
from workflows.plan.model import Plan, PlanError, Starts
from workflows.spec import announcement_rule
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.machines import expand_groups
from workflows.stages import OPERATIONS, ORDER, site_roles
from workflows.stages.access import api_arguments, secret_files, ssh_arguments
from workflows.stages.site import Site
from workflows.stages.stage import Stage

END_TASKS = (
    Task(stage=approvals.RUN, name="report", verb=Verb.REPORT, deadline_seconds=300),
    Task(stage=approvals.RUN, name="seal", verb=Verb.SEAL, deadline_seconds=300),
)
"""The tasks that end every run, however it went."""

OPEN_SECONDS = 300
"""Time to query a handful of servers over SSH, with one retry for a server that does not answer."""


def compile_plan(
    spec: ClusterSpec,
    catalog: catalogs.Catalog | None = None,
    only: Sequence[str] = (),
    until: str = "",
    operation: Operation = BRINGUP,
) -> Plan:
    """Return the plan of a spec; pure.

    `only` and `until` narrow the stages; `operation` narrows the work and the hosts that it touches. Raises PlanError for a stage
    that the spec leaves out or a host that it does not have, and SpecErrors for a breach of a compatibility rule.
    """
    known = catalog or catalogs.load()
    issues = catalogs.require(spec, known)
    releases = catalogs.resolve(spec, known)
    machines = expand_groups(spec.hosts, spec.accelerator.per_node if spec.accelerator else 0)
    site = Site(spec=spec, machines=machines, releases={release.id: release for release in releases}, operation=operation)
    operations.check(site)
    all_stages = _stages(site)
    stages = approvals.attached(_narrowed(all_stages, only, until), spec.approvals)
    hosts = fleet.hosts(machines, operation)
    used = {name for stage in stages for name in stage.releases}
    planned = tuple(release for release in releases if release.id in used)
    # everything that decides what a run does; times of starts and proxies are left out on purpose
    parts = {
        "cluster": [spec.name, spec.owner, spec.revision, spec.target.uid or ""],
        "stages": [_plain(stage.digested) for stage in stages],
        "hosts": msgspec.to_builtins(hosts),
        "releases": [_plain(release) for release in planned],
    } | operations.said(site)
    announce_tasks = approvals.announce_tasks(spec.name, spec.approvals, stages)
    whole = digest(parts | _private(announce_tasks))
    return Plan(
        name=spec.name,
        owner=spec.owner,
        revision=spec.revision,
        target_uid=spec.target.uid or "",
        accelerator=spec.accelerator.product.lower() if spec.accelerator else "",
        built=fleet.built(spec),
        stages=stages,
        hosts=hosts,
        releases=planned,
        issues=issues,
        secrets=secret_files(spec),
        digest=whole,
        open_task=_open_task(spec, whole, stages, _left_out(all_stages, stages), site),
        confirm_tasks=approvals.confirm_tasks(stages),
        announce_tasks=announce_tasks,
        end_tasks=END_TASKS,
        tree=site.tree if _publishes(stages) else {},
        archives=site_roles.archives(spec.roles, stages),
        # a narrowed plan must not replace the schedule of the whole plan
        starts=None if only or until or operation != BRINGUP else _starts(spec),
    )


def _starts(spec: ClusterSpec) -> Starts:
    return Starts(schedule=spec.schedule, events=spec.events, issues=tuple(announcement_rule.cluster_issues(spec)))


def _private(announce_tasks: dict[str, Task]) -> dict[str, Any]:
    """Return the part of the digest for webhooks with a site's own CA: their pods have one more file, which no stage names."""
    stages = [stage for stage, one in announce_tasks.items() if "ca" in one.arguments]
    return {"announce_ca": stages} if stages else {}


def _stages(site: Site) -> tuple[Stage, ...]:
    wanted = site.spec.stages
    order = OPERATIONS if site.operation.kind is Kind.RESET else ORDER
    names = (name for name in order if wanted is None or name in wanted or name in OPERATIONS)
    built = (importlib.import_module(f"workflows.stages.{name}").build(site) for name in names)
    return tuple(judging.complete(site_roles.added(stage, site), site) for stage in built if stage is not None)


def _publishes(stages: tuple[Stage, ...]) -> bool:
    return any(step.task.verb is Verb.PUBLISH for stage in stages for step in stage.steps)


def _narrowed(stages: tuple[Stage, ...], only: Sequence[str], until: str) -> tuple[Stage, ...]:
    present = [stage.id for stage in stages]
    for name in (*only, *([until] if until else [])):
        if name not in ORDER:
            near = difflib.get_close_matches(name, ORDER, n=1, cutoff=0.5)
            meant = f"did you mean {near[0]}?" if near else f"stages are {', '.join(ORDER)}"
            raise PlanError(f"{name!r} is no stage; {meant}")
        if name not in present:
            has = ", ".join(present)
            raise PlanError(
                f"stage {name} is not in this plan; the spec has {has}: name one of these, or list {name} in its stages"
            )
    if only:
        return tuple(stage for stage in stages if stage.id in only)
    return stages[: present.index(until) + 1] if until else stages


def _left_out(every: tuple[Stage, ...], stages: tuple[Stage, ...]) -> list[str]:
    """Return the stages of the spec before the last planned one that a narrowed plan leaves out: their results are not checked."""
    planned = [stage.id for stage in stages]
    before = itertools.takewhile(lambda stage: stage.id != planned[-1], every) if planned else ()
    return [stage.id for stage in before if stage.id not in planned]


def _open_task(spec: ClusterSpec, plan: str, stages: tuple[Stage, ...], left_out: list[str], site: Site) -> Task:
    """Return the task that starts the run. If the plan plays on hosts, it first asks the servers which cluster they belong to."""
    header: dict[str, Any] = {
        "plan": plan,
        "cluster": spec.name,
        "owner": spec.owner,
        "revision": spec.revision,
        "target_uid": spec.target.uid or "",
        "lease_seconds": lease.seconds(stages),
    }
    header |= ({"left_out": left_out} if left_out else {}) | operations.said(site)
    header |= {"standing": True} if site.operation.kind in STANDING else {}
    plays = any(step.task.verb is Verb.PLAY for stage in stages for step in stage.steps)
    header |= {"ssh": ssh_arguments(spec), "registration": spec.registration_address, **api_arguments(spec)} if plays else {}
    return Task(stage=approvals.RUN, name="open", verb=Verb.OPEN, arguments=header, deadline_seconds=OPEN_SECONDS)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=_encode)


def _encode(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return dict(value)
