"""Survey of secondary addresses: pods and nodes that had one of the check's pods at that time, not those that got it later."""

import json
from typing import Any

import msgspec

from steps.stages.network_operator import probe_addresses

STATUS = "k8s.v1.cni.cncf.io/network-status"
AT = "2026-11-20T10:{:02d}:00Z"


class Cluster:
    """A KubeReader with fixed pods and nodes."""

    def __init__(self, pods: list[Any], nodes: list[Any]) -> None:
        self._lists = {"/api/v1/pods": pods, "/api/v1/nodes": nodes}

    def list(self, path: str, kind: type) -> list[Any]:
        return [msgspec.convert(item, kind) for item in self._lists[path]]


def pod(
    name: str, address: str, begin: int, *, phase: str = "Running", end: int = 0, network: int = 0, **meta: Any
) -> dict[str, Any]:
    """Return a pod that got its network at minute `network`, or when it began; a pod of the check has an `end`."""
    default = {"name": "canal", "interface": "eth0", "ips": ["192.168.0.9"], "default": True}
    status = json.dumps([default, {"name": "default/fabric", "interface": "net1", "ips": [address]}])
    meta |= {"namespace": "bringup-check", "labels": {"bringup/check": "ib-write-bw"}} if end else {"namespace": "team-a"}
    ended = [{"state": {"terminated": {"finishedAt": AT.format(end)}}}] if end else [{"state": {}}]
    ready = {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": AT.format(network)}
    state = {"phase": phase, "startTime": AT.format(begin), "containerStatuses": ended, "conditions": [ready] if network else []}
    return {"metadata": {"name": name, "annotations": {STATUS: status}, **meta}, "spec": {"nodeName": "gpu009"}, "status": state}


def test_only_who_had_an_address_at_that_time_is_a_holder() -> None:
    pods = [
        pod("check-0", "192.168.0.5", 10, end=20, phase="Succeeded"),
        pod("check-1", "192.168.0.9", 10, end=20, phase="Succeeded"),
        pod("beside", "192.168.0.5", 5),
        pod("starting", "192.168.0.5", 5, phase="Pending"),
        pod("later", "192.168.0.5", 21),
        pod("waited-for-a-volume", "192.168.0.5", 5, network=21),
        pod("ended", "192.168.0.5", 5, phase="Failed"),
        pod("going", "192.168.0.5", 5, deletionTimestamp=AT.format(19)),
        pod("elsewhere", "192.168.0.6", 5),
        {"metadata": {"name": "plain", "namespace": "team-a"}},
        pod("broken", "192.168.0.5", 5) | {"metadata": {"name": "broken", "namespace": "team-a", "annotations": {STATUS: "["}}},
    ]
    nodes = [
        {"metadata": {"name": "login01"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.9"}]}},
        {"metadata": {"name": "gpu009"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}},
    ]
    survey = probe_addresses.survey(Cluster(pods, nodes), "ib-write-bw")
    assert [(holder.text, holder.addresses) for holder in survey.holders] == [
        ("node login01", ("192.168.0.9",)),
        ("pod team-a/beside on gpu009", ("192.168.0.5",)),
        ("pod team-a/starting on gpu009", ("192.168.0.5",)),
    ]
    assert survey.pods == 9, "of pods whose networks can be read"
