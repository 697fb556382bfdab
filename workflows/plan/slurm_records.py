"""Records of a platform with Slurm on Kubernetes: who decides where a workload runs, and what both systems have agreed on.

Each line of the contract names the gates that prove it in this plan; a line without one says `unverified`. Both records are
rendered as Markdown for people and as YAML for tools.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from steps.contract.host_ranges import fold
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


def record_files(spec: ClusterSpec, stages: Iterable[Stage]) -> Mapping[str, str]:
    """Return file name → text of both records; empty if the plan has no stage slurm."""
    planned = {stage.id: stage for stage in stages}
    if "slurm" not in planned:
        return {}
    gates = frozenset(gate for stage in planned.values() for gate in stage.gates)
    checks = _scheduling_checks(planned["slurm"])
    lines, rules = tuple(contract(spec, gates, checks)), tuple(placement_rules(spec, gates))
    return {
        f"{CONTRACT}.md": _contract_page(spec, lines),
        f"{CONTRACT}.yaml": readable_yaml({"cluster": spec.name, "lines": [_plain(line) for line in lines]}),
        f"{DECISION}.md": _decision_page(spec, rules),
        f"{DECISION}.yaml": readable_yaml({"cluster": spec.name, "rules": [_plain(rule) for rule in rules]}),
    }


def _scheduling_checks(stage: Stage) -> frozenset[str]:
    """Return the checks by jobs that gate slurm/scheduling expects."""
    expected = (step.task.expectations.get("checks", ()) for step in stage.steps if step.name == "scheduling")
    return frozenset(check for checks in expected for check in checks)


def _plain(entry: ContractLine | PlacementRule) -> dict[str, object]:
    data = asdict(entry)
    return data | {"gates": list(entry.gates) or [UNVERIFIED]}


# ---- the contract --------------------------------------------------------------------------------------------------------------


def contract(spec: ClusterSpec, gates: Collection[str], checks: Collection[str]) -> Iterator[ContractLine]:
    """Yield the lines of the contract between Slurm and Kubernetes, with those of `gates` that prove each.

    `checks` are the checks by jobs of gate slurm/scheduling.
    """

    def proof(*wanted: str, by_jobs: Iterable[str] = ()) -> tuple[str, ...]:
        jobs = [f"slurm/scheduling ({check})" for check in by_jobs if check in checks]
        return (*(gate for gate in wanted if gate in gates), *jobs)

    yield from _nodes(spec, proof("slurm/nodes", by_jobs=["gpu"]), proof("slurm/placement"), proof("slurm/nodes", "slurm/control"))
    yield from _operation(spec, proof("slurm/drain", "slurm/control"), proof(by_jobs=["restart"]), proof("slurm_login/pods"))
    yield from _users(spec, proof(by_jobs=["home"]), proof(by_jobs=["login", "user"]))
    yield from _scheduling(spec, proof)


def _nodes(spec: ClusterSpec, owned: tuple[str, ...], alone: tuple[str, ...], mapped: tuple[str, ...]) -> Iterator[ContractLine]:
    groups = fold(name.replace("_", "-") for name in slurm_groups(spec))
    whole = f"Slurm owns all GPUs of host groups {groups}: pods of slurmd request them, and jobs get them by GRES"
    yield ContractLine("GPU ownership", whole, "Slurm", owned)
    if spec.slurm.kind == "sunk":
        wins = "SUNK locks a node while jobs run (taint sunk.coreweave.com/lock), which evicts every pod that does not tolerate it"
    else:
        wins = "pods of slurmd hold all GPUs of their nodes, so that no other pod that requests one is placed there"
    yield ContractLine("who wins when both claim capacity", wins, "Slurm", alone)
    mapping = "a Slurm node is one pod of slurmd, on one Kubernetes Node"
    yield ContractLine("nodes, pods and machines", mapping, "operator of Slurm", mapped)


def _operation(
    spec: ClusterSpec, drains: tuple[str, ...], restarts: tuple[str, ...], logins: tuple[str, ...]
) -> Iterator[ContractLine]:
    prefix = "k8s:" if spec.slurm.kind == "sunk" else "slurm-operator:"
    both = f"a cordoned Node is drained in Slurm with a reason that begins with {prefix}, and only such a drain is cleared again"
    yield ContractLine("node drains", both, "whoever began it", drains)
    sync = "a change of the charts restarts slurmd a few nodes at a time, and a restart of slurmctld keeps running jobs"
    yield ContractLine("rollout", sync, "Argo CD" if spec.delivery.argo_cd else "helm-controller", restarts)
    if spec.slurm.kind == "sunk":
        login = "login pods change by OnDelete: an old pod is replaced after an approval that lists the sessions on it, if any"
        yield ContractLine("login pods", login, "approver", logins)
    else:
        login = "login pods change by RollingUpdate: shells end with their pod, since a LoginSet has no OnDelete"
        yield ContractLine("login pods", login, "operator", ())


def _users(spec: ClusterSpec, home: tuple[str, ...], identity: tuple[str, ...]) -> Iterator[ContractLine]:
    shared = spec.slurm.home
    if shared is None:
        where = "there is no shared /home: files of users stay in the pod that wrote them"
    elif shared.server:
        where = f"/home is {shared.server}:{shared.path}, mounted by login pods and by every slurmd"
    else:
        where = f"/home is a volume of class {shared.storage_class} ({shared.size}), mounted by login pods and by every slurmd"
    yield ContractLine("storage", where, "site", home)
    who = "a user exists where slurmctld resolves the uid, not only in the login pod; the directory is the site's"
    yield ContractLine("identity", who, "site", identity)
    yield ContractLine(
        "job logs", "output of jobs goes to files below the folder of submission, not to the log of a pod", "users", ()
    )


def _scheduling(spec: ClusterSpec, proof: Callable[..., tuple[str, ...]]) -> Iterator[ContractLine]:
    slurm = spec.slurm
    names = ", ".join(partition.name for partition in slurm.partitions) or "all"
    qos = f", QoS {', '.join(entry.name for entry in slurm.qos)} with enforced limits" if slurm.qos else ""
    queue = f"queues and priority are Slurm's: partitions {names}{qos}; Kubernetes' priorities order pods of the platform only"
    yield ContractLine("queue priority", queue, "Slurm", proof("slurm/scheduling"))
    records = "each job has a record in Slurm's database" if slurm.has_accounting else "there is none: no job leaves a record"
    yield ContractLine("accounting", records, "Slurm", proof("slurm/functional") if slurm.has_accounting else ())
    tree = "Slurm places jobs by the leaf switches of the hosts" if slurm.topology == "tree" else "Slurm knows no topology"
    yield ContractLine("topology", tree, "Slurm", proof("slurm/scheduling") if slurm.topology == "tree" else ())
    fast = "jobs reach the fabric by the devices that slurmd's pod requests" if spec.fabric.kind != "none" else "there is no fabric"
    yield ContractLine("data plane", fast, "Network Operator", proof("network_operator/functional", "validation/functional"))
    source = "SUNK's syncer" if slurm.kind == "sunk" else "Slinky's operator"
    metrics = f"{source} shows Slurm's states on pods"
    yield ContractLine("observability", f"{metrics}; metrics are collected by the site", "site", proof("slurm/control"))


# ---- where workloads run -------------------------------------------------------------------------------------------------------


def placement_rules(spec: ClusterSpec, gates: Collection[str]) -> Iterator[PlacementRule]:
    """Yield which scheduler places each class of workloads on this platform, and the gates that prove that it does."""

    def proof(*wanted: str) -> tuple[str, ...]:
        return tuple(gate for gate in wanted if gate in gates)

    slurm = "Slurm on Kubernetes"
    why = "allocation of many nodes at a time, partitions, accounting and topology, with sbatch and srun as users know them"
    yield PlacementRule("training on several nodes", slurm, why, proof("slurm/scheduling", "validation/functional"))
    yield PlacementRule("finite batch jobs with GPUs", slurm, "queues, limits and records of jobs", proof("slurm/scheduling"))
    logins = spec.slurm.login.replicas
    shell = f"salloc from {logins} login pods" if logins else "there are no login pods"
    yield PlacementRule("interactive research", slurm, shell, proof("slurm/scheduling") if logins else ())
    services = "rollout, probes, services and autoscaling; on nodes that Slurm does not hold"
    yield PlacementRule("services and inference", "Kubernetes", services, ())
    if spec.scheduler.gang != "none" or spec.scheduler.quota != "none":
        name = " and ".join(part for part in (spec.scheduler.gang, spec.scheduler.quota) if part != "none")
        gang = "all pods of a job start together; GPUs of Slurm's nodes are not theirs"
        yield PlacementRule("gangs of pods", f"Kubernetes with {name}", gang, proof("gang/functional"))
    daemons = "daemons of the platform, which tolerate what Slurm sets"
    yield PlacementRule("operators and monitoring", "Kubernetes", daemons, proof("slurm/placement"))


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
