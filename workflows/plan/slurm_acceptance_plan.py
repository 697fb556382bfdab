"""The plan of an acceptance from a login node of Slurm: one stage, and the nodes that it is about."""

from __future__ import annotations

import msgspec

from steps.contract import fleet
from steps.contract.canonical import digest
from steps.contract.task import Task, Verb
from workflows.plan import approvals
from workflows.plan.compiler import END_TASKS, OPEN_SECONDS
from workflows.plan.model import Plan
from workflows.stages import slurm_acceptance
from workflows.stages.slurm_acceptance_site import SlurmAcceptanceSite


def compile_slurm_acceptance(site: SlurmAcceptanceSite, name: str, owner: str) -> Plan:
    """Return the plan of an acceptance, without I/O. `name` is the cluster's name in a form that names of runs may have."""
    stage = slurm_acceptance.build(site)
    operation = f"accept at level {site.level.name}"
    data = {
        "slurm": [site.cluster, owner, list(site.nodes)],
        "stages": [msgspec.to_builtins(stage.digested, enc_hook=dict)],
        "operation": operation,
    }
    plan_digest = digest(data)
    header = {"plan": plan_digest, "cluster": name, "owner": owner, "revision": "", "targetless": True, "operation": operation}
    hosts = tuple(
        fleet.Host(name=node, address=node, group="nodes", role="agent", gpus=max(site.gpus, 0), untouched=True)
        for node in site.nodes
    )
    return Plan(
        name=name,
        owner=owner,
        revision="",
        target_uid="",
        accelerator="",
        built={},
        stages=(stage,),
        hosts=hosts,
        releases=(),
        issues=(),
        secrets=(),
        digest=plan_digest,
        open_task=Task(stage=approvals.RUN, name="open", verb=Verb.OPEN, arguments=header, deadline_seconds=OPEN_SECONDS),
        confirm_tasks={},
        end_tasks=END_TASKS,
    )
