"""Stage slurm: Slurm on Kubernetes by Slinky or SUNK (gpu_stack §7): what operator and nodes say, and what srun does."""

from msgspec import Struct

from steps.contract.charts import Release, ReleaseState, RootApplication, RootState, Trouble, Workload
from steps.contract.checks import CheckPod
from steps.contract.tool import ToolError


class NodeSet(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Slinky NodeSet. `gpus` is how many its configuration promises per node (`Gres=gpu:…`), 0 for none.

    `idle`, `allocated` (mixed ones included), `down` and `drain` count Slurm nodes, the others pods.
    """

    name: str
    generation: int = 0
    observed: int = 0
    desired: int = 0
    replicas: int = 0
    updated: int = 0
    ready: int = 0
    idle: int = 0
    allocated: int = 0
    down: int = 0
    drain: int = 0
    gpus: int = 0


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Controller, RestApi or LoginSet. `bad` are its conditions that are not True, as `Type: message`.

    The operator of 1.2 sets no condition of its own on them, so that none is no sign of health: their workloads are.
    """

    kind: str
    name: str
    bad: tuple[str, ...] = ()


class SlurmPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod that runs slurmd. `name` is the Slurm node's; `states` are Slurm's words for it in lower case.

    `reason` says why Slurm does not use the node, `trouble` why the pod is not ready; `nodeset` owns it.
    """

    pod: str
    name: str
    node: str = ""
    nodeset: str = ""
    phase: str = ""
    ready: bool = False
    states: tuple[str, ...] = ()
    reason: str = ""
    trouble: Trouble | None = None


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Charts, the cluster's parts with the workloads that the operator made of them, NodeSets, and the pods that are not usable."""

    releases: tuple[ReleaseState, ...] = ()
    root_app: RootState | None = None
    served: bool = False
    parts: tuple[Part, ...] = ()
    workloads: tuple[Workload, ...] = ()
    nodesets: tuple[NodeSet, ...] = ()
    troubled: tuple[SlurmPod, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`parts` are kinds that must exist (Controller, RestApi, LoginSet) with `workloads` ready workloads of theirs; NodeSets must
    want `nodes_desired` pods together, or up to `spare` fewer (a cordoned node is not wanted), and as many must be ready and
    usable by Slurm. 0: no NodeSet is looked at."""

    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
    parts: tuple[str, ...] = ()
    workloads: int = 0
    nodes_desired: int = 0
    spare: int = 0


class NodesObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every pod that runs slurmd, its NodeSet's promise, and what Kubernetes has (node → GPUs allocatable)."""

    pods: tuple[SlurmPod, ...] = ()
    nodesets: tuple[NodeSet, ...] = ()
    allocatable: dict[str, int] = {}


class NodesExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`gpus` per node, 0 where it has none or their number is not Slurm's matter; `states`: Slurm's own words for a node must be
    there (Slinky); `promised`: the NodeSet's Gres must agree with Kubernetes."""

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    states: bool = True
    promised: bool = True


class SlurmNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node as Slurm's own tools tell it: `states` in lower case, base state first (`idle`, `drain`, …); `gpus` of its Gres."""

    name: str
    states: tuple[str, ...] = ()
    reason: str = ""
    gres: str = ""
    gpus: int = 0


class Srun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the check pod's commands said: `sinfo`, the hosts that one srun over all nodes reached, GPUs seen on each, errors."""

    nodes: tuple[SlurmNode, ...] = ()
    hosts: tuple[str, ...] = ()
    gpus: dict[str, int] = {}
    exits: dict[str, int] = {}
    errors: tuple[ToolError, ...] = ()


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The check's pods, what srun said (None while there is no report), and which Kubernetes node each Slurm node is."""

    pods: tuple[CheckPod, ...] = ()
    srun: Srun | None = None
    node_of: dict[str, str] = {}


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`gpus` must be seen by a job on every node, as many as Slurm's Gres says."""

    nodes: tuple[str, ...] = ()
    gpus: int = 0
