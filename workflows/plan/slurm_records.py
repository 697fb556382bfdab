"""Records of a platform with Slurm on Kubernetes: who decides where a workload runs, and what both systems have agreed on.

Each line of the contract names the gates that prove it in this plan; a line without one says `unverified`. Both records are
rendered as Markdown for people and as YAML for tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from steps.contract.host_ranges import fold
from steps.contract.node_taints import SUNK_LOCK
from workflows.catalog.slurm_objects import CLUSTER
from workflows.catalog.yaml_text import readable_yaml
from workflows.spec import ClusterSpec
from workflows.spec.cluster_spec import slurm_groups
from workflows.stages.stage import Stage

UNVERIFIED = "unverified"
CONTRACT, DECISION = "slurm-contract", "workload-placement"
"""File names of the two records, without their endings."""


@dataclass(frozen=True, slots=True)
class ContractLine:
    """A line of the contract: its topic, the agreement, who owns it, and the gates that prove it (`checks` are parts of a gate)."""

    topic: str
    agreement: str
    owner: str
    gates: tuple[str, ...]

    @property
    def evidence(self) -> str:
        """Return the gates as text, or `unverified`."""
        return ", ".join(self.gates) or UNVERIFIED


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """A class of workloads, the scheduler that places it, why, and the gates that prove that this scheduler works."""

    workload: str
    scheduler: str
    reason: str
    gates: tuple[str, ...]


class _Proofs:
    """Gates of a plan, and what its tasks of stage slurm expect: a line of the contract is proven by both."""

    def __init__(self, stages: Iterable[Stage]) -> None:
        planned = tuple(stages)
        self._gates = frozenset(gate for stage in planned for gate in stage.gates)
        steps = (step for stage in planned if stage.id == "slurm" for step in stage.steps)
        self._expected = {step.name: step.task.expectations for step in steps}

    def gates(self, *wanted: str) -> tuple[str, ...]:
        """Return those of some gates that the plan has."""
        return tuple(gate for gate in wanted if gate in self._gates)

    def jobs(self, *checks: str) -> tuple[str, ...]:
        """Return gate slurm/scheduling with each of some checks by jobs that it expects."""
        expected = self.expected("scheduling", "checks") or ()
        return tuple(f"slurm/scheduling ({check})" for check in checks if check in expected)

    def part(self, task: str, key: str) -> tuple[str, ...]:
        """Return the gate of a task of stage slurm if it expects something of this name."""
        return self.gates(f"slurm/{task}") if self.expected(task, key) else ()

    def expected(self, task: str, key: str) -> Any:
        """Return what a task of stage slurm expects; None for nothing."""
        return self._expected.get(task, {}).get(key)


def record_files(spec: ClusterSpec, stages: Iterable[Stage]) -> Mapping[str, str]:
    """Return file name → text of both records; empty if the plan has no stage slurm."""
    planned = tuple(stages)
    if all(stage.id != "slurm" for stage in planned):
        return {}
    proofs = _Proofs(planned)
    lines, rules = tuple(_contract(spec, proofs)), tuple(_placement_rules(spec, proofs))
    return {
        f"{CONTRACT}.md": _contract_page(spec, lines),
        f"{CONTRACT}.yaml": readable_yaml({"cluster": spec.name, "lines": [_plain(line) for line in lines]}),
        f"{DECISION}.md": _decision_page(spec, rules),
        f"{DECISION}.yaml": readable_yaml({"cluster": spec.name, "rules": [_plain(rule) for rule in rules]}),
    }


def _plain(entry: ContractLine | PlacementRule) -> dict[str, object]:
    data = asdict(entry)
    return data | {"gates": list(entry.gates) or [UNVERIFIED]}


# ---- the contract --------------------------------------------------------------------------------------------------------------


def _contract(spec: ClusterSpec, proofs: _Proofs) -> Iterator[ContractLine]:
    """Yield the lines of the contract between Slurm and Kubernetes, with what proves each of them in this plan."""
    yield from _nodes(spec, proofs)
    yield from _operation(spec, proofs)
    yield from _users(spec, proofs)
    yield from _scheduling(spec, proofs)


def _nodes(spec: ClusterSpec, proofs: _Proofs) -> Iterator[ContractLine]:
    groups = fold(name.replace("_", "-") for name in slurm_groups(spec))
    whole = f"Slurm owns all GPUs of host groups {groups}: pods of slurmd request them, and jobs get them by GRES"
    yield ContractLine("GPU ownership", whole, "Slurm", (*proofs.gates("slurm/nodes"), *proofs.jobs("gpu")))
    if spec.slurm.kind == "sunk":
        wins = f"SUNK locks a node while jobs run (taint {SUNK_LOCK}), which evicts every pod that does not tolerate it"
    else:
        wins = "pods of slurmd hold all GPUs of their nodes, so that no other pod that requests one is placed there"
    yield ContractLine("who wins when both claim capacity", wins, "Slurm", proofs.gates("slurm/placement", "slurm/pods"))
    mapping = "a Slurm node is one pod of slurmd, on one Kubernetes Node"
    yield ContractLine("nodes, pods and machines", mapping, "operator of Slurm", proofs.gates("slurm/nodes", "slurm/control"))


def _operation(spec: ClusterSpec, proofs: _Proofs) -> Iterator[ContractLine]:
    drain = "a node that Slurm drains takes no jobs until it is resumed"
    yield ContractLine("drains by Slurm", drain, "whoever began it", proofs.gates("slurm/drain"))
    prefix = "k8s:" if spec.slurm.kind == "sunk" else "slurm-operator:"
    both = f"a cordoned Node is drained in Slurm with a reason that begins with {prefix}, and only such a drain is cleared again"
    yield ContractLine("node drains", both, "whoever began it", proofs.part("drain", "cordon"))
    sync = "a change of the charts restarts slurmd a few nodes at a time"
    yield ContractLine("rollout", sync, "Argo CD" if spec.delivery.argo_cd else "helm-controller", ())
    yield ContractLine("restart of slurmctld", "running jobs outlive it", "Slurm", proofs.jobs("restart"))
    if spec.slurm.kind == "sunk":
        login = "login pods change by OnDelete: an old pod is replaced after an approval that lists the sessions on it, if any"
        yield ContractLine("login pods", login, "approver", proofs.gates("slurm_login/pods"))
    else:
        login = "login pods change by RollingUpdate: shells end with their pod, since a LoginSet has no OnDelete"
        yield ContractLine("login pods", login, "operator", ())


def _users(spec: ClusterSpec, proofs: _Proofs) -> Iterator[ContractLine]:
    shared = spec.slurm.home
    if shared is None:
        where = "there is no shared /home: files of users stay in the pod that wrote them"
    elif shared.server:
        where = f"/home is {shared.server}:{shared.path}, mounted by login pods and by every slurmd"
    else:
        where = f"/home is a volume of class {shared.storage_class} ({shared.size}), mounted by login pods and by every slurmd"
    yield ContractLine("storage", where, "site", proofs.jobs("home"))
    who = "a user exists where slurmctld resolves the uid, not only in the login pod; the directory is the site's"
    # that sshd shows a key (check login) tells nothing about users
    yield ContractLine("identity", who, "site", proofs.jobs("user"))
    yield ContractLine(
        "job logs", "output of jobs goes to files below the folder of submission, not to the log of a pod", "users", ()
    )


def _scheduling(spec: ClusterSpec, proofs: _Proofs) -> Iterator[ContractLine]:
    slurm = spec.slurm
    names = proofs.expected("scheduling", "partitions") or [partition.name for partition in slurm.partitions]
    partitions = f"partitions {', '.join(names)}" if names else "partitions of the charts"
    qos = f", QoS {', '.join(entry.name for entry in slurm.qos)}" if slurm.qos else ""
    queue = f"queues and priority are Slurm's: {partitions}{qos}; Kubernetes' priorities order pods of the platform only"
    yield ContractLine("queue priority", queue, "Slurm", proofs.part("scheduling", "qos" if qos else "partitions"))
    if qos:
        yield ContractLine("limits of QoS", "slurmctld enforces the limits that a QoS has", "Slurm", ())
    records = "each job has a record in Slurm's database" if slurm.has_accounting else "there is none: no job leaves a record"
    yield ContractLine("accounting", records, "Slurm", proofs.part("scheduling", "accounting"))
    tree = "Slurm places jobs by the leaf switches of the hosts" if slurm.topology == "tree" else "Slurm knows no topology"
    yield ContractLine("topology", tree, "Slurm", proofs.part("scheduling", "tree"))
    fast = "jobs reach the fabric by the devices that slurmd's pod requests" if spec.fabric.kind != "none" else "there is no fabric"
    # tests of the fabric run in pods of their own, outside slurmd
    yield ContractLine("data plane", fast, "Network Operator", ())
    source = "SUNK's syncer" if slurm.kind == "sunk" else "Slinky's operator"
    states = f"{source} shows Slurm's states on pods"
    yield ContractLine("observability", states, "operator of Slurm", proofs.part("nodes", "states"))
    yield ContractLine("metrics", "Slurm serves metrics, and the site collects them", "site", proofs.jobs("metrics"))


# ---- where workloads run -------------------------------------------------------------------------------------------------------


def _placement_rules(spec: ClusterSpec, proofs: _Proofs) -> Iterator[PlacementRule]:
    """Yield which scheduler places each class of workloads on this platform, and the gates that prove that it does."""
    slurm = "Slurm on Kubernetes"
    why = "allocation of many nodes at a time, partitions, accounting and topology, with sbatch and srun as users know them"
    yield PlacementRule("training on several nodes", slurm, why, proofs.jobs("two"))
    yield PlacementRule("finite batch jobs with GPUs", slurm, "queues, limits and records of jobs", proofs.jobs("batch", "gpu"))
    logins = spec.slurm.login.replicas
    shell = f"salloc from {logins} login pods" if logins else "there are no login pods"
    # salloc itself is nowhere tested, a login by SSH and a submission there are
    yield PlacementRule("interactive research", slurm, shell, proofs.jobs("user") if logins else ())
    if slurm_pods := proofs.gates("slurm/pods"):
        name = "SUNK's pod scheduler"
        yield PlacementRule("pods on nodes of Slurm", name, "they name it by schedulerName, and wait in Slurm's queue", slurm_pods)
    services = "rollout, probes, services and autoscaling; on nodes that Slurm does not hold"
    yield PlacementRule("services and inference", "Kubernetes", services, ())
    if spec.scheduler.gang != "none" or spec.scheduler.quota != "none":
        name = " and ".join(part for part in (spec.scheduler.gang, spec.scheduler.quota) if part != "none")
        gang = "all pods of a job start together; GPUs of Slurm's nodes are not theirs"
        yield PlacementRule("gangs of pods", f"Kubernetes with {name}", gang, proofs.gates("gang/functional"))
    daemons = "daemons of the platform, which tolerate what Slurm sets"
    yield PlacementRule("operators and monitoring", "Kubernetes", daemons, proofs.gates("slurm/placement"))


# ---- pages ---------------------------------------------------------------------------------------------------------------------

_HEAD = "Written by bringup: it is rendered from the cluster's spec.\n"


def _contract_page(spec: ClusterSpec, lines: Iterable[ContractLine]) -> str:
    rows = "".join(f"| {line.topic} | {line.agreement} | {line.owner} | {line.evidence} |\n" for line in lines)
    releases = " or ".join(CLUSTER)
    about = f"Agreements between Slurm ({spec.slurm.kind}) and Kubernetes. Values: release {releases}. "
    about += f"`{UNVERIFIED}` says that no gate of this plan proves a line.\n"
    head = "| topic | agreement | owner | proven by |\n|---|---|---|---|\n"
    return f"# Slurm on Kubernetes: contract of {spec.name}\n\n{_HEAD}\n{about}\n{head}{rows}"


def _decision_page(spec: ClusterSpec, rules: Iterable[PlacementRule]) -> str:
    rows = "".join(
        f"| {rule.workload} | {rule.scheduler} | {rule.reason} | {', '.join(rule.gates) or UNVERIFIED} |\n" for rule in rules
    )
    head = "| workload | scheduler | why | proven by |\n|---|---|---|---|\n"
    title = f"# Placement of workloads: decision record of {spec.name}\n\n"
    return f"{title}{_HEAD}\nDecided by {spec.owner}, {spec.revision}.\n\n{head}{rows}"
