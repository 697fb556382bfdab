"""Sections about services on the platform: base services, and the validation that accepts the platform."""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from workflows.spec.fields import (
    AbsolutePath,
    Argument,
    DnsLabel,
    Duration,
    Listed,
    Section,
    Text,
    problem,
)

Size = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,3}[KMG]?$")]
"""A message size in the form of nccl-tests: `8G`."""


class Storage(Section):
    """Section `base_services.storage` of a spec: the default storage class."""

    provisioner: Literal["local_path", "existing", "none"] = Field(
        default="local_path",
        description="local_path installs a provisioner; existing uses storage_class as it is; none: no storage class.",
        examples=["local_path"],
    )
    storage_class: DnsLabel = Field(default="local-path", description="Name of the storage class.", examples=["local-path"])
    path: AbsolutePath = Field(
        default="/var/lib/bringup/volumes", description="Folder on each node (local_path).", examples=["/srv/volumes"]
    )


class BaseServices(Section):
    """Section `base_services` of a spec: storage class, cert-manager and CRDs of monitors, which later stages need."""

    storage: Storage = Field(default=Storage(), description="Default storage class.")
    cert_manager: bool = Field(default=True, description="Install cert-manager.", examples=[True])
    monitoring_crds: bool = Field(
        default=True, description="Install the Prometheus Operator's CRDs, so that monitors can be created.", examples=[True]
    )


class Nccl(Section):
    """Section `validation.nccl` of a spec: message sizes and bandwidth floors of NCCL's all-reduce test.

    Floors apply to the largest message size, since the average of nccl-tests mixes all sizes.
    """

    sizes: Annotated[tuple[Size, ...], Listed, Field(min_length=1)] = Field(
        default=("1G", "8G"), description="Message sizes, smallest to largest.", examples=[["1G", "8G"]]
    )
    intra_node_floor_gb_s: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        default=None,
        description="Lowest accepted bus bandwidth inside a node in GB/s; default: the published floor of the product.",
        examples=[431],
    )
    inter_node_floor_gb_s: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        default=None,
        description="Lowest accepted bus bandwidth between nodes in GB/s, 0.9 × the baseline of the site. Required with a fabric "
        "and several GPU machines.",
        examples=[350],
    )
    all_gather_floor_gb_s: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        default=None,
        description="Lowest accepted bus bandwidth of all_gather over all nodes in GB/s; default: half of the run's all_reduce.",
        examples=[300],
    )
    alltoall_floor_gb_s: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        default=None,
        description="Lowest accepted bus bandwidth of alltoall over all nodes in GB/s; default: 0.45 of what the run's own "
        "all_reduce lets expect of a GPU's part of the ports.",
        examples=[40],
    )

    @model_validator(mode="after")
    def _sizes_grow(self) -> "Nccl":
        sizes = [int(size.rstrip("KMG")) << _SHIFTS[size.lstrip("0123456789")] for size in self.sizes]
        if any(larger <= size for size, larger in pairwise(sizes)):
            fitting = [self.sizes[sizes.index(size)] for size in sorted(set(sizes))]
            raise problem("nccl-tests goes from the first size up to the last", f"write sizes: [{', '.join(fitting)}]")
        return self


_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}
"""Binary shifts of the units of message sizes."""
FactName = Literal["driver", "driver_flavour", "cuda", "kernel", "vbios", "power_limit", "nic_firmware"]
"""Names of the facts by which nodes are compared, as in `steps.contract.node_tests.fleet_facts`."""


class Difference(Section):
    """An entry of `validation.may_differ`: a fact that may differ between nodes, and the reason, which every report repeats."""

    fact: FactName = Field(
        description="driver: version of the GPU driver; driver_flavour: its kernel module, open or proprietary; cuda: its CUDA "
        "version; kernel: running kernel; vbios: firmware of the GPUs; power_limit: power that they may draw; nic_firmware: "
        "firmware of the RDMA devices.",
        examples=["vbios"],
    )
    reason: Text = Field(description="Why it may differ.", examples=["two delivery batches, update planned for the next window"])


Figure = Annotated[float, Field(gt=0, le=1e9)]
"""A floor of a benchmark."""


class StorageBenchmark(Section):
    """Section `validation.benchmarks.storage` of a spec: the storage that fio measures from every node, and the site's floors.

    A figure without a floor is reported and proves nothing.
    """

    storage_class: DnsLabel | None = Field(
        default=None, description="Storage class of the volume that each node's test gets.", examples=["shared"]
    )
    path: AbsolutePath | None = Field(
        default=None,
        description="Folder on the nodes instead, such as the mount of a shared file system.",
        examples=["/mnt/shared"],
    )
    size: Size = Field(default="16G", description="Size of the test file of each node.", examples=["16G"])
    read_floor_mb_s: Figure | None = Field(
        default=None, description="Floor of sequential reads of a node in MB/s.", examples=[2000]
    )
    write_floor_mb_s: Figure | None = Field(
        default=None, description="Floor of sequential writes of a node in MB/s.", examples=[1000]
    )
    random_read_floor_iops: Figure | None = Field(
        default=None, description="Floor of random reads of 4 KiB of a node in operations per second.", examples=[50000]
    )
    random_write_floor_iops: Figure | None = Field(
        default=None, description="Floor of random writes of 4 KiB of a node in operations per second.", examples=[20000]
    )

    @model_validator(mode="after")
    def _one_place(self) -> "StorageBenchmark":
        if (self.storage_class is None) == (self.path is None):
            raise problem(
                "fio needs one place to measure", "write either storage_class or path under validation.benchmarks.storage"
            )
        return self

    @property
    def floors(self) -> dict[str, float]:
        """Return fio job → floor, in MB/s or operations per second, for those that have one."""
        every = {
            "seq_read": self.read_floor_mb_s,
            "seq_write": self.write_floor_mb_s,
            "rand_read": self.random_read_floor_iops,
            "rand_write": self.random_write_floor_iops,
        }
        return {name: floor for name, floor in every.items() if floor is not None}


class Benchmarks(Section):
    """Section `validation.benchmarks` of a spec: fio and STREAM on every GPU node, at level full."""

    image: Argument = Field(
        description="Image with fio, and with stream_c if memory is to be measured.", examples=["registry/bench:1"]
    )
    storage: StorageBenchmark | None = Field(default=None, description="Storage to measure with fio.")
    stream_floor_mb_s: Figure | None = Field(
        default=None, description="Floor of STREAM's Triad on a node in MB/s.", examples=[665500]
    )


class Training(Section):
    """Section `validation.training` of a spec: a job of torchrun on two nodes, at level full."""

    image: Argument = Field(description="Image with PyTorch and NCCL.", examples=["nvcr.io/nvidia/pytorch:26.01-py3"])
    all_reduce_floor_gb_s: Figure | None = Field(
        default=None, description="Floor of torch's all_reduce between the two nodes, as bus bandwidth in GB/s.", examples=[300]
    )


class GpuFloors(Section):
    """Section `validation.gpu_floors` of a spec: floors of each GPU by itself, at levels standard and full.

    Without a floor, here or published for the product, a GPU is compared with the others of the run alone.
    """

    gemm_tflops: Figure | None = Field(
        default=None, description="Lowest accepted TFLOPS of dcgmproftester's half-precision GEMM.", examples=[600]
    )
    host_gb_s: Figure | None = Field(
        default=None,
        description="Lowest accepted bandwidth between host and GPU in GB/s; default: the published floor of the product.",
        examples=[48],
    )
    peer_gb_s: Figure | None = Field(
        default=None,
        description="Lowest accepted bandwidth between two GPUs in GB/s; default: the published floor of the product.",
        examples=[335],
    )
    adapters_gb_s: Figure | None = Field(
        default=None,
        description="Lowest accepted bus bandwidth of NCCL inside a node over its adapters alone in GB/s; default: the published "
        "floor of the product.",
        examples=[300],
    )


class Validation(Section):
    """Section `validation` of a spec: the last stage, whose tests the platform must pass to be accepted."""

    image: Argument = Field(
        default="ghcr.io/coreweave/nccl-tests:12.8.1-devel-ubuntu22.04-nccl2.26.2-1-0708d2e",
        description="Image with nccl-tests, perftest and MPI.",
        examples=["registry.example.org/nccl-tests:2.19.6"],
    )
    level: Literal["quick", "standard", "full"] = Field(
        default="standard",
        description="Tests that the cluster must pass, as `bringup accept --help` lists them; quick leaves DCGM at level 1, full "
        "takes it to level 3 or more.",
        examples=["standard"],
    )
    nccl: Nccl = Field(default=Nccl(), description="NCCL bandwidth.")
    ib_write_bw_floor_gbit_s: Annotated[float, Field(gt=0, le=1600)] | None = Field(
        default=None,
        description="Lowest accepted ib_write_bw of a port in Gbit/s; default: the published floor of the product.",
        examples=[360],
    )
    dcgm_level: Annotated[int, Field(ge=1, le=4)] = Field(
        default=2, description="Level of dcgmi diag; level 3 takes about 15 minutes on a node.", examples=[2]
    )
    runs: Annotated[int, Field(ge=1, le=20)] = Field(default=3, description="Repetitions of each bandwidth test.", examples=[3])
    timeout: Duration = Field(
        default="45m",
        validate_default=True,
        description="Longest time of each test: all its programs and repetitions share it.",
        examples=["45m"],
    )
    benchmarks: Benchmarks | None = Field(default=None, description="Storage and memory benchmarks at level full.")
    training: Training | None = Field(default=None, description="A training job on two nodes at level full.")
    gpu_floors: GpuFloors = Field(default=GpuFloors(), description="Floors of each GPU by itself.")
    may_differ: Annotated[tuple[Difference, ...], Listed] = Field(
        default=(),
        description="Facts that may differ between nodes; default: none. GPU machines are compared with each other, and machines "
        "without GPUs too: a node with another driver, kernel or firmware than most does not pass.",
    )

    @model_validator(mode="after")
    def _each_fact_once(self) -> "Validation":
        names = [entry.fact for entry in self.may_differ]
        if len(set(names)) != len(names):
            raise problem("validation.may_differ lists a fact twice", "list each fact once, with all reasons in one sentence")
        return self

    @property
    def allowed_differences(self) -> dict[str, str]:
        """Return fact → reason of `may_differ`."""
        return {entry.fact: entry.reason for entry in self.may_differ}
