"""Rules about the networks of a spec, which must not overlap and must hold every node."""

import ipaddress
from collections.abc import Iterator

from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.errors import SpecError

Findings = Iterator[SpecError]


def sizes(spec: ClusterSpec) -> Findings:
    """Check that the networks of pods and Services do not overlap, and that every node gets a part of the former."""
    pods, services = ipaddress.IPv4Network(spec.rke2.cluster_cidr), ipaddress.IPv4Network(spec.rke2.service_cidr)
    if pods.overlaps(services):
        yield SpecError("rke2.service_cidr", "overlaps cluster_cidr", "give the two networks apart", spec.rke2.service_cidr)
    nodes = len(spec.machines)
    if nodes > 1 << max(24 - pods.prefixlen, 0):
        prefix = 24 - (nodes - 1).bit_length()
        problem = f"{nodes} nodes need a /24 each, more than this network holds"
        yield SpecError("rke2.cluster_cidr", problem, f"use a /{prefix} or larger", spec.rke2.cluster_cidr)
