"""Types of stage slurm_acceptance: what Slurm's tools and jobs showed from a login node, and what is expected of it."""

from typing import Final, Literal

from msgspec import Struct

from steps.contract.verdict import ToolError

PRODUCT: Final = "slurmacceptance"
"""Folder of `steps` with the tasks of this stage."""
CONTROL, JOBS, BANDWIDTH = "control", "jobs", "bandwidth"
"""Names of the tasks and of their gates, in running order."""


class ControllerAnswer(Struct, frozen=True, kw_only=True):
    """Line of `scontrol ping`: role (`primary`, `backup`), host, and if it is up."""

    role: str
    host: str
    up: bool


class ListedNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Node as `scontrol show node` prints it. `states` in lower case, base state first; `gpus` counts those of its Gres.

    `gpu_type` is the type in its Gres (`h200`), several types joined by commas. `memory` is RealMemory in MB.
    """

    name: str
    states: tuple[str, ...] = ()
    reason: str = ""
    gpu_type: str = ""
    gpus: int = 0
    memory: int = 0
    version: str = ""


class SlurmSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings that `scontrol show config` prints; `topology` and `accounting` are names of plugins.

    `matches`: slurm.conf on the login node equals that of slurmctld; None if it does not say.
    """

    cluster: str = ""
    version: str = ""
    matches: bool | None = None
    topology: str = ""
    accounting: str = ""


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate slurm_acceptance/control.

    `available` maps partitions to their state (`UP`), that of the default one also by an empty name. `topology` maps leaf switches
    or blocks to nodes as slurmctld uses them, `topology_file` the same of topology.yaml or topology.conf on the login node, None if
    neither can be read. `clusters` are known to slurmdbd.
    `causes` maps nodes to a cause that slurmctld's log gives, where the login node may read it. `errors` are those of the tools.
    """

    controllers: tuple[ControllerAnswer, ...] = ()
    settings: SlurmSettings = SlurmSettings()
    available: dict[str, str] = {}
    nodes: tuple[ListedNode, ...] = ()
    topology: dict[str, tuple[str, ...]] = {}
    topology_file: dict[str, tuple[str, ...]] | None = None
    clusters: tuple[str, ...] = ()
    causes: dict[str, ToolError] = {}
    errors: tuple[ToolError, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate slurm_acceptance/control.

    `nodes` must be usable members of `partition` (empty: any). Each has `gpus` GPUs of type `gpu_type`; -1: all nodes have as many,
    an empty type: all have the same.
    """

    nodes: tuple[str, ...] = ()
    partition: str = ""
    gpu_type: str = ""
    gpus: int = -1


class NodeAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer of a job's task on one node.

    `host` is the kernel's host name, `boot` its boot id. `skew` is the node's clock minus the login node's in seconds. `matches`:
    slurm.conf on the node equals slurmctld's. `gpus` is the number that Slurm gave the job, `devices` what nvidia-smi lists there;
    None if the node did not say.
    """

    node: str
    host: str = ""
    boot: str = ""
    skew: float | None = None
    matches: bool | None = None
    gpus: int | None = None
    devices: int | None = None


class BatchRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Batch job on two nodes: its record in accounting, and what its steps printed.

    `writer` wrote a token into the shared folder, `reader` read it; `read` and `listed` say if it read the right token, and if the
    login node sees the file. `accounted` is `STATE EXITCODE`, `recorded` the number of nodes in accounting.
    """

    id: str = ""
    accounted: str = ""
    recorded: int = 0
    writer: str = ""
    reader: str = ""
    read: bool = False
    listed: bool = False


class ScriptTrace(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Proof on a node that prolog and epilog of an ended job ran there."""

    node: str
    prolog: bool = False
    epilog: bool = False


class DrainTrip(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Drain of a node and its resume: the node's states before, after the drain, and after the resume."""

    node: str
    before: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    resumed: tuple[str, ...] = ()


class JobsObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate slurm_acceptance/jobs; `traces` are those of one job on all nodes.

    `prolog` and `epilog` are the configured scripts, empty if there is none, None if the configuration is unknown. `failed` are
    nodes that srun reports, with the error. `remaining` are this run's jobs that are still in the queue at the end.
    """

    answers: tuple[NodeAnswer, ...] = ()
    failed: dict[str, str] = {}
    batch: BatchRecord | None = None
    prolog: str | None = None
    epilog: str | None = None
    traces: tuple[ScriptTrace, ...] = ()
    trip: DrainTrip | None = None
    remaining: tuple[str, ...] | None = None
    errors: tuple[ToolError, ...] = ()


class JobsExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate slurm_acceptance/jobs.

    `gpus` is the number that a job gets on each node, -1 if it was not stated. `scripts`: `marks` asks for the proof that prolog
    and epilog ran, `waived` leaves it out by the user's word. `drain`: the round trip must have worked. `most_skew` in seconds.
    """

    nodes: tuple[str, ...] = ()
    gpus: int = -1
    scripts: Literal["marks", "waived", "unstated"] = "unstated"
    drain: bool = False
    most_skew: float = 30.0


class PairFigure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bandwidth of one test in GB/s: of the slower direction, or of the slowest pair of a group; None if it could not be measured.

    `problem` says why it could not.
    """

    test: str
    nodes: tuple[str, ...]
    figure: float | None = None
    problem: str = ""


class BadPart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Part that the localisation names; the fields are those of `steps.localise.contract.Suspect`."""

    kind: str
    nodes: tuple[str, ...] = ()
    rail: int | None = None
    leaves: tuple[str, ...] = ()
    at_least_nodes: int | None = None
    error: float = 0.0
    evidence: tuple[str, ...] = ()


class BandwidthObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate slurm_acceptance/bandwidth.

    `program` is the MPI program that measured, `memory` where its buffers lay. `false_alarm` and `missed` bound the errors of the
    localisation; `reason` says why it is not `finished`. `tests` is the number of tests, each with a figure or a problem.
    """

    program: str = ""
    memory: str = ""
    figures: tuple[PairFigure, ...] = ()
    parts: tuple[BadPart, ...] = ()
    cleared: tuple[str, ...] = ()
    rounds: int = 0
    tests: int = 0
    finished: bool = False
    reason: str = ""
    false_alarm: float = 0.0
    missed: float = 1.0
    errors: tuple[ToolError, ...] = ()


class BandwidthExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate slurm_acceptance/bandwidth: every node reaches `floor` GB/s with its partners.

    `most_missed` is the largest probability that a bad part was overlooked.
    """

    nodes: tuple[str, ...] = ()
    floor: float = 0.0
    most_missed: float = 0.01
