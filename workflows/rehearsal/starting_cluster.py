"""The cluster on which a rehearsed operation (upgrade, rollback, added or replaced nodes) begins, as the same spec describes it."""

from collections.abc import Iterator
from typing import Any

from steps.contract.host_ranges import fold
from steps.contract.runs.operation import RELEASES, Operation, OperationKind
from steps.stages.rke2.contract import parse_version
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.spec import ClusterSpec
from workflows.spec.sections.hosts import HostGroup


class NoStartingRelease(ValueError):
    """Raised if a rehearsed upgrade or rollback has no valid RKE2 release to start from."""

    hint = "name a release that an upgrade connects with the spec's release, for instance --from v1.35.6+rke2r1"


class NoStartingMajority(ValueError):
    """Raised if the cluster would have an even number of etcd members without the servers that the operation adds."""

    hint = (
        "etcd needs an odd number of servers before and after: choose --hosts so that 1, 3 or 5 servers remain, or use replace-node"
    )


def starting_plan(spec: ClusterSpec, plan: Plan, operation: Operation, other: str = "") -> Plan:
    """Return a plan, without approvals, that builds the cluster as it is before the operation.

    Hosts that the operation adds are left out. An upgrade starts from the RKE2 release `other`, by default the patch release before
    the spec's; a rollback too, by default the first of the next minor. The plan ends with the operation's last stage if that adds
    or replaces nodes, for an acceptance with the stage before its own, else with rke2. Raises NoStartingRelease or
    NoStartingMajority.
    """
    changes: dict[str, Any] = {"approvals": ()}
    if operation.kind is OperationKind.ADD_NODE:
        changes["hosts"] = dict(_without(spec, operation))
        _require_majority(spec, operation)
    if operation.kind in RELEASES:
        release = (_before if operation.kind is OperationKind.UPGRADE else _after)(spec.rke2.version, other)
        changes["rke2"] = spec.rke2.model_copy(update={"version": release})
    if operation.kind is OperationKind.ACCEPT:
        return _built_cluster(spec.model_copy(update=changes))
    last = plan.stages[-1].id if operation.kind in (OperationKind.ADD_NODE, OperationKind.REPLACE_NODE) else "rke2"
    return compile_plan(spec.model_copy(update=changes), until=last)


def _built_cluster(spec: ClusterSpec) -> Plan:
    """Return a plan of all stages before the validation, on whose cluster an acceptance begins."""
    stages = [stage.id for stage in compile_plan(spec).stages if stage.id != "validation"]
    return compile_plan(spec, until=stages[-1])


def replaced_hosts(operation: Operation) -> frozenset[str]:
    """Return the names of the hosts that a replacement of nodes concerns; empty for any other operation."""
    return operation.hosts if operation.kind is OperationKind.REPLACE_NODE else frozenset()


def _without(spec: ClusterSpec, operation: Operation) -> Iterator[tuple[str, HostGroup]]:
    for name, group in spec.hosts.items():
        kept = [host for host in group.names() if not operation.touches(host)]
        if not kept:
            continue
        overrides = {host: override for host, override in group.overrides.items() if host in kept}
        known = group.addresses.map
        addresses = group.addresses.model_copy(update={"map": {host: known[host] for host in kept}}) if known else group.addresses
        yield name, group.model_copy(update={"ranges": (fold(kept),), "overrides": overrides, "addresses": addresses})


def _require_majority(spec: ClusterSpec, operation: Operation) -> None:
    every = [server.name for server in spec.servers]
    left = len(every) - len(operation.touched(every))
    if left % 2 == 0:
        raise NoStartingMajority(
            f"without the {len(every) - left} of {len(every)} servers to be added, the cluster would have {left}"
        )


def _before(version: str, older: str) -> str:
    """Return the RKE2 release from which an upgrade to `version` starts: `older` or, if empty, the patch release before.

    Raises NoStartingRelease for a release from which real hosts would refuse to upgrade too.
    """
    target, start = parse_version(version), parse_version(older)
    if target is None or (not older and not target.patch):
        raise NoStartingRelease(f"there is no patch release before {version} to rehearse the upgrade from")
    if not older:
        return f"v{target.major}.{target.minor}.{target.patch - 1}+rke2r1"
    if start is None:
        raise NoStartingRelease(f"--from {older}: this is not a release of RKE2, for instance v1.35.6+rke2r1")
    if start >= target:
        raise NoStartingRelease(f"--from {older}: an upgrade to the spec's {version} cannot start from it, since it is not older")
    if (start.major, start.minor) < (target.major, target.minor - 1):
        raise NoStartingRelease(
            f"--from {older}: an upgrade to the spec's {version} would skip a minor, which Kubernetes does not support"
        )
    return older


def _after(version: str, newer: str) -> str:
    """Return the RKE2 release from which a rollback to `version` starts: `newer` or, if empty, the first of the next minor.

    Raises NoStartingRelease if `version` could not have been upgraded to it.
    """
    target, start = parse_version(version), parse_version(newer)
    if target is None:
        raise NoStartingRelease(f"{version} is not a release of RKE2")
    if not newer:
        return f"v{target.major}.{target.minor + 1}.0+rke2r1"
    if start is None:
        raise NoStartingRelease(f"--from {newer}: this is not a release of RKE2, for instance v1.35.6+rke2r1")
    if start <= target:
        raise NoStartingRelease(f"--from {newer}: a rollback to the spec's {version} cannot start from it, since it is not newer")
    if (start.major, start.minor) > (target.major, target.minor + 1):
        raise NoStartingRelease(f"--from {newer}: no upgrade leads to it from the spec's {version}, since it would skip a minor")
    return newer
