"""Faults that a rehearsal can inject into the simulated cluster for the gates of stage gang to catch."""

from workflows.rehearsal.faults.fault_registry import Fault

FAULTS = (
    Fault(
        name="gang_scheduler_crashes",
        gate="gang/control",
        needs="scheduler.gang=volcano",
        summary="Volcano's scheduler crashes at its start; controllers and admission run.",
        caught_by="Deployment volcano-scheduler has no ready pod.",
    ),
    Fault(
        name="gang_queue_closed",
        gate="gang/control",
        needs="scheduler.gang=volcano",
        summary="Volcano's default queue is closed and accepts no gang.",
        caught_by="Queue default has state Closed.",
        source="https://volcano.sh/en/docs/queue/",
    ),
    Fault(
        name="gang_nodes_cordoned",
        gate="gang/nodes",
        needs="scheduler.gang=volcano",
        node="gpus:2",
        summary="Two nodes are cordoned after the GPU stages have passed.",
        caught_by="The nodes are not schedulable, though they advertise their GPUs.",
        source="https://kubernetes.io/docs/concepts/architecture/nodes/",
    ),
    Fault(
        name="gang_binds_partially",
        gate="gang/oversize",
        needs="scheduler.gang=volcano",
        summary="The scheduler binds as many members as fit, because its gang plugin is off.",
        caught_by="Members of a gang that cannot fit are bound.",
        source="https://volcano.sh/en/docs/plugins/",
    ),
    Fault(
        name="gang_binds_for_a_moment",
        gate="gang/oversize",
        needs="scheduler.gang=volcano",
        summary="The scheduler binds one member of a gang that cannot fit and takes it back a second later.",
        caught_by="The event Scheduled about this member outlives the pod; the pods alone show no binding.",
    ),
    Fault(
        name="gang_scheduler_hangs",
        gate="gang/oversize",
        needs="scheduler.gang=volcano",
        summary="The scheduler's pod is ready, but its sessions never run, so no pod is bound.",
        caught_by="No member is bound, but the scheduler wrote nothing about the gang: the verdict is inconclusive, never a pass.",
    ),
    Fault(
        name="gang_starves",
        gate="gang/functional",
        needs="scheduler.gang=volcano",
        summary="The scheduler counts free GPUs as taken, so a gang that fits waits for ever.",
        caught_by="The gang's members are not bound in time although enough units are free.",
    ),
)
