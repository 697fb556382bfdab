"""Faults that a rehearsal can inject into the simulated cluster for the gates of stage slurm to catch."""

from workflows.rehearsal.faults.fault_registry import Fault

FAULTS = (
    Fault(
        name="slurm_webhook_down",
        gate="slurm/charts",
        summary="The operator's admission webhook has no certificate and does not start, so that no Slurm cluster can be created.",
        caught_by="The release slurm-operator is deployed, but one of its two Deployments has no ready pod.",
        false_green="The install Job is complete and the Helm release is deployed.",
        source="https://github.com/SlinkyProject/slurm-operator",
    ),
    Fault(
        name="slurmctld_crashes",
        gate="slurm/control",
        summary="slurmctld crashes, while Controller, RestApi and NodeSet exist without any bad condition.",
        caught_by="StatefulSet slurm-controller has no ready pod.",
        source="https://github.com/SlinkyProject/slurm-operator",
    ),
    Fault(
        name="slurm_nodes_drained",
        gate="slurm/control",
        node="gpus:2",
        summary="Slurm drains two nodes for too little memory, while their pods are ready and the nodes still count as idle.",
        caught_by="The NodeSet counts two drained nodes, more than the quorum forgives; a pod's condition gives the reason.",
        source="https://slurm.schedmd.com/slurm.conf.html",
    ),
    Fault(
        name="slurm_nodes_down",
        gate="slurm/control",
        node="gpus:2",
        summary="Two nodes stop answering slurmctld while their pods run.",
        caught_by="The NodeSet counts two down nodes, more than the quorum forgives.",
        source="https://slurm.schedmd.com/sinfo.html",
    ),
    Fault(
        name="slurm_gres_lower_than_configured",
        gate="slurm/control",
        node="gpus:2",
        summary="slurmd finds one GPU less than configured on two nodes, and slurmctld drains them.",
        caught_by="The drained nodes' reason is gres/gpu count reported lower than configured.",
        source="https://slurm.schedmd.com/gres.html",
    ),
    Fault(
        name="slurmd_crashes",
        gate="slurm/control",
        node="gpus:2",
        summary="slurmd does not find /dev/nvidia0 on two nodes and ends.",
        caught_by="The NodeSet has two ready pods fewer than it wants.",
        source="https://slurm.schedmd.com/gres.conf.html",
    ),
    Fault(
        name="slurm_gres_lower_than_hardware",
        gate="slurm/nodes",
        summary="The NodeSet's configuration promises four GPUs a node, so half of the GPUs never get a job.",
        caught_by="Slurm's Gres and the nodes' allocatable GPUs differ.",
        source="https://slurm.schedmd.com/gres.html",
    ),
    Fault(
        name="slurm_key_differs",
        gate="slurm/functional",
        node="gpus:2",
        summary="Two nodes have another authentication key: sinfo shows them as idle, but they refuse every job.",
        caught_by="srun over all nodes fails on them: Invalid job credential.",
        source="https://slurm.schedmd.com/authentication.html",
    ),
    Fault(
        name="slurm_job_misses_gpu",
        gate="slurm/functional",
        node="gpus:2",
        summary="A job that asks for all GPUs of a node sees one less on two nodes, because a device cgroup hides it.",
        caught_by="nvidia-smi -L inside the job lists seven GPUs.",
        source="https://slurm.schedmd.com/cgroup.conf.html",
    ),
)
