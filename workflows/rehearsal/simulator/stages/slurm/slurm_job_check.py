"""Stage slurm: the check `slurm-jobs` on a simulated slurmctld; it submits the jobs of `workflows/stages/scripts/slurm_jobs.sh`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from steps.contract import topology_conf
from steps.contract.host_ranges import fold
from workflows.rehearsal.simulator.stages.slurm.slurm_controller import (
    REFUSED_USER,
    ControlledNode,
    JobRequest,
    QueuedJob,
    SimulatedSlurm,
    SlurmFaults,
    show_job,
    show_nodes,
    show_queue,
    show_records,
)
from workflows.rehearsal.simulator.world import World

Leaves = Mapping[str, tuple[str, ...]]
"""Leaf switch → Slurm nodes."""
MACHINE_MARGIN = 1024
"""MB by which the job of check `memory` asks for more than the machine has."""


@dataclass(kw_only=True)
class SlurmSurroundings:
    """Services around slurmctld: accounting, QoS, topology, users, the shared home, and the login pods' SSH server.

    `memory` maps a Kubernetes node to the MB that the machine has; `topology` is leaf switch → nodes as slurmctld has read it.
    """

    accounting: bool = False
    qos: tuple[str, ...] = ()
    topology: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    topology_file: str = ""
    users: frozenset[str] = frozenset()
    home_shared: bool = True
    login: bool = True
    pyxis: bool = True
    pmix: bool = True
    metrics: tuple[str, ...] = ()
    """Lines of the metrics that Slurm serves, as `NAME|SUM`; none: its endpoint does not answer."""
    memory: Mapping[str, int] = field(default_factory=dict)
    sharing: Mapping[str, str] = field(default_factory=dict)
    """Partition → its OverSubscribe."""


@dataclass(kw_only=True)
class CheckRun:
    """One run of the check: the cluster, what surrounds it, the script's variables, and the lines that it collects."""

    slurm: SimulatedSlurm
    around: SlurmSurroundings
    variables: Mapping[str, str]
    answers: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def wants(self, check: str) -> bool:
        """Return True if the script was asked for a check."""
        return check in self.variables.get("CHECKS", "").split()

    def submit(self, request: JobRequest) -> bool:
        """Submit a job of a check if it is wanted; note a refusal. Return True if the job is in the queue."""
        if not self.wants(request.check):
            return False
        refusal = self.slurm.submit(request)
        if refusal:
            self.refusals.append(f"{request.check}|{refusal}")
        return not refusal


def report(run: CheckRun) -> str:
    """Run the check on the simulated slurmctld and return the text that the script prints."""
    slurm, idle = run.slurm, run.slurm.idle()
    if idle:
        _submit_jobs(run, idle[0], idle[1] if len(idle) > 1 else idle[0])
    if run.wants("login") and run.around.login:
        run.answers.append("login|key|ssh-ed25519")
    slurm.run()
    waiting = show_queue(slurm)
    jobs = [show_job(slurm, job) for job in slurm.jobs]
    slurm.jobs = [job for job in slurm.jobs if not (job.request.check == "memory" and job.state == "PENDING")]
    boots: list[str] = []
    if run.wants("restart") and idle:
        boots, restarted = _restart(run)
        jobs += restarted
    shown, reasons = show_nodes(slurm)
    around = run.around
    sections = {
        "ping": ["Slurmctld(primary) at slurm-controller is UP"],
        "partitions": [f"{name}|up|{fold(nodes)}" for name, nodes in slurm.partitions.items()],
        "sharing": [f"PartitionName={name} OverSubscribe={around.sharing.get(name, 'NO')}" for name in slurm.partitions],
        "qos": list(around.qos) if around.accounting else [],
        "topology": [f"SwitchName={name} Level=0 LinkSpeed=1 Nodes={fold(nodes)}" for name, nodes in around.topology.items()],
        "topology_conf": around.topology_file.splitlines(),
        "jobs": jobs,
        "sacct": show_records(slurm) if around.accounting else [],
        "answers": run.answers,
        "refusals": run.refusals,
        "boots": boots,
        "metrics": list(around.metrics) if run.wants("metrics") else [],
        "waiting": waiting,
        "left": show_queue(slurm),
        "sinfo": shown,
        "reasons": reasons,
        "errors": [],
    }
    return "".join(f"@{name}\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections.items())


def _submit_jobs(run: CheckRun, first: ControlledNode, second: ControlledNode) -> None:
    faults = run.slurm.faults
    marked = run.slurm.last() if run.submit(JobRequest(check="batch", where=first.name)) else 0
    run.submit(JobRequest(check="two", nodes=2, program=lambda job: len(_hosts(job)) == 2 and not faults.nodes_apart))
    for _ in range(4):
        run.submit(JobRequest(check="array"))
    if run.submit(JobRequest(check="dependency", seconds=2)):
        run.submit(JobRequest(check="dependency", after=run.slurm.last()))
    run.submit(JobRequest(check="steps", steps=3))
    run.submit(JobRequest(check="gpu", gpus=1, program=lambda job: _seen_gpus(run, job) == 1))
    run.submit(JobRequest(check="exclusive", where=first.name, exclusive=True, seconds=3))
    run.submit(JobRequest(check="exclusive", where=first.name, exclusive=True, seconds=3))
    run.submit(JobRequest(check="shared", where=second.name, cpus=second.cpus, seconds=5))
    run.submit(JobRequest(check="shared", where=second.name, cpus=second.cpus, seconds=5))
    run.submit(JobRequest(check="memory", where=first.name, memory=run.around.memory.get(first.host, 0) + MACHINE_MARGIN))
    if run.wants("het"):
        run.submit(JobRequest(check="het", het=True))
        run.submit(JobRequest(check="het", het=True))
    if run.around.pmix:
        run.submit(JobRequest(check="pmix", nodes=2, program=lambda job: len(_hosts(job)) == 2 and not faults.no_pmix))
    elif run.wants("pmix"):
        run.answers.append("pmix|missing|MPI plugin types are... none pmi2 cray_shasta")
    run.submit(JobRequest(check="prolog", where=first.name, program=_marked("prolog")))
    if marked:
        run.submit(JobRequest(check="epilog", where=first.name, after=marked, seconds=2, program=_marked("epilog", marked)))
    _submit_others(run, first, second)


def _submit_others(run: CheckRun, first: ControlledNode, second: ControlledNode) -> None:
    if run.wants("user"):
        if run.variables.get("USER_NAME", "") in run.around.users:
            run.submit(JobRequest(check="user"))
        else:
            run.refusals.append(f"user|{REFUSED_USER}")
    if run.wants("home"):
        run.answers.append("home|written|1764500000-7")
        if run.around.home_shared or first is second:
            run.answers.append("home|read|1764500000-7")
    if run.wants("pyxis") and run.around.pyxis:
        system = run.variables.get("CONTAINER", "").rpartition("/")[2].partition(":")[0].capitalize()
        run.answers.append(f'pyxis|system|NAME="{system} Linux"')


def _hosts(job: QueuedJob) -> set[str]:
    return {node.host for node in job.nodes}


def _seen_gpus(run: CheckRun, job: QueuedJob) -> int:
    return job.nodes[0].gpus if run.slurm.faults.all_gpus else job.request.gpus


def _marked(kind: str, marked: int = 0) -> Callable[[QueuedJob], bool]:
    """Return a program that looks for the mark of a job's own prolog, or of the epilog of the job `marked`."""
    return lambda job: all(f"{kind}.{marked or job.id}" in node.marks for node in job.nodes)


def _restart(run: CheckRun) -> tuple[list[str], list[str]]:
    """Restart slurmctld under a running job; return its boot times before and after, and the job as it is shown then."""
    slurm = run.slurm
    run.submit(JobRequest(check="restart", seconds=25))
    slurm.run(most=1)
    before = len(slurm.boots)
    slurm.restart()
    back = len(slurm.boots) > before
    slurm.run()
    shown = [show_job(slurm, job) for job in slurm.jobs if job.request.check == "restart"]
    return [slurm.boots[before - 1], slurm.boots[-1] if back else "none"], shown if back else []


def served_metrics(nodes: Sequence[ControlledNode], total: str, *, gpus: str = "") -> tuple[str, ...]:
    """Return lines of the metrics of jobs, nodes (`total`) and GPUs (`gpus`; empty: there is no such metric)."""
    lines = [f"{total}|{len(nodes)}", "slurm_jobs_pending|0", "slurm_jobs_running|0"]
    return tuple(lines + ([f"{gpus}|{sum(node.gpus for node in nodes)}"] if gpus else []))


def machine_memory(world: World, names: Mapping[str, str]) -> dict[str, int]:
    """Return Kubernetes node → memory of its machine in MB, for Slurm node → Kubernetes node."""
    return {host: world.hardware(host).memory_gib * 1024 for host in names.values()}


def real_memory(world: World, host: str) -> int:
    """Return RealMemory of a node in slurm.conf in MB."""
    return world.hardware(host).memory_gib * 1024 * (2 if world.fault("slurm_memory_overstated") else 1)


def shown_sharing(world: World, configured: Mapping[str, str]) -> dict[str, str]:
    """Return partition → OverSubscribe as scontrol shows it: with its number of jobs, or with the fault Slurm's default."""
    if world.fault("slurm_oversubscribe_lost"):
        return dict.fromkeys(configured, "NO")
    return {name: f"{rule}:4" if rule in ("YES", "FORCE") else rule for name, rule in configured.items()}


def shared_nodes(partitions: Mapping[str, tuple[str, ...]], sharing: Mapping[str, str]) -> set[str]:
    """Return the Slurm nodes whose processors jobs share by force."""
    forced = [name for name, rule in sharing.items() if rule.startswith("FORCE") and rule != "FORCE:1"]
    return {node for name in forced for node in partitions.get(name, ())}


def running_topology(world: World, leaves: Leaves) -> Leaves:
    """Return leaf switch → nodes as slurmctld shows them for a topology file; with a fault, as it was before the last change."""
    if world.fault("slurm_topology_outdated") and len(leaves) > 1:
        names = list(leaves)
        return dict(zip(names, [leaves[name] for name in (*names[1:], names[0])], strict=True))
    return _misplaced(world, leaves)


def topology_file(world: World, text: str, read: Callable[[str], Leaves] = topology_conf.leaves_of) -> str:
    """Return a topology file as pods show it: that of the plan, but with the fault one that has a node at another leaf."""
    leaves = read(text)
    misplaced = _misplaced(world, leaves)
    return text if misplaced == leaves else topology_conf.text_of(misplaced)


def _misplaced(world: World, leaves: Leaves) -> Leaves:
    """Return leaves of which, with fault `slurm_topology_wrong_leaf`, the second has the first node of the first one."""
    if not world.fault("slurm_topology_wrong_leaf") or len(leaves) < 2:
        return leaves
    (first, nodes), (second, others), *rest = leaves.items()
    return {first: nodes[1:], second: (*others, *nodes[:1]), **dict(rest)}


def with_stale(world: World, nodes: Sequence[ControlledNode]) -> list[ControlledNode]:
    """Return the nodes, and with fault `slurm_stale_node` a record of a pod that is gone."""
    stale = nodes and world.fault("slurm_stale_node")
    return [*nodes, ControlledNode(name=f"{nodes[0].name}-old", host="", gres=nodes[0].gres)] if stale else list(nodes)


def faults(world: World) -> SlurmFaults:
    """Return the faults that act inside slurmctld and its jobs."""
    return SlurmFaults(
        no_backfill=bool(world.fault("slurm_backfill_off")),
        loses_state=bool(world.fault("slurm_state_not_kept")),
        stays_away=bool(world.fault("slurm_controller_stays_away")),
        drops_records=bool(world.fault("slurm_accounting_drops_records")),
        shares_exclusive=bool(world.fault("slurm_exclusive_ignored")),
        all_gpus=bool(world.fault("slurm_gpus_unconstrained")),
        no_pmix=bool(world.fault("slurm_pmix_broken")),
        nodes_apart=bool(world.fault("slurm_nodes_apart")),
        no_prolog=bool(world.fault("slurm_prolog_not_run")),
        no_epilog=bool(world.fault("slurm_epilog_not_run")),
        drains_after=frozenset(host.name for host in world.fleet if world.fault("slurm_epilog_drains", host.name)),
    )
