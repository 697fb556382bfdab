"""The effect of an operation (upgrade, rollback, replacement) on stage rke2: playbooks, variables, changes, and its rollback."""

import re

from steps.contract.host_ranges import fold
from steps.contract.operation import Kind
from workflows.stages.site import Site
from workflows.stages.stage import Change, Object

DATA, STORE = "/var/lib/rancher/rke2/server/db", "/var/lib/rancher/download"
RESET = "`bringup reset SPEC`; data of the cluster is lost"
FORWARD = "write the newer release into rke2.version again, and `bringup upgrade SPEC`"
IN_PLACE = " where another node takes its pods"
HOW = {
    Kind.REPLACE_NODE: {
        "server": ", once the cluster forgot the old machine's Node and etcd member",
        "agent": ", once the cluster forgot the old machine's Node",
    },
    Kind.UPGRADE: {
        "server": ", after an etcd snapshot: one at a time, each drained before" + IN_PLACE,
        "agent": ", {batch} at a time, each drained before" + IN_PLACE,
    },
    Kind.ROLLBACK: {
        "server": " again, all stopped at once, with etcd set back to its snapshot from before the upgrade",
        "agent": " again, {batch} at a time, each drained before" + IN_PLACE,
    },
}
"""Sentence endings that say how machines get their release, by operation and role; other operations simply let them join."""


def playbook(site: Site, role: str) -> str:
    """Return the name of the playbook for machines of a role."""
    return f"rke2_{role}_rollback" if site.operation.kind is Kind.ROLLBACK else f"rke2_{role}"


def servers(site: Site) -> Object:
    """Return further arguments of the servers' play.

    `together`: a server that fails stops those after it. `everyone`: servers that are only read take part too. In a rollback the
    cluster may be down (`may_be_down`), and etcd has the old lease once its snapshot is restored (`restores`).
    """
    arguments: Object = {"together": True} | ({"everyone": True} if site.operation.is_partial else {})
    return arguments | ({"may_be_down": True, "restores": True} if site.operation.kind is Kind.ROLLBACK else {})


def variables(site: Site, role: str) -> Object:
    """Return the variables of an operation on an existing cluster: servers that are only read, and hosts whose old Node must go."""
    operation, names = site.operation, [machine.name for machine in site.machines if machine.role == role]
    result: Object = {}
    if role == "server" and operation.is_partial:
        result["rke2_untouched"] = [name for name in names if not operation.touches(name)]
    if operation.kind is Kind.REPLACE_NODE and (replaced := operation.touched(names)):
        result["rke2_replaced"] = replaced
    return result


def changes(site: Site) -> tuple[Change, ...]:
    """Return the change of the machines of each role that the plays touch."""
    how, rke2 = HOW.get(site.operation.kind, {}), site.spec.rke2
    return tuple(
        Change(what=f"RKE2 {rke2.version} as {role}{how.get(role, '').format(batch=rke2.upgrade_batch)}", where=fold(names))
        for role in ("server", "agent")
        if (names := site.touched(role))
    )


def way_back(site: Site) -> str:
    """Return the sentence that tells a person how to undo the operation."""
    if site.operation.kind is Kind.ROLLBACK:
        return FORWARD
    if site.operation.kind is not Kind.UPGRADE:
        return RESET
    # the role rke2 gives the snapshot this name (playbooks/roles/rke2/vars/main.yml)
    snapshot = f"{DATA}/snapshots/bringup-before-{re.sub('[^A-Za-z0-9.-]', '-', site.spec.rke2.version)}-*"
    return (
        "a host that does not come to a patch release goes back by itself; else write the release before into rke2.version, and "
        f"`bringup rollback SPEC`: etcd goes back to {snapshot}, without what was written since; "
        f"by hand, as {STORE}/way-back.txt says on a server that failed over a minor"
    )
