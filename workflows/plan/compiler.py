"""Compile a spec into a plan: resolve the catalog, build each stage, attach approvals, and compute all digests."""

import dataclasses
import difflib
import importlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from steps.contract.canonical import digest
from steps.contract.fleet import TOUCHED
from steps.contract.host_ranges import fold
from steps.contract.objects import object_files
from steps.contract.run_records import LEASE_SECONDS
from steps.contract.runs.operation import BRINGUP, NEED_RUNNING_CLUSTER, Operation, OperationKind
from steps.contract.task import Task, Verb
from workflows import catalog as catalogs
from workflows.plan import approvals, run_folders, slurm_records
from workflows.plan.model import Plan, PlanError, Starts
from workflows.spec import Issue, announcement_rule
from workflows.spec.acceptance.untested import NCCL_INTER, runs, untested
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.gpu_pools import gpu_pools, joins_gpus, uniform, whole_pools
from workflows.stage_names import StageName
from workflows.stages import FOLLOWING, OPERATIONS, RUNNING_ORDER, site_roles
from workflows.stages.host_access import api_arguments, secret_files, ssh_arguments
from workflows.stages.stage import Site, Stage, Step

END_TASKS = (
    Task(stage=approvals.RUN, name="report", verb=Verb.REPORT, deadline_seconds=300),
    Task(stage=approvals.RUN, name="seal", verb=Verb.SEAL, deadline_seconds=300),
)
"""The tasks that run at the end of every run, whether it passed or failed."""

OPEN_SECONDS = 300
"""Deadline in seconds of the task `open`: a handful of servers over SSH, with one retry for a server that does not answer."""

NODES = "nodes"
"""Name of the check task whose gate judges nodes one by one, as gates of plays judge hosts one by one."""

_MAYBE = (Verb.JOB, Verb.PLAY)
"""Verbs that renew the lease only if they have work: a check of too few nodes, or a play on no host, ends without renewing."""


def compile_plan(
    spec: ClusterSpec,
    catalog: catalogs.Catalog | None = None,
    only: Sequence[str] = (),
    until: str = "",
    operation: Operation = BRINGUP,
) -> Plan:
    """Return the plan of a spec, without I/O other than reading the packaged catalog if `catalog` is None.

    `only` and `until` restrict the plan to some stages; `operation` restricts the work and the hosts that it changes.

    Raises:
        PlanError: a named stage or host is not in the spec, or the operation would break the cluster.
        SpecErrors: the spec breaks a compatibility rule.
    """
    spec = uniform(spec)
    known = catalog or catalogs.load()
    issues = catalogs.require(spec, known)
    releases = catalogs.resolve(spec, known)
    site = Site(spec=spec, machines=spec.machines, releases={release.id: release for release in releases}, operation=operation)
    _check_operation(site)
    return plan_site(
        site, issues, order=OPERATIONS if operation.kind is OperationKind.RESET else RUNNING_ORDER, only=only, until=until
    )


def plan_site(site: Site, issues: tuple[Issue, ...], *, order: Sequence[str], only: Sequence[str], until: str) -> Plan:
    """Return the plan of the stages in `order`, whose builders take `site`. `only` and `until` restrict it to some of them.

    Raises PlanError if a named stage is not in `order`, or not in the spec.
    """
    spec, operation, releases = site.spec, site.operation, tuple(site.releases.values())
    all_stages = _stages(site, order)
    stages = approvals.attach_approvals(_narrowed(all_stages, only, until, order), spec.approvals)
    hosts = run_folders.hosts(spec.machines, operation)
    used = {name for stage in stages for name in stage.releases}
    planned = tuple(release for release in releases if release.id in used)
    # everything that decides what a run does; times of starts and proxies are left out on purpose
    parts = {
        "cluster": [spec.name, spec.owner, spec.revision, spec.target.uid or ""],
        "stages": [_plain(stage.digested) for stage in stages],
        "hosts": msgspec.to_builtins(hosts),
        "releases": [_plain(release) for release in planned],
    } | _operation_header(site)
    announce_tasks = approvals.announce_tasks(spec.name, spec.approvals, stages)
    # the pod of a webhook with a site's own CA has one more file, which no stage names
    private = [stage for stage, task in announce_tasks.items() if "ca" in task.arguments]
    whole = digest(parts | ({"announce_ca": private} if private else {}))
    starts = Starts(schedule=spec.schedule, events=spec.events, issues=tuple(announcement_rule.cluster_issues(spec)))
    return Plan(
        name=spec.name,
        owner=spec.owner,
        revision=spec.revision,
        target_uid=spec.target.uid or "",
        accelerator=spec.accelerator.product.lower() if spec.accelerator else "",
        built=run_folders.machine_statements(spec),
        stages=stages,
        hosts=hosts,
        releases=planned,
        issues=issues,
        untested=tuple(part for part in untested(spec) if part.stage in {stage.id for stage in stages}),
        secrets=secret_files(spec),
        digest=whole,
        open_task=_open_task(spec, whole, stages, _excluded_stages(all_stages, stages, operation), site),
        confirm_tasks=approvals.confirm_tasks(stages),
        announce_tasks=announce_tasks,
        end_tasks=END_TASKS,
        tree=site.tree if any(step.task.verb is Verb.PUBLISH for stage in stages for step in stage.steps) else {},
        records=slurm_records.record_files(spec, stages),
        archives={**site_roles.archives(spec.roles, stages), **_files(stages)},
        # a narrowed plan must not replace the schedule of the whole plan
        starts=None if only or until or operation != BRINGUP else starts,
    )


def _files(stages: Iterable[Stage]) -> dict[str, bytes]:
    """Return the files beside the tasks of these stages. Raises PlanError if one is too large for a ConfigMap with all others."""
    files = {name: data for stage in stages for step in stage.steps for name, data in step.files.items()}
    large = next((name for name, data in files.items() if len(data) > object_files.MOST_BYTES), None)
    if large is not None:
        problem = f"{large} has {len(files[large])} bytes of objects, limit {object_files.MOST_BYTES}"
        raise PlanError(f"{problem}: make Helm values and scripts shorter")
    return files


def _check_operation(site: Site) -> None:
    """Raise PlanError if the operation names unknown hosts, or would remove or replace servers that the cluster needs."""
    operation, names = site.operation, {machine.name for machine in site.machines}
    if strange := sorted(operation.hosts - names):
        fix = (
            "add it to a group in `hosts` first" if operation.kind is OperationKind.ADD_NODE else f"they are {fold(sorted(names))}"
        )
        raise PlanError(f"{fold(strange)} is not among the hosts of {site.spec.name}: {fix}")
    if operation.kind is OperationKind.ACCEPT:
        _check_acceptance(site)
    servers, touched = site.count("server"), len(site.changeable_hosts("server"))
    remaining = servers - touched
    if operation.kind is OperationKind.RESET and touched and remaining:
        raise PlanError(
            f"reset of {fold(site.changeable_hosts('server'))} alone would leave {remaining} of {servers} servers: "
            "bringup replace-node gives a server's place to another machine, reset without --hosts takes the whole cluster back"
        )
    if operation.kind is OperationKind.RESET and touched and len(site.changeable_hosts("all")) < len(names):
        raise PlanError(
            f"reset of {fold(site.changeable_hosts('server'))} ends the cluster, but would leave RKE2 on its agents: reset "
            "without --hosts takes the whole cluster back"
        )
    if operation.kind is OperationKind.REPLACE_NODE and touched * 2 >= servers:
        raise PlanError(
            f"{fold(site.changeable_hosts('server'))}: replacing {touched} of {servers} servers leaves etcd without a majority; "
            "replace them one at a time, or restore an etcd snapshot"
        )


def _check_acceptance(site: Site) -> None:
    """Raise PlanError if an acceptance could measure no bandwidth, or names machines without GPUs."""
    spec = site.spec
    if spec.accelerator is None or not any(joins_gpus(pool.spec) for pool in gpu_pools(spec)):
        raise PlanError(
            f"{spec.name} cannot be accepted: no NCCL test runs on it (no GPUs, or MIG on all of them), so no bandwidth would be "
            "measured; accept it before its GPUs are partitioned"
        )
    if runs(spec, NCCL_INTER) and spec.validation.nccl.inter_node_floor_gb_s is None:
        raise PlanError(
            f"{spec.name} cannot be accepted without a floor for NCCL over all nodes: write validation.nccl.inter_node_floor_gb_s, "
            "0.9 × your site's measured baseline in GB/s"
        )
    if strange := sorted(set(site.changeable_hosts("all")) - set(site.changeable_hosts("gpu"))) if site.operation.hosts else []:
        raise PlanError(f"{fold(strange)} has no GPUs: name GPU nodes with --nodes")
    measured = [
        [machine for pool in together for machine in pool.spec.gpu_machines if site.operation.touches(machine.name)]
        for together in whole_pools(spec)
    ]
    if spec.fabric.kind != "none" and max(map(len, measured), default=0) < 2:
        raise PlanError(
            f"{spec.name} cannot be accepted: its fabric is {spec.fabric.kind}, and nothing is measured on it without two machines "
            "with equal whole GPUs; accept more machines, or write fabric.kind: none if no job crosses nodes"
        )


def _operation_header(site: Site) -> dict[str, str]:
    """Return `{"operation": KIND HOSTS}` for the arguments of the task `open`; an empty dict for a whole bring-up."""
    operation = site.operation
    if operation == BRINGUP:
        return {}
    hosts = f" {fold(site.changeable_hosts('all'))}" if operation.is_partial else ""
    level = f" at level {site.spec.validation.level}" if operation.kind is OperationKind.ACCEPT else ""
    return {"operation": f"{operation.kind.value}{level}{hosts}"}


def _stages(site: Site, order: Sequence[str]) -> tuple[Stage, ...]:
    selected = site.spec.stages
    leaders = {follower: stage for stage, followers in FOLLOWING.items() for follower in followers}
    # a cluster spec can leave out only stages of a bring-up, each with those that follow it
    names = (name for name in order if selected is None or leaders.get(name, name) in selected or name not in RUNNING_ORDER)
    built = (importlib.import_module(f"workflows.stages.{name}").build(site) for name in names)
    return tuple(_complete_judge(site_roles.add_site_roles(stage, site), site) for stage in built if stage is not None)


def _complete_judge(stage: Stage, site: Site) -> Stage:
    """Return the stage with a judge that checks every other task of the stage, including tasks that only change something."""
    *steps, judge = stage.steps
    named_checks = {check["task"]: check for check in judge.task.arguments["checks"]}
    checks = [_judge_check(stage, step, named_checks.get(step.name, {})) for step in steps]
    arguments = {**judge.task.arguments, "checks": checks}
    if site.operation.is_partial:
        arguments = _partial_judge(stage, arguments, site)
    task = msgspec.structs.replace(judge.task, arguments=arguments)
    return dataclasses.replace(stage, steps=(*steps, dataclasses.replace(judge, task=task)))


def _judge_check(stage: Stage, step: Step, named: dict[str, Any]) -> dict[str, Any]:
    check = {"task": step.name, "gate": f"{stage.id}/{step.name}", **named}
    check |= {"fanned": True} if step.fan_out else {}
    return check | ({"per_node": True} if step.task.verb is Verb.PLAY or step.name == NODES else {})


def _partial_judge(stage: Stage, arguments: dict[str, Any], site: Site) -> dict[str, Any]:
    """Return the judge's arguments for an operation on some hosts: the gates of plays then judge only the hosts that it touches.

    The quorum and the counted members are restricted to these hosts too, unless another gate of the stage judges all nodes.
    """
    plays = {step.name: step.task.arguments for step in stage.steps if step.task.verb is Verb.PLAY}
    # a play with `everyone` reads all hosts, so its gate judges all of them
    narrowed = {name for name, play_arguments in plays.items() if not play_arguments.get("everyone")}
    checks = [
        check | {"select": f"{TOUCHED}{plays[check['task']].get('select', 'all')}"} if check["task"] in narrowed else check
        for check in arguments["checks"]
    ]
    if any(check.get("per_node") and check["task"] not in narrowed for check in checks) or not narrowed:
        return arguments | {"checks": checks}
    members = "agent" if site.changeable_hosts("agent") else "server"
    needed = site.spec.quorum.share(cast(StageName, stage.id)).needed(len(site.changeable_hosts(members)))
    return arguments | {"checks": checks, "members": f"{TOUCHED}{members}", "required": f"{TOUCHED}server", "needed": needed}


def _narrowed(stages: tuple[Stage, ...], only: Sequence[str], until: str, order: Sequence[str]) -> tuple[Stage, ...]:
    present = [stage.id for stage in stages]
    stage_ids = RUNNING_ORDER if order == OPERATIONS else order  # an operation narrows no other stages than its own
    for name in (*only, *([until] if until else [])):
        if name not in stage_ids:
            near = difflib.get_close_matches(name, stage_ids, n=1, cutoff=0.5)
            meant = f"did you mean {near[0]}?" if near else f"stages are {', '.join(stage_ids)}"
            raise PlanError(f"{name!r} is no stage; {meant}")
        if name not in present:
            known = ", ".join(present)
            raise PlanError(
                f"stage {name} is not in this plan; the spec has {known}: name one of these, or list {name} in its stages"
            )
    if only:
        return tuple(stage for stage in stages if stage.id in only)
    return stages[: present.index(until) + 1] if until else stages


def _excluded_stages(every: tuple[Stage, ...], stages: tuple[Stage, ...], operation: Operation) -> list[str]:
    """Return the ids of stages that a narrowed plan skips before its last stage; nothing checks their results in this run.

    An acceptance skips none: it measures a cluster, whoever built it.
    """
    if operation.kind is OperationKind.ACCEPT:
        return []
    planned = [stage.id for stage in stages]
    before = itertools.takewhile(lambda stage: stage.id != planned[-1], every) if planned else ()
    return [stage.id for stage in before if stage.id not in planned]


def _open_task(spec: ClusterSpec, plan: str, stages: tuple[Stage, ...], excluded: list[str], site: Site) -> Task:
    """Return the task `open`, which starts the run; if the plan has plays, it first asks the servers which cluster they form."""
    header: dict[str, Any] = {
        "plan": plan,
        "cluster": spec.name,
        "owner": spec.owner,
        "revision": spec.revision,
        "target_uid": spec.target.uid or "",
        "lease_seconds": _lease_seconds(stages),
    }
    header |= ({"left_out": excluded} if excluded else {}) | _operation_header(site)
    header |= {"needs_running_cluster": True} if site.operation.kind in NEED_RUNNING_CLUSTER else {}
    plays = any(step.task.verb is Verb.PLAY for stage in stages for step in stage.steps)
    header |= {"ssh": ssh_arguments(spec), "registration": spec.registration_address, **api_arguments(spec)} if plays else {}
    return Task(stage=approvals.RUN, name="open", verb=Verb.OPEN, arguments=header, deadline_seconds=OPEN_SECONDS)


def _lease_seconds(stages: Iterable[Stage]) -> int:
    """Return the duration in seconds of the target's lease: the longest time without a certain renewal, plus `LEASE_SECONDS`.

    That time is the sum of task deadlines and approval time-outs between two tasks that are sure to renew the lease.
    """
    longest = waited = 0
    for stage in stages:
        waited += stage.approval.timeout_seconds if stage.approval is not None else 0
        for step in stage.steps:
            longest = max(longest, waited)
            deadline, verb = step.task.deadline_seconds, step.task.verb
            # apply renews for sure; a job or play either renews or ends at once; other verbs never renew
            if verb is Verb.APPLY:
                waited = deadline
            else:
                waited = max(waited, deadline) if verb in _MAYBE else waited + deadline
    return max(longest, waited) + LEASE_SECONDS


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=lambda other: sorted(other) if isinstance(other, frozenset) else dict(other))
