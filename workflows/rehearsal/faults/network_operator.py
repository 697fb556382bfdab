"""Faults that a rehearsal can inject into the simulated cluster for the gates of stage network_operator to catch."""

from workflows.rehearsal.faults.fault_registry import Fault

FAULTS = (
    Fault(
        name="network_operator_brings_nfd",
        gate="network_operator/control",
        summary="The chart installs its own NFD although its values forbid it: the cluster has two.",
        caught_by="Two NFD worker DaemonSets exist.",
        false_green="All pods of both NFD installations are ready.",
        source="https://github.com/Mellanox/network-operator-docs",
    ),
    Fault(
        name="rdma_state_ignored",
        gate="network_operator/control",
        summary="NicClusterPolicy is ready as a whole, but its RDMA device plugin has state ignore and is not installed.",
        caught_by="state-RDMA-device-plugin is ignore, not ready.",
        false_green="NicClusterPolicy as a whole has state ready.",
        source="https://github.com/Mellanox/network-operator",
    ),
    Fault(
        name="rdma_plugin_image_missing",
        gate="network_operator/control",
        summary="The operator is installed, but the image of the RDMA device plugin cannot be pulled on any node.",
        caught_by="state-RDMA-device-plugin is notReady, and its pods are in ImagePullBackOff.",
        false_green="The install Job is complete and the Helm release is deployed.",
        source="https://github.com/Mellanox/network-operator",
    ),
    Fault(
        name="rdma_no_devices",
        gate="network_operator/nodes",
        node="gpus:2",
        summary="The device plugin's selector matches no device on two nodes, although its pods run.",
        caught_by="The RDMA resource is not allocatable on these nodes.",
        source="https://github.com/Mellanox/k8s-rdma-shared-dev-plugin",
    ),
    Fault(
        name="ib_port_down",
        gate="network_operator/functional",
        node="gpus:2",
        summary="One InfiniBand port is down on two nodes; the shared resource still advertises its full number.",
        caught_by="The check finds seven active ports, where eight are expected.",
    ),
    Fault(
        name="ib_slow",
        gate="network_operator/functional",
        node="gpus:2",
        summary="Two nodes reach a quarter of the line rate with every neighbour.",
        caught_by="All pairs with these nodes are below the floor.",
    ),
)
