"""Faults of stage network_operator."""

from workflows.rehearsal.faults.registry import Fault

FAULTS = (
    Fault(
        name="network_operator_brings_nfd",
        stage="network_operator",
        gate="network_operator/control",
        summary="The chart installs its own NFD although it was told not to: two NFDs in the cluster.",
        caught_by="Two NFD worker DaemonSets exist.",
        false_green="0.8",
    ),
    Fault(
        name="rdma_state_ignored",
        stage="network_operator",
        gate="network_operator/control",
        summary="NicClusterPolicy is ready as a whole, but the RDMA device plugin is ignore: nobody installs it.",
        caught_by="state-RDMA-device-plugin is ignore, not ready.",
        false_green="2.3",
    ),
    Fault(
        name="rdma_plugin_image_missing",
        stage="network_operator",
        gate="network_operator/control",
        summary="The operator is installed, but the image of the RDMA device plugin cannot be pulled on any node.",
        caught_by="state-RDMA-device-plugin is notReady, its pods are in ImagePullBackOff.",
        false_green="0.6",
    ),
    Fault(
        name="rdma_no_devices",
        stage="network_operator",
        gate="network_operator/nodes",
        node="gpus:2",
        summary="The device plugin's selector matches no device on two nodes; its pods run all the same.",
        caught_by="The RDMA resource is not allocatable on these nodes.",
    ),
    Fault(
        name="ib_port_down",
        stage="network_operator",
        gate="network_operator/functional",
        node="gpus:2",
        summary="One InfiniBand port is down on two nodes; the shared resource still advertises its full number.",
        caught_by="The check sees seven active ports, eight are expected.",
    ),
    Fault(
        name="ib_slow",
        stage="network_operator",
        gate="network_operator/functional",
        node="gpus:2",
        summary="Two nodes reach a quarter of the line rate with every neighbour.",
        caught_by="All pairs of these nodes are below the floor.",
    ),
)
