"""Stage slurm_acceptance: accept the nodes of a Slurm cluster from a login node, by its tools, jobs and measured bandwidth."""

from __future__ import annotations

from typing import Any, Final

from steps.contract.host_ranges import fold
from steps.contract.task import Verb
from steps.stages.slurm_acceptance.contract import BANDWIDTH, CONTROL, JOBS
from workflows.stages.slurm_acceptance_site import SlurmAcceptanceSite
from workflows.stages.stage import Change, Object, Stage, Step, judge_step, task

ID: Final = "slurm_acceptance"
TASKS: Final = (CONTROL, JOBS, BANDWIDTH)
SECONDS: Final = {CONTROL: 600, JOBS: 3600, BANDWIDTH: 6 * 3600}
"""Time limit of each task in seconds; jobs have limits of their own, and may have to wait for nodes."""
_JUDGE_SECONDS: Final = 300


def build(site: SlurmAcceptanceSite) -> Stage:
    """Return the stage: its three tasks one after another, each left out if an earlier one did not pass, and the judge."""
    steps = [_step(site, name, TASKS[number - 1] if number else "") for number, name in enumerate(TASKS)]
    checks: list[Object] = [{"task": name, "gate": f"{ID}/{name}"} for name in TASKS]
    judge = judge_step(ID, checks, deadline=_JUDGE_SECONDS, needed=len(site.nodes), members="all")
    where = fold(site.nodes) or site.cluster
    drained = (Change(what="one node is drained and resumed", where=where),) if site.allow_drain else ()
    return Stage(
        id=ID,
        title="Acceptance of a Slurm cluster",
        steps=(*steps, judge),
        gates=tuple(f"{ID}/{name}" for name in TASKS),
        changes=(Change(what="jobs of this user, which are cancelled at the end", where=where), *drained),
        rollback="nothing to undo: jobs carry the name bringup-accept, and the next acceptance cancels those that are left",
    )


def _step(site: SlurmAcceptanceSite, name: str, before: str) -> Step:
    level = site.level
    arguments: dict[str, Any] = {
        "gate": f"{ID}/{name}",
        "partition": site.partition,
        "account": site.account,
        "shared": site.shared,
        "marks": site.marks,
        "gpus": site.gpus,
        "allow_drain": site.allow_drain,
    }
    if name == BANDWIDTH:
        arguments |= {"program": list(site.program), "mpi": site.mpi, "floor": site.floor}
        arguments |= {"mebibytes": level.mebibytes, "seconds": level.seconds, "most_rounds": level.most_rounds}
    expectations: dict[str, dict[str, Any]] = {
        CONTROL: {"partition": site.partition, "gpu_type": site.gpu_type, "gpus": site.gpus},
        JOBS: {"gpus": site.gpus, "scripts": site.scripts, "drain": site.allow_drain},
        BANDWIDTH: {"floor": site.floor},
    }
    made = task(ID, name, Verb.BUILD, deadline=SECONDS[name], arguments=arguments, expectations=expectations[name])
    return Step(task=made, after=(before,) if before else ())
