"""Types of stage slurm (Slurm on Kubernetes by Slinky or SUNK): observations of operator, nodes and jobs, and expectations."""

from typing import Literal

from msgspec import Struct

from steps.contract.objects.charts import Release, ReleaseState, RootApplication, RootState, Trouble, Workload
from steps.contract.objects.checks import CHECK_NAMESPACE, CheckPod
from steps.contract.verdict import ToolError


class NodeSet(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A NodeSet of Slinky or SUNK. `gpus` is the number that its configuration promises per node (`Gres=gpu:…`), 0 for none.

    `idle`, `allocated` (including mixed), `down` and `drain` count Slurm nodes, the other counts are pods. SUNK does not
    count idle nodes: those that are ready count as idle. It does not count pods of the current revision either (`tells_updated`
    False): gate slurm/placement compares the pods themselves. `unavailable` pods are counted by SUNK alone.
    """

    name: str
    generation: int = 0
    observed: int = 0
    desired: int = 0
    replicas: int = 0
    updated: int = 0
    tells_updated: bool = True
    ready: int = 0
    unavailable: int = 0
    idle: int = 0
    allocated: int = 0
    down: int = 0
    drain: int = 0
    gpus: int = 0


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Controller, RestApi, LoginSet or Accounting: a custom resource of Slinky.

    `bad` are its conditions that are not True, as `Type: message`. Slinky's operator 1.2 sets no condition on them, so the absence
    of bad conditions is no sign of health; their workloads are judged.
    """

    kind: str
    name: str
    bad: tuple[str, ...] = ()


class SlurmPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod that runs slurmd. `name` is the Slurm node's name; `states` are Slurm's states in lower case.

    `reason` is Slurm's reason for not using the node, `trouble` the reason for which the pod is not ready; `nodeset` owns the pod.
    `gpus` is the number of whole GPUs that Kubernetes gives the pod.
    """

    pod: str
    name: str
    node: str = ""
    nodeset: str = ""
    gpus: int = 0
    phase: str = ""
    ready: bool = False
    states: tuple[str, ...] = ()
    reason: str = ""
    trouble: Trouble | None = None


class SyncerLog(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last minute of the log of SUNK's syncer, which copies Slurm's states to Kubernetes: its newest lines about errors.

    `is_known` is False if the log cannot be read.
    """

    pod: str
    is_known: bool = False
    errors: tuple[str, ...] = ()


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate slurm/control: charts, Slinky's custom resources with their workloads, and NodeSets of Slinky or SUNK.

    Of the pods that run slurmd, only those that Slurm cannot use are in it. `served`: the API serves NodeSets. `syncers` are the
    ready pods of SUNK's syncer.
    """

    releases: tuple[ReleaseState, ...] = ()
    root_app: RootState | None = None
    served: bool = False
    parts: tuple[Part, ...] = ()
    workloads: tuple[Workload, ...] = ()
    nodesets: tuple[NodeSet, ...] = ()
    troubled: tuple[SlurmPod, ...] = ()
    syncers: tuple[SyncerLog, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate slurm/control.

    `parts` are kinds that must exist (Controller, RestApi, LoginSet, Accounting) with `workloads` ready workloads. NodeSets must
    want `nodes_desired` pods together, or up to `spare` fewer, because a cordoned node is not wanted. As many must be ready and
    usable by Slurm. With `nodes_desired` 0, NodeSets are not checked. `syncer`: SUNK's syncer must run, and log no error any more.
    """

    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
    parts: tuple[str, ...] = ()
    workloads: int = 0
    nodes_desired: int = 0
    spare: int = 0
    syncer: bool = False


class GpuMonitorCondition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition of a Kubernetes node that GCM, a GPU monitor beside SUNK, writes: `GcmXidErrorsProblem`; True is bad."""

    node: str
    type: str
    status: str = ""
    message: str = ""


class NodesObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate slurm/nodes: slurmd pods, GPUs that NodeSets promise, and Kubernetes' allocatable GPUs by node.

    `monitored` are GCM's conditions on all nodes; there are none where its chart is not installed.
    """

    pods: tuple[SlurmPod, ...] = ()
    nodesets: tuple[NodeSet, ...] = ()
    allocatable: dict[str, int] = {}
    monitored: tuple[GpuMonitorCondition, ...] = ()


class NodesExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate slurm/nodes.

    `gpus` is the usual number that Slurm has on a node, `others` maps nodes with another number to it; 0 if a node has none, or if
    Slurm does not manage them. `installed` maps nodes with more GPUs than Slurm has there to that number: a NodeSet has one number.
    `states`: Slurm's own state of a node must be known. `promised`: the NodeSet's Gres must agree with Kubernetes.
    """

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    others: dict[str, int] = {}
    installed: dict[str, int] = {}
    states: bool = True
    promised: bool = True


class SlurmNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node as Slurm's own tools print it. `states` in lower case, base state first (`idle`, `drain`, …); `gpus` from its Gres."""

    name: str
    states: tuple[str, ...] = ()
    reason: str = ""
    gres: str = ""
    gpus: int = 0


class Srun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parsed output of the srun check: nodes by `sinfo`, hosts that an srun over all nodes reached, GPUs on each, and errors.

    `gpus` counts those that a job saw on a node, `passed` those on which it ran a CUDA kernel; `failed` is what the kernel said.
    `clusters` are the clusters that the accounting daemon knows with the address of their controller.
    """

    nodes: tuple[SlurmNode, ...] = ()
    hosts: tuple[str, ...] = ()
    gpus: dict[str, int] = {}
    passed: dict[str, int] = {}
    failed: dict[str, str] = {}
    exits: dict[str, int] = {}
    clusters: tuple[str, ...] = ()
    errors: tuple[ToolError, ...] = ()


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate slurm/functional: check pods, output of srun (None: no report), and Slurm node → Kubernetes node.

    `namespace` is that of the check pods.
    """

    namespace: str = CHECK_NAMESPACE
    pods: tuple[CheckPod, ...] = ()
    srun: Srun | None = None
    node_of: dict[str, str] = {}


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate slurm/functional: a job on every node must see as many GPUs as Slurm's Gres has.

    `gpus` is the usual number, `others` maps nodes with another number to it. `accounting`: the accounting daemon must answer, and
    know the cluster's controller. `kernels`: each GPU must run a CUDA kernel in a job, which a check in SUNK's login pod cannot ask
    for: no program for it can be built there.
    """

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    others: dict[str, int] = {}
    accounting: bool = False
    kernels: bool = True


# ---- what jobs prove about the cluster -------------------------------------------------------------------------------------------

JobCheckName = Literal[
    "batch",
    "two",
    "array",
    "dependency",
    "het",
    "steps",
    "memory",
    "gpu",
    "exclusive",
    "shared",
    "prolog",
    "epilog",
    "home",
    "pyxis",
    "login",
    "user",
    "pmix",
    "metrics",
    "restart",
]
"""Checks of gate slurm/scheduling, each with jobs or an answer; `gate_scheduling.py` says what each proves."""


class PartitionState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A partition as sinfo shows it: its availability (`up`) and its Slurm nodes; `oversubscribe` (`FORCE:2`) is scontrol's."""

    name: str
    available: str = ""
    nodes: tuple[str, ...] = ()
    oversubscribe: str = ""


class SlurmJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job of a check after it ended, as `scontrol show job` prints it.

    `check` is the check that submitted it. `start` and `end` are local times (`2026-11-29T12:00:00`), which sort as text.
    `accounted` is `STATE EXITCODE` in the accounting database, empty if it has no record; `steps` counts the steps there. The job
    itself wrote `comment` into its record.
    """

    check: str
    id: str
    state: str = ""
    exit_code: str = ""
    reason: str = ""
    nodes: tuple[str, ...] = ()
    restarts: int = 0
    start: str = ""
    end: str = ""
    accounted: str = ""
    steps: int = 0
    comment: str = ""


class JobsReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parsed output of the check `slurm-jobs`.

    `controllers` are the answers of `scontrol ping` as `primary UP`. `partitions`, `qos` and `topology` (leaf switch → nodes) are
    those of the running slurmctld, `topology_file` the same of topology.conf. `refusals` maps checks to the line with which Slurm
    refused their job; `answers` maps `CHECK WORD` to a line that a job or tool printed. `boots` are slurmctld's boot times before
    and after its restart. `metrics` maps metrics that Slurm serves to the sum of their values. `remaining` are the check's jobs in
    the queue at the end, `nodes` the states of all nodes then.
    """

    controllers: tuple[str, ...] = ()
    partitions: tuple[PartitionState, ...] = ()
    qos: tuple[str, ...] = ()
    topology: dict[str, tuple[str, ...]] = {}
    topology_file: dict[str, tuple[str, ...]] = {}
    jobs: tuple[SlurmJob, ...] = ()
    refusals: dict[str, str] = {}
    answers: dict[str, str] = {}
    boots: tuple[str, ...] = ()
    metrics: dict[str, int] = {}
    remaining: tuple[str, ...] = ()
    nodes: tuple[SlurmNode, ...] = ()
    errors: tuple[ToolError, ...] = ()


class SchedulingObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate slurm/scheduling: check pods, their report (None: there is none), and Slurm node → Kubernetes node.

    `namespace` is that of the check pods.
    """

    namespace: str = CHECK_NAMESPACE
    pods: tuple[CheckPod, ...] = ()
    report: JobsReport | None = None
    node_of: dict[str, str] = {}


class SchedulingExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate slurm/scheduling.

    `checks` must each be proven. `partitions` maps a partition to the host groups whose nodes it must have; `group_of` is filled
    with the group of each node. `oversubscribe` maps partitions to their rule of sharing, as far as it is planned. `qos` must
    exist. `tree`: Slurm has a topology; `topology` is then filled from the fleet with leaf switch → hosts as a range text
    (`gpu[001-032]`); empty: not compared. `gres` is the GPU type that Slurm must count (`h200`). `isolated`: cgroup.conf confines
    jobs to their devices, so that a job with one GPU must see one. `accounting`: each job must have its record in the database.
    `container` must stand in the answer of check `pyxis`. `metrics` maps metrics to what their values must add up to: the nodes or
    the GPUs that Slurm shows.
    """

    checks: tuple[JobCheckName, ...] = ()
    nodes: tuple[str, ...] = ()
    partitions: dict[str, tuple[str, ...]] = {}
    group_of: dict[str, str] = {}
    oversubscribe: dict[str, str] = {}
    qos: tuple[str, ...] = ()
    tree: bool = False
    topology: dict[str, str] = {}
    gres: str = ""
    isolated: bool = False
    accounting: bool = False
    container: str = ""
    metrics: dict[str, Literal["nodes", "gpus"]] = {}


# ---- who else is on the nodes ---------------------------------------------------------------------------------------------------


class ForeignPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod on a Slurm node that has GPUs without being slurmd, as `NAMESPACE/NAME`; `gpus` 0: by the runtime class alone."""

    name: str
    node: str
    gpus: int = 0


class StayingWorkload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A DaemonSet, Deployment or other owner of pods on Slurm nodes, as `NAMESPACE/NAME`.

    `tolerates`: all these pods tolerate SUNK's lock taint.
    """

    kind: str
    name: str
    tolerates: bool = False


class SlurmdRevision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Image and revision (label `controller-revision-hash`) of a slurmd pod; `nodeset` owns it."""

    node: str
    nodeset: str = ""
    image: str = ""
    revision: str = ""


class PlacementObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate slurm/placement: slurmd pods, other pods with GPUs, and the owners of all pods on the Slurm nodes."""

    slurmd: tuple[SlurmdRevision, ...] = ()
    foreign: tuple[ForeignPod, ...] = ()
    workloads: tuple[StayingWorkload, ...] = ()


class PlacementExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate slurm/placement.

    `images` are the images that slurmd pods may have; empty: not compared. `lock`: workloads with pods on Slurm nodes must tolerate
    SUNK's lock taint, which evicts all others, but those in `may_leave` (`NAMESPACE/NAME`). `elsewhere`: there are nodes that Slurm
    does not have, on which all but DaemonSets can start anew.
    """

    nodes: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    lock: bool = False
    may_leave: tuple[str, ...] = ()
    elsewhere: bool = False


# ---- drain in both directions ----------------------------------------------------------------------------------------------------


class DrainStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of the drain round trip: what was done, and Slurm's and Kubernetes' view of the node after it, in Slurm's words."""

    name: Literal["before", "slurm_drain", "slurm_resume", "cordon", "uncordon"]
    slurm: tuple[str, ...] = ()
    kubernetes: tuple[str, ...] = ()
    reason: str = ""


class DrainObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate slurm/drain: the node that was drained, and what both sides showed; `error` is what ended it early."""

    node: str = ""
    steps: tuple[DrainStep, ...] = ()
    error: str = ""


class DrainExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate slurm/drain: `cordon`: a cordon of the Kubernetes node must reach Slurm, too."""

    cordon: bool = True


# ---- pods that Slurm schedules ---------------------------------------------------------------------------------------------------


class SlurmPodsObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate slurm/pods: pods that name SUNK's pod scheduler, and one that tolerates its lock beside them.

    `slurm_nodes` are the Kubernetes nodes with a ready pod of slurmd. `namespace` is that of all these pods.
    """

    namespace: str = CHECK_NAMESPACE
    scheduled: tuple[CheckPod, ...] = ()
    beside: tuple[CheckPod, ...] = ()
    slurm_nodes: tuple[str, ...] = ()


class SlurmPodsExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate slurm/pods: `count` pods of the scheduler of this name end well on nodes of Slurm."""

    scheduler: str = ""
    count: int = 1
