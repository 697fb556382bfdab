"""Section slurm of a spec: Slurm on Kubernetes by Slinky or SUNK, with its partitions, home, scripts, topology and accounting."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from workflows.spec.fields import (
    AbsolutePath,
    Argument,
    ChartVersion,
    DnsLabel,
    Duration,
    Listed,
    OneOrMore,
    SecretRef,
    Section,
    SnakeId,
    Url,
    problem,
)
from workflows.spec.sections.hosts import Address

MaxTime = Annotated[str, StringConstraints(pattern=r"^(UNLIMITED|([0-9]+-)?[0-9]{1,3}:[0-9]{2}:[0-9]{2})$")]
"""A time limit in Slurm's form: `7-00:00:00`."""
SlurmName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,30}$")]
"""A name of a partition or a QoS."""
OverSubscribe = Annotated[
    str,
    BeforeValidator(lambda value: {True: "YES", False: "NO"}[value] if isinstance(value, bool) else value),
    StringConstraints(pattern=r"^(NO|EXCLUSIVE|(YES|FORCE)(:[1-9][0-9]{0,2})?)$"),
]
"""Rule by which jobs share processors, in Slurm's form: `FORCE:2`. YAML reads a bare NO as false."""
Capacity = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,6}(Mi|Gi|Ti|Pi)$")]
"""A size of a volume in Kubernetes' form: `10Ti`."""
ScriptName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,60}\.sh$")]
"""A file name of a script. Slurm runs scripts in the order of their names."""
Script = Annotated[str, StringConstraints(pattern=r"^#![^\x00]+$", max_length=20_000)]
"""The text of a script, which begins with `#!`."""


ConfigName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,60}\.(conf|yaml)$")]
"""A file name of Slurm's configuration."""
ConfigText = Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=100_000)]
"""The text of a file of Slurm's configuration."""


class Partition(Section):
    """A Slurm partition: the host groups whose nodes it has, its time limit, and its QoS."""

    name: SlurmName = Field(description="Name of the partition.", examples=["train"])
    groups: Annotated[tuple[SnakeId, ...], Field(min_length=1), OneOrMore] = Field(
        description="Host groups of the partition.", examples=[["gpu"]]
    )
    default: bool = Field(default=False, description="Whether jobs without a partition run here.", examples=[True])
    max_time: MaxTime = Field(
        default="UNLIMITED", description="Longest time of a job in Slurm's form (DAYS-HH:MM:SS).", examples=["7-00:00:00"]
    )
    qos: SlurmName | None = Field(
        default=None, description="QoS whose limits hold for the partition, one of slurm.qos.", examples=["train"]
    )
    oversubscribe: OverSubscribe | None = Field(
        default=None,
        description="Sharing of processors between jobs in Slurm's form: NO, EXCLUSIVE (a job has its nodes alone), YES:n (if jobs "
        "ask for it) or FORCE:n; default: that of the chart.",
        examples=["FORCE:2"],
    )

    @property
    def shares_by_force(self) -> bool:
        """Return True if jobs share processors whether they ask for it or not."""
        return (self.oversubscribe or "").startswith("FORCE")


def sharing_check(partitions: Sequence[Partition]) -> Literal["exclusive", "shared"] | None:
    """Return the job check by which sharing of nodes can be tested in any of these partitions; None if neither can.

    Where every partition shares by force, exclusive jobs would share too. Where some do, the partition of the check may be either.
    FORCE:1 shares no processor between two jobs.
    """
    if not any(partition.shares_by_force for partition in partitions):
        return "exclusive"
    if all(partition.shares_by_force and partition.oversubscribe != "FORCE:1" for partition in partitions):
        return "shared"
    return None


class SlurmQos(Section):
    """A QoS of Slurm: the priority of its jobs, and what one user may have at a time."""

    name: SlurmName = Field(description="Name of the QoS.", examples=["train"])
    priority: Annotated[int, Field(ge=0, le=1_000_000)] = Field(default=0, description="Priority of its jobs.", examples=[100])
    gpus_per_user: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, description="Most GPUs of one user at a time; default: no limit.", examples=[64]
    )
    jobs_per_user: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, description="Most running jobs of one user; default: no limit.", examples=[20]
    )
    max_time: MaxTime | None = Field(default=None, description="Longest time of a job; default: no limit.", examples=["1-00:00:00"])


class SlurmLogin(Section):
    """Section `slurm.login` of a spec: the pods in which users log in to Slurm."""

    replicas: Annotated[int, Field(ge=0, le=16)] = Field(default=1, description="Number of login pods; 0: none.", examples=[1])
    authorized_keys: Annotated[tuple[Argument, ...], Listed] = Field(
        default=(), description="SSH public keys that may log in as root.", examples=[["ssh-ed25519 AAAA… admin@example.org"]]
    )
    service: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        default="ClusterIP", description="Type of the Service of the login pods.", examples=["ClusterIP"]
    )
    test_user: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")] | None = Field(
        default=None,
        description="With SUNK: a plain user of the site's directory, who logs in by SSH and submits a job as a test, with a key "
        "that ~/.ssh/authorized_keys has meanwhile; default: none.",
        examples=["alice"],
    )


class SlurmHome(Section):
    """Section `slurm.home` of a spec: the shared /home of login pods and nodes, an NFS export or a volume of a storage class."""

    server: Address | None = Field(default=None, description="NFS server of the export.", examples=["10.10.0.5"])
    path: AbsolutePath | None = Field(default=None, description="Path of the export.", examples=["/export/home"])
    storage_class: DnsLabel | None = Field(
        default=None, description="Storage class that gives volumes to many nodes at a time (ReadWriteMany).", examples=["cephfs"]
    )
    size: Capacity | None = Field(default=None, description="Size of the volume.", examples=["10Ti"])

    @model_validator(mode="after")
    def _one_kind(self) -> "SlurmHome":
        export, volume = (self.server, self.path), (self.storage_class, self.size)
        if all(export) + all(volume) != 1 or (any(export) and any(volume)):
            raise problem("home is either an NFS export or a volume", "write server and path, or storage_class and size")
        return self


class SlurmdSize(Section):
    """Section `slurm.node` of a spec: processors and memory that a pod of slurmd gets, and so what Slurm has on a node."""

    cpus: Annotated[int, Field(ge=1, le=4096)] = Field(description="Processors, as Kubernetes counts them.", examples=[180])
    memory_gib: Annotated[int, Field(ge=1, le=100_000)] = Field(description="Memory in GiB.", examples=[1900])
    reserved_memory_gib: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=0, description="Part of the memory in GiB that slurmd keeps from jobs (SUNK).", examples=[16]
    )

    @model_validator(mode="after")
    def _some_for_jobs(self) -> "SlurmdSize":
        if self.reserved_memory_gib >= self.memory_gib:
            raise problem("all memory is reserved, so that no job gets any", "lower reserved_memory_gib")
        return self


class SlurmToken(Section):
    """A token for Slurm's REST API, which Slinky's operator writes into a Secret and renews."""

    user: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")] = Field(
        description="Slurm user that the token stands for.", examples=["slurm"]
    )
    lifetime: Duration = Field(default="15m", validate_default=True, description="Life of a token until it is renewed.")


class Accounting(Section):
    """Section `slurm.accounting` of a spec: the existing MariaDB in which Slurm keeps its accounting."""

    host: Address = Field(description="Database host.", examples=["mariadb.slurm.svc"])
    port: Annotated[int, Field(ge=1, le=65535)] = Field(default=3306, description="Database port.", examples=[3306])
    database: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,64}$")] = Field(
        default="slurm_acct_db", description="Database name.", examples=["slurm_acct_db"]
    )
    user: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,32}$")] = Field(
        default="slurm", description="Database user.", examples=["slurm"]
    )
    password: SecretRef = Field(description="Password of the database user, by reference.")


class Slurm(Section):
    """Section `slurm` of a spec: Slurm on Kubernetes, by the operator Slinky or SUNK."""

    kind: Literal["none", "slinky", "sunk"] = Field(
        default="none", description="Operator of Slurm: Slinky (open source), SUNK (licensed), or none.", examples=["slinky"]
    )
    partitions: Annotated[tuple[Partition, ...], Listed] = Field(
        default=(), description="Partitions; default: one partition named all, with every GPU group."
    )
    qos: Annotated[tuple[SlurmQos, ...], Listed] = Field(
        default=(), description="QoS that accounting has; with any, users need an account, and limits are enforced."
    )
    topology: Literal["none", "tree"] = Field(
        default="none",
        description="tree: Slurm places jobs by the leaf switches of the hosts (hosts.GROUP.topology.leaf), with one switch above.",
        examples=["tree"],
    )
    login: SlurmLogin = Field(default=SlurmLogin(), description="Login pods.")
    home: SlurmHome | None = Field(
        default=None, description="Shared /home; default: each pod has its own, which jobs do not share."
    )
    node: SlurmdSize | None = Field(
        default=None,
        description="Processors and memory of a pod of slurmd; default: requests and limits for GPUs and fabric alone.",
    )
    prolog: Mapping[ScriptName, Script] = Field(
        default={}, description="Scripts that slurmd runs before a job, by file name.", examples=[{"10-check.sh": "#!/bin/sh\n…"}]
    )
    epilog: Mapping[ScriptName, Script] = Field(
        default={}, description="Scripts that slurmd runs after a job, by file name.", examples=[{"10-clean.sh": "#!/bin/sh\n…"}]
    )
    config_files: Mapping[ConfigName, ConfigText] = Field(
        default={}, description="With SUNK: further files in the controller's /etc/slurm.", examples=[{"job_container.conf": "…"}]
    )
    layout: Literal["charts", "wrapper"] = Field(
        default="charts",
        description="With SUNK and Argo CD: charts installs SUNK's charts as they are; wrapper writes a chart around each into "
        "Git, with scripts as files, as SUNK's guide to GitOps has it.",
        examples=["charts"],
    )
    pyxis: Literal["none", "privileged", "profiles"] = Field(
        default="none",
        description="Containers in jobs (srun --container-image) with SUNK: privileged needs nothing on the nodes; profiles: the "
        "chart's own seccomp and AppArmor profiles, which the nodes must have; none: off.",
        examples=["privileged"],
    )
    job_metrics: bool = Field(
        default=False, description="With Slinky: label GPU metrics of the DCGM exporter with Slurm's job ids.", examples=[True]
    )
    tokens: Annotated[tuple[SlurmToken, ...], Listed] = Field(
        default=(), description="With Slinky: tokens for Slurm's REST API, each in a Secret slurm-token-USER."
    )
    accounting: Accounting | None = Field(default=None, description="Accounting database; default: no accounting.")
    repo: Url | None = Field(
        default=None, description="Chart repository, required with kind: sunk.", examples=["oci://registry.example.org/sunk"]
    )
    version: ChartVersion | None = Field(
        default=None,
        description="Chart version, required with kind: sunk. Default with slinky: that of the catalog.",
        examples=["7.3.0"],
    )
    credentials: SecretRef | None = Field(
        default=None,
        description="With SUNK by helm-controller: login of an OCI chart repository, a file in the form of Docker's config.json.",
    )
    license: SecretRef | None = Field(
        default=None, description="Refused: SUNK's charts take no licence key (rule P32). Earlier versions required it."
    )

    @model_validator(mode="after")
    def _sunk_inputs(self) -> "Slurm":
        if self.kind == "sunk":
            missing = [name for name in ("repo", "version") if getattr(self, name) is None]
            if missing:
                raise problem(
                    f"sunk is licensed software; it needs {', '.join(missing)}", "add repo and version, or use kind: slinky"
                )
        elif self.repo is not None:
            raise problem("repo belongs to kind: sunk", "remove it, or use kind: sunk")
        return self

    @model_validator(mode="after")
    def _one_default(self) -> "Slurm":
        names = [partition.name for partition in self.partitions]
        if len(set(names)) != len(names):
            raise problem("two partitions have the same name", "name each partition once")
        if sum(partition.default for partition in self.partitions) > 1:
            raise problem("two partitions are the default", "mark one partition default: true")
        return self

    @model_validator(mode="after")
    def _known_qos(self) -> "Slurm":
        names = [qos.name for qos in self.qos]
        if len(set(names)) != len(names):
            raise problem("two QoS have the same name", "name each QoS once")
        unknown = [partition.qos for partition in self.partitions if partition.qos and partition.qos not in names]
        if unknown:
            raise problem(f"slurm.qos has no {unknown[0]}", "add it to slurm.qos, or remove qos of the partition")
        return self

    @property
    def has_accounting(self) -> bool:
        """Return True if Slurm keeps accounting: in the database of the spec, or in SUNK's own."""
        return self.kind == "sunk" or self.accounting is not None
