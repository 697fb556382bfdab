"""Rules over the networks of one spec: families that must agree, networks that must be apart and hold every node."""

import ipaddress
from collections.abc import Iterator

from workflows.spec.addresses import version
from workflows.spec.cluster import ClusterSpec
from workflows.spec.errors import SpecError

Findings = Iterator[SpecError]


def sizes(spec: ClusterSpec) -> Findings:
    """Pods and Services have networks apart, and there is a part of the first for every node."""
    pods, services = ipaddress.ip_network(spec.rke2.cluster_cidr), ipaddress.ip_network(spec.rke2.service_cidr)
    if pods.version == services.version and pods.overlaps(services):
        yield SpecError("rke2.service_cidr", "overlaps cluster_cidr", "give the two networks apart", spec.rke2.service_cidr)
    nodes = len(spec.machines)
    if pods.version == 4 and nodes > 1 << max(24 - pods.prefixlen, 0):
        prefix = 24 - (nodes - 1).bit_length()
        problem = f"{nodes} nodes need a /24 each, more than this network holds"
        yield SpecError("rke2.cluster_cidr", problem, f"use a /{prefix} or larger", spec.rke2.cluster_cidr)


def families(spec: ClusterSpec) -> Findings:
    """Pods and Services have one version of IP: RKE2 ends where they do not (pkg/agent/run.go of K3s). Of nodes the spec knows
    only what SSH dials: P22."""
    pods, services = version(spec.rke2.cluster_cidr), version(spec.rke2.service_cidr)
    if pods != services:
        problem = f"IPv{services} for Services and IPv{pods} for pods (cluster_cidr): RKE2 does not start"
        fix = "give cluster_cidr and service_cidr of one version of IP"
        yield SpecError("rke2.service_cidr", problem, fix, spec.rke2.service_cidr)
