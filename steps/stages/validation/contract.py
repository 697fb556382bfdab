"""Types of stage validation: observations of the MPI operator, NCCL and DCGM checks, and the expectations of its gates."""

from msgspec import Struct

from steps.contract.node_tests.dcgm import DcgmRun
from steps.contract.node_tests.nccl import NcclLog, NcclWant
from steps.contract.node_tests.node_health import HostWant, NodeFacts, NodeSpeed, SpeedWant
from steps.contract.objects.charts import Crd, Trouble, Workload
from steps.contract.objects.checks import CheckPod
from steps.contract.verdict import ToolError
from steps.localise.contract import FaultDiagnosis
from steps.readers.fio_report import FioReport
from steps.readers.osu_table import OsuTable
from steps.readers.stream_table import StreamTable


class Install(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The Job that applies the MPI operator's manifest. `log` is read while it is not complete."""

    complete: bool = False
    failed: str = ""
    log: str = ""


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate validation/control: the MPI operator's install Job, its CRD, and its Deployment."""

    install: Install | None = None
    crds: tuple[Crd, ...] = ()
    workloads: tuple[Workload, ...] = ()
    trouble: tuple[Trouble, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate validation/control: `crds` are served, and the image has tag `tag`, so it is no floating one."""

    crds: tuple[str, ...] = ()
    deployment: str = "mpi-operator"
    tag: str = ""


class NcclPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod of the NCCL check of one node: the parsed log after it reported, and the exit codes of its runs.

    `fabric_log` and `fabric_exits` are those of the runs without P2P and shared memory, which go over the node's adapters alone.
    """

    pod: CheckPod
    log: NcclLog | None = None
    exits: tuple[int, ...] = ()
    fabric_log: NcclLog | None = None
    fabric_exits: tuple[int, ...] = ()


class IntraObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate validation/intra: the NCCL check of each node by itself."""

    pods: tuple[NcclPod, ...] = ()


class IntraExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate validation/intra.

    `gpus` is the number per node, `others` maps machines with another number to it. `want` applies to each node's log, except ranks
    and hosts; `fabric`, if any, to that of the runs over the node's adapters alone.
    """

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    others: dict[str, int] = {}
    want: NcclWant = NcclWant()
    fabric: NcclWant | None = None


class DcgmPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod of the DCGM check of one node: the parsed result and exit code of `dcgmi diag`, host facts, and the speed of its GPUs.

    Each is None if it cannot be read.
    """

    pod: CheckPod
    run: DcgmRun | None = None
    code: int | None = None
    error: str = ""
    facts: NodeFacts | None = None
    speed: NodeSpeed | None = None


class DcgmObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate validation/dcgm: the DCGM check of each node."""

    pods: tuple[DcgmPod, ...] = ()


class DcgmExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate validation/dcgm.

    `gpus` is the number per node, `others` maps machines with another number to it; `level` is that of `dcgmi diag -r`. Host facts
    are judged by `host` and speed by `speed`; None asks for neither. `may_differ` are facts of
    `steps.contract.node_tests.fleet_facts` that may differ between nodes, with the reason.
    """

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    others: dict[str, int] = {}
    level: int = 1
    host: HostWant | None = None
    speed: SpeedWant | None = None
    may_differ: dict[str, str] = {}


class MpiJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An MPIJob: its true conditions in order (`Created`, `Running`, `Succeeded`, `Failed`, …) and the message of the last one."""

    conditions: tuple[str, ...] = ()
    message: str = ""


class FabricProgram(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program that the launcher ran after all_reduce over all nodes, on `nodes` nodes: all its runs.

    `name` is `all_gather`, `alltoall`, `all_reduce` (a point of the scaling curve) or an OSU test. `absent`: the image lacks it.
    `hosts` is the least number that a run of nccl-tests had. `over` is the network layer of MPI in an OSU test (`ucx`, `tcp`).
    """

    name: str
    nodes: int = 0
    absent: bool = False
    over: str = ""
    hosts: int = 0
    exits: tuple[int, ...] = ()
    log: NcclLog | None = None
    tables: tuple[OsuTable, ...] = ()
    errors: tuple[ToolError, ...] = ()


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate validation/functional: the NCCL test over all nodes.

    It has the MPIJob, its pods, the launcher's parsed log after it ended, and the exit codes of its runs. `programs` are those that
    the launcher ran after all_reduce over all nodes.
    """

    job: MpiJob | None = None
    launcher: CheckPod | None = None
    workers: tuple[CheckPod, ...] = ()
    log: NcclLog | None = None
    exits: tuple[int, ...] = ()
    errors: tuple[ToolError, ...] = ()
    programs: tuple[FabricProgram, ...] = ()


class CollectiveWant(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation on a collective over all nodes: at least `floor` GB/s, and `share` of what the run's own all_reduce lets expect.

    Without a `floor` (0) only the share counts.
    """

    floor: float = 0.0
    share: float = 0.0


class ScalingWant(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation on all_reduce over 2, 4, 8 … nodes: the largest loss of bandwidth with a doubling, as a share.

    `first_loss` is that from 2 to 4 nodes: between two nodes NCCL's tree algorithms exceed what a fabric gives to more.
    """

    loss: float = 0.0
    first_loss: float = 0.0


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate validation/functional.

    All of `nodes` must take part with `gpus` ranks each; `want` applies to the log, except ranks and hosts. `collectives` must run
    over all nodes too, each with the same network. `scaling`, if any, must be measured at 2, 4, 8 … nodes. Programs of `osu` count
    where the image has them.
    """

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    want: NcclWant = NcclWant()
    collectives: dict[str, CollectiveWant] = {}
    scaling: ScalingWant | None = None
    osu: tuple[str, ...] = ()


class BenchmarkPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod of the benchmarks of one node: end codes of fio and STREAM (127: the image lacks it), and what they printed."""

    pod: CheckPod
    fio: FioReport | None = None
    fio_code: int | None = None
    stream: StreamTable | None = None
    stream_code: int | None = None
    error: str = ""


class BenchmarksObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate validation/benchmarks: fio and STREAM on each node."""

    pods: tuple[BenchmarkPod, ...] = ()


class BenchmarksExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate validation/benchmarks.

    With `storage`, fio must run on each of `nodes`; `floors` maps its jobs to MB/s (sequential) or operations a second (random).
    STREAM must run with a floor (`stream`, MB/s of Triad) or without storage; else it counts where the image has it.
    """

    nodes: tuple[str, ...] = ()
    storage: bool = False
    floors: dict[str, float] = {}
    stream: float = 0.0


class TrainingPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod of the training job: torchrun's end code (124: time-out), what rank 0 of the pod measured, and NCCL's channels.

    `busbw` is in GB/s. Channels are those between nodes: all over RDMA, those of them with GPUDirect, and those over sockets.
    """

    pod: CheckPod
    code: int | None = None
    ranks: int = 0
    busbw: float = 0.0
    first_loss: float | None = None
    last_loss: float | None = None
    torch: str = ""
    gdr_channels: int = 0
    rdma_channels: int = 0
    socket_channels: int = 0


class TrainingObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate validation/training: the pods of a torchrun job on two nodes."""

    pods: tuple[TrainingPod, ...] = ()


class TrainingExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate validation/training.

    Two of `nodes` run `gpus` ranks each; with `rdma` all channels between them use GPUDirect RDMA; `floor` is in GB/s (0: none).
    """

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    rdma: bool = False
    floor: float = 0.0


class PlayedRound(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One round of a localisation: what it was for, and how many tests passed, failed and gave no result."""

    number: int
    purpose: str = ""
    passed: int = 0
    failed: int = 0
    unknown: int = 0


class LocaliseObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate validation/localise: the diagnosis after the last round, and what the rounds measured.

    `rails` maps nodes to the least ib_write_bw of each rail over all tests, in Gbit/s, None if a rail was not measured.
    `figures` has what the tests measured that show a pair or path to be bad, by test. `problem` says why tests gave no result;
    it is empty if all did. `rounds` has the last rounds, for the report.
    """

    diagnosis: FaultDiagnosis | None = None
    rounds: tuple[PlayedRound, ...] = ()
    rails: dict[str, tuple[float | None, ...]] = {}
    figures: dict[str, float] = {}
    problem: str = ""


class LocaliseExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate validation/localise.

    No part may be named and all of `nodes` must be cleared. Each of `rails` rails reaches `floor` Gbit/s in each direction;
    MPIJobs over groups of nodes with `gpus` ranks each meet `want`.
    """

    nodes: tuple[str, ...] = ()
    floor: float = 0.0
    rails: int = 0
    gpus: int = 0
    want: NcclWant = NcclWant()
