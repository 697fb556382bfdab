"""What an operation finds when it is rehearsed: the cluster of the same spec as it was before it."""

from collections.abc import Iterator
from typing import Any

from steps.contract.operation import RELEASES, Kind, Operation
from steps.contract.stages.rke2 import parse_version
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.spec import ClusterSpec
from workflows.spec.hosts import HostGroup
from workflows.spec.ranges import compress


class NoEarlier(ValueError):
    """No release that a rehearsed upgrade or rollback could start from is named."""

    hint = "name one that the spec's release was, or could be, upgraded from or to: --from v1.35.6+rke2r1"


class NoMajority(ValueError):
    """The cluster without the servers that are to be added is none that etcd would be whole in."""

    hint = "add as many at once that 1, 3 or 5 servers stand before, or rehearse replace-node"


def ground(spec: ClusterSpec, plan: Plan, operation: Operation, other: str = "") -> Plan:
    """The plan that builds that cluster, without approvals: up to the last stage that the operation looks at.

    An added host is missing. An upgrade finds `other` (the patch release before, where none is named), and so does a
    rollback (the next minor).
    Raises NoEarlier, NoMajority.
    """
    changes: dict[str, Any] = {"approvals": ()}
    if operation.kind is Kind.ADD_NODE:
        changes["hosts"] = dict(_without(spec, operation))
        _require_majority(spec, operation)
    if operation.kind in RELEASES:
        found = (_before if operation.kind is Kind.UPGRADE else _after)(spec.rke2.version, other)
        changes["rke2"] = spec.rke2.model_copy(update={"version": found})
    last = plan.stages[-1].id if operation.kind in (Kind.ADD_NODE, Kind.REPLACE_NODE) else "rke2"
    return compile_plan(spec.model_copy(update=changes), until=last)


def bare(operation: Operation) -> frozenset[str]:
    """Hosts that were exchanged for new machines since that cluster was built."""
    return operation.hosts if operation.kind is Kind.REPLACE_NODE else frozenset()


def _without(spec: ClusterSpec, operation: Operation) -> Iterator[tuple[str, HostGroup]]:
    for name, group in spec.hosts.items():
        kept = [host for host in group.names() if not operation.touches(host)]
        if not kept:
            continue
        overrides = {host: one for host, one in group.overrides.items() if host in kept}
        known = group.addresses.map
        addresses = group.addresses.model_copy(update={"map": {host: known[host] for host in kept}}) if known else group.addresses
        yield name, group.model_copy(update={"ranges": (compress(kept),), "overrides": overrides, "addresses": addresses})


def _require_majority(spec: ClusterSpec, operation: Operation) -> None:
    every = [server.name for server in spec.servers]
    left = len(every) - len(operation.touched(every))
    if left % 2 == 0:
        raise NoMajority(f"before {len(every) - left} of {len(every)} servers are added the cluster would have {left}")


def _before(version: str, older: str) -> str:
    """The release that the upgrade starts from; what plays on real hosts refuse is refused here."""
    wanted, found = parse_version(version), parse_version(older)
    if wanted is None or (not older and not wanted.patch):
        raise NoEarlier(f"there is no patch release before {version} to rehearse the upgrade from")
    if not older:
        return f"v{wanted.major}.{wanted.minor}.{wanted.patch - 1}+rke2r1"
    if found is None:
        raise NoEarlier(f"--from {older}: that is no release of RKE2")
    if found >= wanted:
        raise NoEarlier(f"--from {older}: an upgrade to the spec's {version} cannot start from it, since it is not older")
    if (found.major, found.minor) < (wanted.major, wanted.minor - 1):
        raise NoEarlier(f"--from {older}: an upgrade to the spec's {version} would skip a minor, which Kubernetes does not support")
    return older


def _after(version: str, newer: str) -> str:
    """The release that the rollback starts from: one that the spec's could have been upgraded to."""
    wanted, found = parse_version(version), parse_version(newer)
    if wanted is None:
        raise NoEarlier(f"{version} is no release of RKE2")
    if not newer:
        return f"v{wanted.major}.{wanted.minor + 1}.0+rke2r1"
    if found is None:
        raise NoEarlier(f"--from {newer}: that is no release of RKE2")
    if found <= wanted:
        raise NoEarlier(f"--from {newer}: a rollback to the spec's {version} cannot start from it, since it is not newer")
    if (found.major, found.minor) > (wanted.major, wanted.minor + 1):
        raise NoEarlier(f"--from {newer}: no upgrade leads to it from the spec's {version}, since it would skip a minor")
    return newer
