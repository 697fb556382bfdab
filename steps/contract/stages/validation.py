"""Stage validation: what the platform must show to be accepted: NCCL inside and between nodes, DCGM diagnostics (gpu_stack §8)."""

from msgspec import Struct

from steps.contract.charts import Trouble, Workload
from steps.contract.checks import CheckPod
from steps.contract.crds import Crd
from steps.contract.dcgm import DcgmRun
from steps.contract.nccl import NcclLog, NcclWant
from steps.contract.tool import ToolError


class Install(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The Job that applies the MPI operator's manifest. `log` is read while it is not complete."""

    complete: bool = False
    failed: str = ""
    log: str = ""


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The MPI operator: the Job that applied it, its CRD, its Deployment."""

    install: Install | None = None
    crds: tuple[Crd, ...] = ()
    workloads: tuple[Workload, ...] = ()
    trouble: tuple[Trouble, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`crds` must be served; the Deployment's image must have tag `tag`, so that no floating image is accepted."""

    crds: tuple[str, ...] = ()
    deployment: str = "mpi-operator"
    tag: str = ""


class NcclPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node's NCCL check: its log, once it reported; `exits` are those of its runs."""

    pod: CheckPod
    log: NcclLog | None = None
    exits: tuple[int, ...] = ()


class IntraObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The per-node NCCL checks."""

    pods: tuple[NcclPod, ...] = ()


class IntraExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`gpus` per node, `others` where a machine has another number; `want` holds for each node's log, ranks and hosts apart."""

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    others: dict[str, int] = {}
    want: NcclWant = NcclWant()


class DcgmPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node's DCGM check: what `dcgmi diag` said, None where nothing of it can be read."""

    pod: CheckPod
    run: DcgmRun | None = None
    error: str = ""


class DcgmObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The per-node DCGM checks."""

    pods: tuple[DcgmPod, ...] = ()


class DcgmExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`gpus` per node, `others` where a machine has another number; `level` as in `dcgmi diag -r`."""

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    others: dict[str, int] = {}
    level: int = 1


class MpiJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An MPIJob: its true conditions in order (`Created`, `Running`, `Succeeded`, `Failed`, …) and the message of the last one."""

    conditions: tuple[str, ...] = ()
    message: str = ""


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The multi-node NCCL test: its MPIJob, its pods, and the launcher's log once it ended; `exits` are those of its runs."""

    job: MpiJob | None = None
    launcher: CheckPod | None = None
    workers: tuple[CheckPod, ...] = ()
    log: NcclLog | None = None
    exits: tuple[int, ...] = ()
    errors: tuple[ToolError, ...] = ()


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All of `nodes` must take part with `gpus` ranks each; `want` holds for the log, ranks and hosts apart."""

    nodes: tuple[str, ...] = ()
    gpus: int = 0
    want: NcclWant = NcclWant()
