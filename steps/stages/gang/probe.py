"""Reads gang schedulers: releases, queues and quotas, who else runs them, nodes with their free units, and a check's gang."""

from steps.stages.gang import probe_gang, probe_parts, probe_queues, probe_world
from steps.stages.gang.contract import ControlObservation, GangObservation, NodesObservation
from steps.stages.shared import probe_charts, probe_workloads
from steps.stages.shared.kube_reader import KubeReader, Scope


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return releases, the Deployments of their namespaces, the parts of schedulers anywhere, queues, flavors and quotas."""
    releases = probe_charts.scoped_releases(scope)
    spaces = tuple(dict.fromkeys(release.namespace for release in releases))
    cluster_queues, flavors = probe_queues.cluster_queues(kube), probe_queues.flavors(kube)
    return ControlObservation(
        releases=probe_charts.observe(kube, releases),
        root_app=probe_charts.root(kube, scope),
        workloads=tuple(row for space in spaces for row in probe_workloads.read(kube, space, lambda _: True, ("Deployment",))),
        trouble=tuple(row for space in spaces for row in probe_workloads.troubles(probe_workloads.pods(kube, space))),
        queues=probe_queues.queues(kube, cluster_queues),
        flavors=flavors,
        covered=probe_queues.covered(cluster_queues),
        quotas=probe_queues.quotas(kube, cluster_queues),
        capacity=probe_world.capacity(kube, {flavor.name: flavor.labels for flavor in flavors}, scope.nodes),
        parts=probe_parts.parts(kube),
    )


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """Return the registered expected nodes with the units of `resource` and the `labels` that the task's arguments name."""
    wanted = frozenset(scope.nodes)
    nodes = probe_world.nodes(kube, str(probe_charts.read_argument(scope, "resource")), probe_charts.read_argument(scope, "labels"))
    return NodesObservation(nodes=tuple(node for node in nodes if node.name in wanted))


def oversize(kube: KubeReader, scope: Scope) -> GangObservation:
    """Return the gang of check `gang-oversize`: its group, queue, pods, bindings and events."""
    return probe_gang.read(kube, scope, "gang-oversize")


def functional(kube: KubeReader, scope: Scope) -> GangObservation:
    """Return the gang of check `gang-fit`: its group, queue, pods, bindings and events."""
    return probe_gang.read(kube, scope, "gang-fit")
