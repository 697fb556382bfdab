"""Faults that a rehearsal can inject into the simulated cluster for the gates of stage sharing to catch. Most need one mode."""

from workflows.rehearsal.faults.fault_registry import Fault

FAULTS = (
    Fault(
        name="stray_sharing_config",
        gate="sharing/control",
        needs="sharing.mode=none",
        summary="Another administrator gave ClusterPolicy a device-plugin configuration that divides every GPU by ten.",
        caught_by="The default configuration says time-slicing where whole GPUs are wanted, before any node shows it.",
        source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html",
    ),
    Fault(
        name="sharing_labels_left",
        gate="sharing/nodes",
        needs="sharing.mode=none",
        node="gpus:2",
        summary="Two nodes still carry feature discovery's labels of a former time-slicing.",
        caught_by="The labels sharing-strategy and replicas contradict the number of GPUs; schedulers and quotas select by them.",
        source="https://github.com/NVIDIA/k8s-device-plugin",
    ),
    Fault(
        name="pods_see_every_gpu",
        gate="sharing/functional",
        summary="The container runtime gives every GPU of the node to every container, whatever was requested.",
        caught_by="A pod that asked for one unit sees eight devices.",
    ),
    Fault(
        name="time_slicing_without_effect",
        gate="sharing/nodes",
        needs="sharing.mode=time_slicing",
        node="gpus:2",
        summary="On two nodes the device plugin does not follow the node's label.",
        caught_by="They advertise whole GPUs although the label says shared.",
        source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html",
    ),
    Fault(
        name="two_shares_granted",
        gate="sharing/functional",
        needs="sharing.mode=time_slicing",
        summary="The device plugin grants requests for two shares.",
        caught_by="The pod that asks for two shares runs, where it should be refused.",
        source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html",
    ),
    Fault(
        name="mig_false_success",
        gate="sharing/nodes",
        needs="sharing.mode=mig",
        node="gpus:2",
        summary="On two nodes the MIG configuration matches no GPU: the state is success, but nothing changed.",
        caught_by="mig.config.state is success, and the node advertises whole GPUs.",
        source="https://github.com/NVIDIA/mig-parted",
    ),
    Fault(
        name="mig_pending_for_ever",
        gate="sharing/nodes",
        needs="sharing.mode=mig",
        node="gpus:2",
        summary="On two nodes the MIG manager waits for ever for pods to go.",
        caught_by="mig.config.state stays pending until the gate's deadline.",
        source="https://github.com/NVIDIA/mig-parted",
    ),
)
