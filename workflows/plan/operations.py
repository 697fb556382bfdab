"""What an operation asks of the spec: its hosts must be there, and no cluster may be left without a majority of its servers."""

from steps.contract.operation import BRINGUP, Kind
from workflows.plan.model import PlanError
from workflows.spec.ranges import compress
from workflows.stages.site import Site


def check(site: Site) -> None:
    """Raise PlanError for hosts that the spec does not have, and for servers that the cluster cannot do without."""
    operation, names = site.operation, {machine.name for machine in site.machines}
    if strange := sorted(operation.hosts - names):
        fix = "add it to a group in `hosts` first" if operation.kind is Kind.ADD_NODE else f"they are {compress(sorted(names))}"
        raise PlanError(f"{compress(strange)} is not among the hosts of {site.spec.name}: {fix}")
    servers, touched = site.count("server"), len(site.touched("server"))
    left = servers - touched
    if operation.kind is Kind.RESET and touched and left:
        raise PlanError(
            f"reset of {compress(site.touched('server'))} alone would leave {left} of {servers} servers: "
            "bringup replace-node gives a server's place to another machine, reset without --hosts takes the whole cluster back"
        )
    if operation.kind is Kind.RESET and touched and len(site.touched("all")) < len(names):
        raise PlanError(
            f"reset of {compress(site.touched('server'))} ends the cluster, and would leave what its agents have of it: reset "
            "without --hosts takes the whole cluster back"
        )
    if operation.kind is Kind.REPLACE_NODE and touched * 2 >= servers:
        raise PlanError(
            f"{compress(site.touched('server'))}: replacing {touched} of {servers} servers leaves etcd without a majority; "
            "replace them one at a time, or restore an etcd snapshot"
        )


def said(site: Site) -> dict[str, str]:
    """What the operation is, for the run's header; nothing for a whole bring-up, whose plan says all."""
    operation = site.operation
    if operation == BRINGUP:
        return {}
    hosts = f" {compress(site.touched('all'))}" if operation.is_partial else ""
    return {"operation": f"{operation.kind.value}{hosts}"}
