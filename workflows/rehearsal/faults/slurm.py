"""Faults of stage slurm."""

from workflows.rehearsal.faults.registry import Fault

FAULTS = (
    Fault(
        name="slurm_webhook_down",
        stage="slurm",
        gate="slurm/charts",
        summary="The operator's admission webhook has no certificate and does not start, so that no Slurm cluster can be created.",
        caught_by="The release slurm-operator is deployed, but one of its two Deployments has no ready pod.",
        false_green="0.6",
    ),
    Fault(
        name="slurmctld_crashes",
        stage="slurm",
        gate="slurm/control",
        summary="slurmctld crashes; Controller, RestApi and NodeSet exist, and none of them has a bad condition.",
        caught_by="StatefulSet slurm-controller has no ready pod, whatever the custom resources do not say.",
    ),
    Fault(
        name="slurm_nodes_drained",
        stage="slurm",
        gate="slurm/control",
        node="gpus:2",
        summary="Slurm drains two nodes for too little memory; their pods are ready, and the nodes still count as idle.",
        caught_by="The NodeSet counts two drained nodes, more than the quorum lets go; a pod's condition tells the reason.",
    ),
    Fault(
        name="slurm_nodes_down",
        stage="slurm",
        gate="slurm/control",
        node="gpus:2",
        summary="Two nodes stop answering slurmctld while their pods run.",
        caught_by="The NodeSet counts two down nodes, more than the quorum lets go.",
    ),
    Fault(
        name="slurm_gres_lower_than_configured",
        stage="slurm",
        gate="slurm/control",
        node="gpus:2",
        summary="slurmd finds one GPU less than configured on two nodes, and slurmctld drains them.",
        caught_by="The drained nodes' reason is gres/gpu count reported lower than configured.",
    ),
    Fault(
        name="slurmd_crashes",
        stage="slurm",
        gate="slurm/control",
        node="gpus:2",
        summary="slurmd does not find /dev/nvidia0 on two nodes and ends.",
        caught_by="The NodeSet has two pods less ready than it wants.",
    ),
    Fault(
        name="slurm_gres_lower_than_hardware",
        stage="slurm",
        gate="slurm/nodes",
        summary="The NodeSet's configuration promises four GPUs a node; Slurm is content, and half of the GPUs never get a job.",
        caught_by="Slurm's Gres and the nodes' allocatable GPUs differ.",
    ),
    Fault(
        name="slurm_key_differs",
        stage="slurm",
        gate="slurm/functional",
        node="gpus:2",
        summary="Two nodes have another authentication key: they are idle in sinfo, and refuse every job.",
        caught_by="srun over all nodes does not come back from them: Invalid job credential.",
    ),
    Fault(
        name="slurm_job_misses_gpu",
        stage="slurm",
        gate="slurm/functional",
        node="gpus:2",
        summary="A job that asks for all GPUs of a node sees one less on two nodes, because a device cgroup hides it.",
        caught_by="nvidia-smi -L inside the job lists seven GPUs.",
    ),
)
