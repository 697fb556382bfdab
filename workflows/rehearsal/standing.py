"""What an operation finds when it is rehearsed: the cluster of the same spec as it was before it."""

from collections.abc import Iterator
from typing import Any

from steps.contract.operation import Kind, Operation
from steps.contract.stages.rke2 import parse_version
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.spec import ClusterSpec
from workflows.spec.hosts import HostGroup
from workflows.spec.ranges import compress


class NoEarlier(ValueError):
    """Nothing says which release a rehearsed upgrade starts from."""

    hint = "name it: --from v1.35.6+rke2r1"


def ground(spec: ClusterSpec, plan: Plan, operation: Operation, older: str = "") -> Plan:
    """The plan that builds that cluster, without approvals: up to the last stage that the operation looks at.

    An added host is missing, an upgrade finds `older` (the patch release before, where none is named). Raises NoEarlier.
    """
    changes: dict[str, Any] = {"approvals": ()}
    if operation.kind is Kind.ADD_NODE:
        changes["hosts"] = dict(_without(spec, operation))
    if operation.kind is Kind.UPGRADE:
        changes["rke2"] = spec.rke2.model_copy(update={"version": older or _patch_before(spec.rke2.version)})
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


def _patch_before(version: str) -> str:
    found = parse_version(version)
    if found is None or not found.patch:
        raise NoEarlier(f"there is no patch release before {version} to rehearse the upgrade from")
    return f"v{found.major}.{found.minor}.{found.patch - 1}+rke2r1"
