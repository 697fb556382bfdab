"""What an operation makes of stage rke2: its playbooks, their variables, what becomes of the machines, and how it is taken back."""

import re

from steps.contract.operation import Kind
from workflows.spec.ranges import compress
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
"""How machines come to their release, by operation and role; where an operation has no words, they simply join."""


def playbook(site: Site, role: str) -> str:
    """The playbook for the machines of a role."""
    return f"rke2_{role}_rollback" if site.operation.kind is Kind.ROLLBACK else f"rke2_{role}"


def servers(site: Site) -> Object:
    """Further arguments of the servers' play: one that fails stops those after it, those that are only read are in it too, and a
    cluster that goes back may be down, and has the lease of before once its etcd is set back."""
    told: Object = {"together": True} | ({"everyone": True} if site.operation.is_partial else {})
    return told | ({"may_be_down": True, "restores": True} if site.operation.kind is Kind.ROLLBACK else {})


def variables(site: Site, role: str) -> Object:
    """What an operation on a cluster that stands adds: servers that are only read, and hosts whose old Node is to be forgotten."""
    operation, every = site.operation, [machine.name for machine in site.machines if machine.role == role]
    told: Object = {}
    if role == "server" and operation.is_partial:
        told["rke2_untouched"] = [name for name in every if not operation.touches(name)]
    if operation.kind is Kind.REPLACE_NODE and (replaced := operation.touched(every)):
        told["rke2_replaced"] = replaced
    return told


def changes(site: Site) -> tuple[Change, ...]:
    """What becomes of the machines of each role that plays touch."""
    how, rke2 = HOW.get(site.operation.kind, {}), site.spec.rke2
    return tuple(
        Change(what=f"RKE2 {rke2.version} as {role}{how.get(role, '').format(batch=rke2.upgrade_batch)}", where=compress(names))
        for role in ("server", "agent")
        if (names := site.touched(role))
    )


def way_back(site: Site) -> str:
    """What a person does to take the operation back."""
    if site.operation.kind is Kind.ROLLBACK:
        return FORWARD
    if site.operation.kind is not Kind.UPGRADE:
        return RESET
    # as the role names it (playbooks/roles/rke2/vars/main.yml)
    snapshot = f"{DATA}/snapshots/bringup-before-{re.sub('[^A-Za-z0-9.-]', '-', site.spec.rke2.version)}-*"
    return (
        "a host that does not come to a patch release goes back by itself; else write the release before into rke2.version, and "
        f"`bringup rollback SPEC`: etcd goes back to {snapshot}, without what was written since; "
        f"by hand, as {STORE}/way-back.txt says on a server that failed over a minor"
    )
