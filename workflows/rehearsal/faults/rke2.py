"""Faults of stage rke2."""

from workflows.rehearsal.faults.registry import Fault

FAULTS = (
    Fault(
        name="join_refused",
        stage="rke2",
        gate="rke2/agents",
        node="agents:2",
        summary="Two agents hold a join token of another cluster: their service fails at its start.",
        caught_by="The play's records of these hosts are failed, with the token message as the reason.",
    ),
    Fault(
        name="etcd_member_missing",
        stage="rke2",
        gate="rke2/control",
        node="servers:1",
        summary="The etcd member of one server crashes and left the cluster, while its node stays Ready and the API answers.",
        caught_by="The server's etcd pod is not ready and its condition EtcdIsVoter is False.",
    ),
    Fault(
        name="coredns_not_ready",
        stage="rke2",
        gate="rke2/control",
        summary="CoreDNS pods run but never pass their readiness probes.",
        caught_by="Deployment rke2-coredns-rke2-coredns has no available replica.",
    ),
    Fault(
        name="node_not_ready",
        stage="rke2",
        gate="rke2/nodes",
        node="agents:2",
        summary="Two agents register, but their network plugin never initializes: they stay NotReady.",
        caught_by="Condition Ready of these nodes is False with reason KubeletNotReady.",
    ),
    Fault(
        name="kubelet_version_skew",
        stage="rke2",
        gate="rke2/nodes",
        node="agents:2",
        summary="Two agents have the new binary installed and still run the old kubelet: the service was not restarted.",
        caught_by="nodeInfo.kubeletVersion of these nodes is not the pinned one, although the host's binary is.",
    ),
    Fault(
        name="dns_broken",
        stage="rke2",
        gate="rke2/functional",
        summary="CoreDNS is ready, but look-ups from pods time out.",
        caught_by="No check pod resolved kubernetes.default.svc.cluster.local.",
    ),
    Fault(
        name="overlay_broken",
        stage="rke2",
        gate="rke2/functional",
        node="agents:2",
        summary="The pod network of two agents drops packets to and from other nodes (a firewall closes UDP 8472).",
        caught_by="The check pods of these nodes reached no pod on another node.",
    ),
)
