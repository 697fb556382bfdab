"""Types of stage validation: observations of the MPI operator, NCCL and DCGM checks, and the expectations of its gates."""

from msgspec import Struct

from steps.contract.charts import Crd, Trouble, Workload
from steps.contract.checks import CheckPod
from steps.contract.dcgm import DcgmRun
from steps.contract.nccl import NcclLog, NcclWant
from steps.contract.verdict import ToolError
from steps.localise.contract import FaultDiagnosis


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
    """A pod of the NCCL check of one node: the parsed log after it reported, and the exit codes of its runs."""

    pod: CheckPod
    log: NcclLog | None = None
    exits: tuple[int, ...] = ()


class IntraObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate validation/intra: the NCCL check of each node by itself."""

    pods: tuple[NcclPod, ...] = ()


class IntraExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate validation/intra.

    `gpus` is the number per node, `others` maps machines with another number to it. `want` applies to each node's log, except ranks
    and hosts.
    """

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    others: dict[str, int] = {}
    want: NcclWant = NcclWant()


class DcgmPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod of the DCGM check of one node, with the parsed result of `dcgmi diag`; None if it cannot be read."""

    pod: CheckPod
    run: DcgmRun | None = None
    error: str = ""


class DcgmObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate validation/dcgm: the DCGM check of each node."""

    pods: tuple[DcgmPod, ...] = ()


class DcgmExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate validation/dcgm.

    `gpus` is the number per node, `others` maps machines with another number to it; `level` is that of `dcgmi diag -r`.
    """

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    others: dict[str, int] = {}
    level: int = 1


class MpiJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An MPIJob: its true conditions in order (`Created`, `Running`, `Succeeded`, `Failed`, …) and the message of the last one."""

    conditions: tuple[str, ...] = ()
    message: str = ""


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate validation/functional: the NCCL test over all nodes.

    It has the MPIJob, its pods, the launcher's parsed log after it ended, and the exit codes of its runs.
    """

    job: MpiJob | None = None
    launcher: CheckPod | None = None
    workers: tuple[CheckPod, ...] = ()
    log: NcclLog | None = None
    exits: tuple[int, ...] = ()
    errors: tuple[ToolError, ...] = ()


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate validation/functional.

    All of `nodes` must take part with `gpus` ranks each; `want` applies to the log, except ranks and hosts.
    """

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    want: NcclWant = NcclWant()


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
