"""Faults of stage sharing; most of them show in one sharing mode only."""

from workflows.rehearsal.faults.registry import Fault

FAULTS = (
    Fault(
        name="stray_sharing_config",
        stage="sharing",
        gate="sharing/control",
        needs="sharing.mode=none",
        summary="Somebody gave ClusterPolicy a device-plugin configuration that divides every GPU by ten.",
        caught_by="The default configuration says time-slicing where whole GPUs are wanted; no node shows it yet.",
    ),
    Fault(
        name="sharing_labels_left",
        stage="sharing",
        gate="sharing/nodes",
        needs="sharing.mode=none",
        node="gpus:2",
        summary="Two nodes still carry feature discovery's labels of an earlier time-slicing.",
        caught_by="Labels sharing-strategy and replicas contradict the number of GPUs; schedulers and quotas select by them.",
    ),
    Fault(
        name="pods_see_every_gpu",
        stage="sharing",
        gate="sharing/functional",
        summary="The container runtime gives every GPU of the node to every container, whatever was requested.",
        caught_by="A pod that asked for one unit sees eight devices.",
    ),
    Fault(
        name="time_slicing_without_effect",
        stage="sharing",
        gate="sharing/nodes",
        needs="sharing.mode=time_slicing",
        node="gpus:2",
        summary="On two nodes the device plugin does not follow the node's label.",
        caught_by="They advertise whole GPUs although the label says shared.",
    ),
    Fault(
        name="two_shares_granted",
        stage="sharing",
        gate="sharing/functional",
        needs="sharing.mode=time_slicing",
        summary="The device plugin grants requests for two shares.",
        caught_by="The pod that asks for two shares runs.",
    ),
    Fault(
        name="mig_false_success",
        stage="sharing",
        gate="sharing/nodes",
        needs="sharing.mode=mig",
        node="gpus:2",
        summary="On two nodes the MIG configuration matches no GPU: state success, and nothing changed.",
        caught_by="mig.config.state is success, and the node advertises whole GPUs.",
    ),
    Fault(
        name="mig_pending_for_ever",
        stage="sharing",
        gate="sharing/nodes",
        needs="sharing.mode=mig",
        node="gpus:2",
        summary="On two nodes the MIG manager waits for pods that never go.",
        caught_by="mig.config.state stays pending until the gate's deadline.",
    ),
)
