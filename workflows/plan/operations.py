"""Checks of an operation against the spec: its hosts must exist, and the cluster must keep a majority of its servers."""

from steps.contract.host_ranges import fold
from steps.contract.operation import BRINGUP, Kind
from workflows.plan.model import PlanError
from workflows.stages.site import Site


def check(site: Site) -> None:
    """Raise PlanError for hosts that the spec does not have, and for servers that the cluster cannot do without."""
    operation, names = site.operation, {machine.name for machine in site.machines}
    if strange := sorted(operation.hosts - names):
        fix = "add it to a group in `hosts` first" if operation.kind is Kind.ADD_NODE else f"they are {fold(sorted(names))}"
        raise PlanError(f"{fold(strange)} is not among the hosts of {site.spec.name}: {fix}")
    servers, touched = site.count("server"), len(site.touched("server"))
    remaining = servers - touched
    if operation.kind is Kind.RESET and touched and remaining:
        raise PlanError(
            f"reset of {fold(site.touched('server'))} alone would leave {remaining} of {servers} servers: "
            "bringup replace-node gives a server's place to another machine, reset without --hosts takes the whole cluster back"
        )
    if operation.kind is Kind.RESET and touched and len(site.touched("all")) < len(names):
        raise PlanError(
            f"reset of {fold(site.touched('server'))} ends the cluster, and would leave what its agents have of it: reset "
            "without --hosts takes the whole cluster back"
        )
    if operation.kind is Kind.REPLACE_NODE and touched * 2 >= servers:
        raise PlanError(
            f"{fold(site.touched('server'))}: replacing {touched} of {servers} servers leaves etcd without a majority; "
            "replace them one at a time, or restore an etcd snapshot"
        )


def said(site: Site) -> dict[str, str]:
    """Return the operation and its hosts for the run's header; empty for a whole bring-up."""
    operation = site.operation
    if operation == BRINGUP:
        return {}
    hosts = f" {fold(site.touched('all'))}" if operation.is_partial else ""
    return {"operation": f"{operation.kind.value}{hosts}"}
