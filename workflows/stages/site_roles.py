"""Run a site's own Ansible roles before or after a stage: each role is a play with a gate of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from steps.contract import fleet
from steps.contract.host_play import RoleArchive
from steps.contract.host_ranges import fold
from steps.contract.task import Verb
from steps.stages.site_roles import contract as site_roles
from workflows.spec.sections.roles import SiteRole
from workflows.stages import rights
from workflows.stages.host_access import ssh_arguments
from workflows.stages.stage import Change, Site, Stage, Step, task

GATE: Final = "site_roles/ran"


def add_site_roles(stage: Stage, site: Site) -> Stage:
    """Return the stage with the roles that the spec puts before and after it, in the spec's order; its judge checks them too.

    A role is left out if this operation changes none of its hosts.
    """
    roles = [role for role in site.spec.roles if role.stage == stage.id and _hosts(role, site)]
    if not roles:
        return stage
    *own_steps, judge = stage.steps
    before = _chain([role for role in roles if role.before], stage, site, ())
    inner = [_behind(step, before) for step in own_steps]
    plays = tuple(step.name for step in (*before, *inner) if step.task.verb is Verb.PLAY)
    awaited = {name for step in inner for name in step.after}
    leaves = tuple(step.name for step in inner if step.name not in awaited)
    after = _chain([role for role in roles if role.after], stage, site, leaves, plays)
    last = (*judge.after, *(step.name for step in (*before, *after)))
    judge = dataclasses.replace(judge, task=_counted(judge, roles), after=last)
    return dataclasses.replace(
        stage,
        steps=(*before, *inner, *after, judge),
        gates=(*stage.gates, *(site_roles.gate(role.name) for role in roles)),
        changes=(*stage.changes, *(_change(role, site) for role in roles)),
        rollback=f"{stage.rollback}; what your own roles changed is theirs to undo",
    )


def archives(roles: Iterable[SiteRole], stages: Iterable[Stage]) -> Mapping[str, bytes]:
    """Return file name in the tasks folder → archive, for each role that runs in one of these stages."""
    planned = {(stage.id, step.name) for stage in stages for step in stage.steps}
    used = (role for role in roles if (role.stage, step_name(role)) in planned)
    return {site_roles.file_name(role.name): site_roles.encode(role.archive) for role in used}


def step_name(role: SiteRole) -> str:
    """Return the name of the task that runs a role, such as `role_NAME`."""
    return f"role_{role.name}"


def _behind(step: Step, before: list[Step]) -> Step:
    """Return a task of the stage, changed to start after the roles that precede the stage.

    If the task is a play, it leaves out hosts on which one of these roles failed.
    """
    if not before:
        return step
    names = [role_step.name for role_step in before]
    if step.task.verb is Verb.PLAY:
        narrowed = msgspec.structs.replace(step.task, arguments={**step.task.arguments, "passed": names})
        step = dataclasses.replace(step, task=narrowed)
    return step if step.after else dataclasses.replace(step, after=(names[-1],))


def _chain(roles: list[SiteRole], stage: Stage, site: Site, after: tuple[str, ...], plays: tuple[str, ...] = ()) -> list[Step]:
    """Return one task per role, each after the one before, on the hosts that passed the `plays` and the roles before it."""
    steps: list[Step] = []
    for role in roles:
        passed = [*plays, *(step.name for step in steps)]
        steps.append(_step(role, stage, site, (steps[-1].name,) if steps else after, passed))
    return steps


def _step(role: SiteRole, stage: Stage, site: Site, after: tuple[str, ...], passed: list[str]) -> Step:
    archive = RoleArchive(name=role.name, file=site_roles.file_name(role.name), digest=role.digest)
    # servers are few and are played together
    agents = "agents" if role.hosts != "all" and site.spec.hosts[role.hosts].role == "agent" else ""
    fan_out = "shards" if role.hosts == "all" else agents
    arguments: dict[str, Any] = {
        "playbook": site_roles.PLAYBOOK,
        "ssh": ssh_arguments(site.spec),
        "gate": GATE,
        "select": _select(role),
        "variables": {**role.variables, "bringup_role": {"name": role.name, "digest": role.digest}},
        "role": msgspec.to_builtins(archive),
    }
    arguments |= {"fanned": True} if fan_out else {}
    arguments |= {"passed": passed} if passed else {}
    arguments |= {"secret_variables": dict(role.secrets)} if role.secrets else {}
    deadline, expectations = int(role.timeout.total_seconds()), {"role": role.name, "digest": role.digest}
    return Step(
        task=task(stage.id, step_name(role), Verb.PLAY, deadline=deadline, arguments=arguments, expectations=expectations),
        after=after,
        fan_out=fan_out,
        rules=rights.CLAIM,
    )


def _select(role: SiteRole) -> str:
    return "all" if role.hosts == "all" else f"{fleet.GROUP}{role.hosts}"


def _counted(judge: Step, roles: list[SiteRole]) -> Any:
    checks = [{"task": step_name(role), "gate": site_roles.gate(role.name), "select": _select(role)} for role in roles]
    arguments = {**judge.task.arguments, "checks": [*judge.task.arguments["checks"], *checks]}
    return msgspec.structs.replace(judge.task, arguments=arguments)


def _change(role: SiteRole, site: Site) -> Change:
    place = f"before {role.before}" if role.before else f"after {role.after}"
    return Change(what=f"your role {role.name} ({place}, {role.digest[:19]})", where=fold(_hosts(role, site)))


def _hosts(role: SiteRole, site: Site) -> list[str]:
    """Return the names of the role's hosts that this operation may change."""
    return site.operation.touched(machine.name for machine in site.machines if role.hosts in ("all", machine.group))
