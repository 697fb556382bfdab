"""Stage validation: accept the platform by measurements inside each node and across nodes: the order of its tasks.

Facts: `steps/docs/facts/acceptance.md`. Tasks: `validation_operator`, `validation_node_checks`, `validation_fabric_checks`
and `validation_workload_checks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from steps.contract import fleet
from workflows.spec.acceptance.acceptance_levels import LEVELS
from workflows.spec.gpu_pools import shares_by_mig, whole_pools
from workflows.stages import (
    manifest_objects,
    validation_fabric_checks,
    validation_node_checks,
    validation_operator,
    validation_tasks,
    validation_workload_checks,
)
from workflows.stages.stage import Change, Object, Site, Stage, Step
from workflows.stages.validation_tasks import STAGE


def build(site: Site) -> Stage | None:
    """Return stage validation, or None for a cluster without GPUs, which has nothing to measure."""
    release = site.releases.get(validation_operator.RELEASE)
    if release is None or site.spec.accelerator is None or not site.count("gpu"):
        return None
    site = _in_scope(site)
    parts = _parts(site)
    between = any(map(validation_tasks.measures_between, parts))
    loaded = "GPU and fabric port" if between and site.spec.fabric.kind != "none" else "GPU"
    steps = [validation_operator.apply(site, release), validation_operator.control(release)] if between else []
    gates: dict[str, str | Object] = {"control": validation_operator.GATE} if between else {}
    for part, step in _checks(parts, ("control",) if between else ()):
        steps.append(step)
        gates[step.name] = manifest_objects.pool_check(site, part, STAGE, str(step.task.arguments["gate"]))
    return Stage(
        id=STAGE,
        title="Validation",
        steps=(*steps, _judge(site, gates)),
        gates=tuple(dict.fromkeys(str(step.task.arguments["gate"]) for step in steps if step.name != "apply")),
        changes=(
            *([Change(what=f"install mpi-operator {release.version}", where=release.namespace)] if between else []),
            Change(
                what=f"load every {loaded} for about {LEVELS[site.spec.validation.level].minutes} minutes",
                where=f"{site.count('gpu')} GPU nodes",
            ),
        ),
        rollback=release.rollback,
        releases=(release.id,) if between else (),
    )


def _in_scope(site: Site) -> Site:
    """Return the site without the GPU machines that an acceptance of some nodes leaves out; else the site itself."""
    if not site.is_scoped:
        return site
    return replace(
        site, machines=tuple(machine for machine in site.machines if not machine.gpu or site.operation.touches(machine.name))
    )


def _judge(site: Site, gates: Mapping[str, str | Object]) -> Step:
    """Return the task that decides the stage. All nodes of an acceptance's scope must pass, whatever the quorum of the fleet."""
    if not site.is_scoped:
        return manifest_objects.judge(site, STAGE, gates)
    return manifest_objects.judge(site, STAGE, gates, members=f"{fleet.TOUCHED}gpu", needed=site.count("gpu"))


def _parts(site: Site) -> list[Site]:
    """Return a site for each set of machines that are measured alike: those with the same whole GPUs, and each pool with MIG.

    Pools that differ only in how pods share whole GPUs are one set.
    """
    if len(site.pools) < 2:
        return [site]
    return [part for part in _pool_parts(site) if part.count("gpu")]


def _pool_parts(site: Site) -> list[Site]:
    parts = []
    for together in whole_pools(site.spec):
        groups = tuple(name for pool in together for name in pool.groups)
        machines = tuple(machine for machine in site.machines if not machine.gpu or machine.group in groups)
        # pods can request whole GPUs only if they are shared nowhere in the set
        shared = next((pool.spec for pool in together if pool.sharing.mode != "none"), together[0].spec)
        parts.append(replace(site, spec=shared, machines=machines, pool=replace(together[0], groups=groups)))
    return [*parts, *(part for part in site.pools if shares_by_mig(part.spec))]


def _checks(parts: Iterable[Site], after: tuple[str, ...]) -> Iterator[tuple[Site, Step]]:
    """Yield the tasks of the checks, each after the one before, since each needs all GPUs of a node; the first after `after`.

    A node that fails a check is left out of the next. The checks of different parts follow each other, since they have the same
    names.
    """
    for part in parts:
        inside, passed = validation_node_checks.checks(part), list[str]()
        between = validation_fabric_checks.checks(part) if validation_tasks.measures_between(part) else ()
        for make in (*inside, *between, *validation_workload_checks.checks(part)):
            step = make(part, after, tuple(passed))
            yield part, step
            # checks across nodes have no verdict on single nodes: what follows them runs on all that passed inside
            passed += [step.name] if make in inside else []
            after = (step.name,)
