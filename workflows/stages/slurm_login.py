"""Stage slurm_login: login pods of an old revision are replaced, after an approval if somebody is logged in there.

The sync of stage slurm leaves SUNK's login pods alone (`OnDelete`), since users' shells end with their pod. Facts:
`steps/docs/facts/slurm.md`, SUNK.
"""

from __future__ import annotations

from typing import Final

from steps.contract.objects.login_pods import OUTPUT, SOME
from steps.contract.task import Verb
from steps.stages.slurm_login.contract import ID, LISTED_BY
from workflows.catalog import PlannedRelease
from workflows.spec.parsing.document import value_at
from workflows.stages import manifest_objects, rights
from workflows.stages.stage import Approval, ApprovalCondition, Change, Object, Rule, Site, Stage, Step, judge_step, task

PODS: Final = f"{ID}/pods"
SET, CONTAINER = "slurm-login", "sshd"
LIST_SECONDS, REPLACE_SECONDS, PODS_SECONDS = 600, 3600, 900
ASKED_IF: Final = ApprovalCondition(stage=LISTED_BY[0], task=LISTED_BY[1], output=OUTPUT, value=SOME)


def build(site: Site) -> Stage | None:
    """Return stage slurm_login, or None if no login pods wait for their deletion: with Slinky, or by another strategy."""
    cluster = site.releases.get("sunk_slurm")
    if cluster is None or not has_waiting_pods(site, cluster):
        return None
    replicas = site.spec.slurm.login.replicas
    replace = Step(
        task=task(ID, "replace", Verb.APPLY, deadline=REPLACE_SECONDS, arguments={"login_replacement": _login_pods(cluster)}),
        rules=_rules(cluster, "list", "delete"),
    )
    pods = Step(
        task=task(
            ID,
            "pods",
            Verb.WAIT,
            deadline=PODS_SECONDS,
            arguments={"gate": PODS, "namespace": cluster.namespace, "name": SET, "namespaces": [cluster.namespace]},
            expectations={"name": SET, "replicas": replicas},
        ),
        after=("replace",),
        rules=_reads(cluster),
    )
    return Stage(
        id=ID,
        title="Login pods of Slurm",
        steps=(replace, pods, judge_step(ID, [{"task": "pods", "gate": PODS}], needed=len(site.machines), members="all")),
        gates=(PODS,),
        changes=(Change(what="replace login pods of an old revision; sessions end after an approval alone", where=SET),),
        rollback="pin the release of slurm before, and replace the pods again; sessions that have ended are lost",
        approval=_approval(site),
        asked_if=ASKED_IF,
    )


def has_waiting_pods(site: Site, cluster: PlannedRelease) -> bool:
    """Return True if login pods keep an old revision until somebody deletes them."""
    return site.spec.slurm.login.replicas > 0 and value_at(cluster.values, "login.updateStrategy") == "OnDelete"


def sessions(cluster: PlannedRelease, after: str) -> Step:
    """Return the task of stage slurm that lists who is logged in to login pods of an old revision."""
    arguments: Object = {"login_sessions": _login_pods(cluster)}
    return Step(
        task=task(*LISTED_BY, Verb.APPLY, deadline=LIST_SECONDS, arguments=arguments),
        after=(after,),
        rules=_rules(cluster, "list"),
    )


def _login_pods(cluster: PlannedRelease) -> Object:
    script = manifest_objects.script("login_sessions.sh")
    return {"namespace": cluster.namespace, "name": SET, "container": CONTAINER, "script": script}


def _rules(cluster: PlannedRelease, *verbs: str) -> tuple[Rule, ...]:
    space = (cluster.namespace,)
    return (
        *rights.CLAIM,
        Rule(groups=("apps",), resources=("statefulsets",), verbs=("get",), namespaces=space),
        Rule(groups=("",), resources=("pods",), verbs=verbs, namespaces=space),
        rights.execute(cluster.namespace),
        *rights.DIAGNOSE,
    )


def _reads(cluster: PlannedRelease) -> tuple[Rule, ...]:
    return (
        Rule(groups=("apps",), resources=("statefulsets",), verbs=("get",), namespaces=(cluster.namespace,)),
        *rights.DIAGNOSE,
    )


def _approval(site: Site) -> Approval:
    """Return the approval, with the approvers and the time limit of that before stage slurm; without one, anybody may answer."""
    before = next((entry for entry in site.spec.approvals if entry.before == "slurm"), None)
    if before is None:
        return Approval()
    keys = {approver.name: (approver.key,) if approver.key else () for approver in before.approvers}
    return Approval(approvers=keys, timeout_seconds=int(before.timeout.total_seconds()))
