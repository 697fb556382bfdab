"""Stage slurm: a simulated slurmctld with its jobs, for the check `slurm-jobs`: a small state machine in Slurm's own words.

Nodes, partitions and accounting come from the objects of the simulated cluster. Jobs live as long as one run of the check, in a
time of their own: a job starts when its nodes have what it asks for, and its program decides on its exit code. Rules:
https://slurm.schedmd.com/job_state_codes.html, https://slurm.schedmd.com/heterogeneous_jobs.html (backfill scheduler only).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from steps.contract.host_ranges import fold

REFUSED_NODES = "sbatch: error: Batch job submission failed: Requested node configuration is not available"
REFUSED_MEMORY = "sbatch: error: Memory specification can not be satisfied"
REFUSED_USER = "sbatch: error: Batch job submission failed: Invalid user id"
FIRST_JOB = 41
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL")


@dataclass(kw_only=True)
class ControlledNode:
    """A node as slurmctld knows it. `memory` is RealMemory in MB, `host` the Kubernetes node (empty: the record is stale)."""

    name: str
    host: str
    gres: str = ""
    gpus: int = 0
    memory: int = 1
    cpus: int = 1
    state: str = "idle"
    reason: str = ""
    shared: bool = False
    marks: set[str] = field(default_factory=set)
    """Files that prolog and epilog have left in the slurmd pod."""


@dataclass(kw_only=True)
class JobRequest:
    """A request for a job. `program` returns True if the job's commands end with 0; `seconds` is how long they run."""

    check: str
    nodes: int = 1
    where: str = ""
    cpus: int = 1
    memory: int = 64
    gpus: int = 0
    exclusive: bool = False
    after: int = 0
    het: bool = False
    seconds: int = 1
    steps: int = 0
    program: Callable[[QueuedJob], bool] = lambda _: True


@dataclass(kw_only=True)
class QueuedJob:
    """A job in the queue of slurmctld, or after its end."""

    id: int
    request: JobRequest
    state: str = "PENDING"
    reason: str = "Priority"
    code: int = 0
    nodes: tuple[ControlledNode, ...] = ()
    start: int = 0
    end: int = 0
    restarts: int = 0
    comment: str = ""


@dataclass(kw_only=True)
class SlurmFaults:
    """Disturbances of one simulated slurmctld; each is a fault of `faults/slurm.py`."""

    no_backfill: bool = False
    loses_state: bool = False
    stays_away: bool = False
    drops_records: bool = False
    shares_exclusive: bool = False
    all_gpus: bool = False
    unconfined: bool = False
    """Jobs see all devices of their node, and are told by CUDA_VISIBLE_DEVICES which are theirs."""
    nodes_apart: bool = False
    no_pmix: bool = False
    drains_after: frozenset[str] = frozenset()
    no_prolog: bool = False
    no_epilog: bool = False


class SimulatedSlurm:
    """One slurmctld: nodes, partitions, a queue, and the records of slurmdbd. `now` is in seconds since the epoch."""

    def __init__(
        self, nodes: Iterable[ControlledNode], partitions: dict[str, tuple[str, ...]], now: float, faults: SlurmFaults
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.partitions = partitions
        self.faults = faults
        self.jobs: list[QueuedJob] = []
        self.records: dict[int, str] = {}
        self.now = int(now)
        self.boots = [self.stamp(self.now - 3600)]

    def stamp(self, seconds: int) -> str:
        """Return a time as Slurm prints it."""
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S") if seconds else "Unknown"

    def idle(self) -> list[ControlledNode]:
        """Return the idle nodes of the partition that has most of them, by name."""
        most: list[ControlledNode] = []
        for names in self.partitions.values():
            members = (self.nodes[name] for name in names if name in self.nodes)
            idle = [node for node in members if node.state == "idle"]
            most = idle if len(idle) > len(most) else most
        return sorted(most, key=lambda node: node.name)

    def submit(self, request: JobRequest) -> str:
        """Queue a job and return an empty text, or return the line with which sbatch refuses it."""
        fitting = [node for node in self._places(request) if node.memory >= request.memory]
        if not fitting:
            return REFUSED_MEMORY if self._places(request) else REFUSED_NODES
        if len([node for node in fitting if node.cpus >= request.cpus and node.gpus >= request.gpus]) < request.nodes:
            return REFUSED_NODES
        self.jobs.append(QueuedJob(id=FIRST_JOB + len(self.jobs), request=request))
        return ""

    def last(self) -> int:
        """Return the id of the job that was submitted last."""
        return self.jobs[-1].id

    def run(self, most: int = 180) -> None:
        """Let time pass until no job runs and none can start, at most `most` seconds."""
        end = self.now + most
        while self.now < end:
            self._end_jobs()
            self._start_jobs()
            running = [job for job in self.jobs if job.state == "RUNNING"]
            if not running:
                break
            self.now = min(end, *(job.end for job in running))
        self._end_jobs()

    def restart(self) -> None:
        """End slurmctld and start it again from its saved state; jobs run on, unless the state is lost."""
        if self.faults.stays_away:
            return
        self.now += 6
        self.boots.append(self.stamp(self.now))
        if self.faults.loses_state:
            self.jobs = [job for job in self.jobs if job.state in ENDED]

    def queue(self) -> list[QueuedJob]:
        """Return the jobs that squeue lists."""
        return [job for job in self.jobs if job.state not in ENDED]

    # ---- the scheduler -----------------------------------------------------------------------------------------------------------

    def _places(self, request: JobRequest) -> list[ControlledNode]:
        usable = [node for node in self.nodes.values() if node.state in ("idle", "allocated", "mixed")]
        return [node for node in usable if not request.where or node.name == request.where]

    def _start_jobs(self) -> None:
        het = [job for job in self.jobs if job.request.het and job.state == "PENDING"]
        for job in self.jobs:
            if job.state != "PENDING" or not self._ready(job):
                continue
            chosen = self._free(job.request)
            if len(chosen) < job.request.nodes or (job.request.het and len(het) != 2):
                job.reason = "Resources"
                continue
            self._start(job, chosen[: job.request.nodes])

    def _ready(self, job: QueuedJob) -> bool:
        if job.request.het and self.faults.no_backfill:
            job.reason = "None"
            return False
        before = next((other for other in self.jobs if other.id == job.request.after), None)
        if before is not None and before.state not in ENDED:
            job.reason = "Dependency"
            return False
        return True

    def _start(self, job: QueuedJob, nodes: Sequence[ControlledNode]) -> None:
        job.state, job.reason, job.nodes, job.start = "RUNNING", "None", tuple(nodes), self.now
        job.end = self.now + max(job.request.seconds, 1)
        for node in nodes:
            if not self.faults.no_prolog:
                node.marks.add(f"prolog.{job.id}")

    def _free(self, request: JobRequest) -> list[ControlledNode]:
        return [node for node in self._places(request) if self._fits(node, request)]

    def _fits(self, node: ControlledNode, request: JobRequest) -> bool:
        here = [job for job in self.jobs if job.state == "RUNNING" and node in job.nodes]
        alone = request.exclusive or any(job.request.exclusive for job in here)
        if here and alone and not self.faults.shares_exclusive:
            return False
        cpus = request.cpus + (0 if node.shared else sum(job.request.cpus for job in here))
        gpus = request.gpus + sum(job.request.gpus for job in here)
        memory = request.memory + sum(job.request.memory for job in here)
        return cpus <= node.cpus and gpus <= node.gpus and memory <= node.memory

    def _end_jobs(self) -> None:
        for job in self.jobs:
            if job.state != "RUNNING" or job.end > self.now:
                continue
            good = job.request.program(job)
            job.state, job.code = ("COMPLETED", 0) if good else ("FAILED", 1)
            job.reason = "None" if good else "NonZeroExitCode"
            for node in job.nodes:
                self._leave(job, node)
            if job.request.gpus:
                loose = self.faults.all_gpus or self.faults.unconfined
                visible = "0" if self.faults.unconfined else "unset"
                job.comment = f"devices:{job.nodes[0].gpus if loose else job.request.gpus},visible:{visible}"
            if not self.faults.drops_records:
                self.records[job.id] = f"{job.state}|{job.code}:0"

    def _leave(self, job: QueuedJob, node: ControlledNode) -> None:
        if not self.faults.no_epilog:
            node.marks.add(f"epilog.{job.id}")
        if node.host in self.faults.drains_after:
            node.state, node.reason = "drained", "Epilog error"


# ---- what Slurm's tools print ----------------------------------------------------------------------------------------------------


def show_job(slurm: SimulatedSlurm, job: QueuedJob) -> str:
    """Return the fields of `scontrol show job -o` that the check's script keeps."""
    nodes = fold(node.name for node in job.nodes) or "(null)"
    name, times = f"bringup-{job.request.check}", f"StartTime={slurm.stamp(job.start)} EndTime={slurm.stamp(job.end)}"
    return (
        f"JobId={job.id} JobName={name} JobState={job.state} Reason={job.reason} Restarts={job.restarts} "
        f"ExitCode={job.code}:0 {times} NodeList={nodes}{f' Comment={job.comment}' if job.comment else ''}"
    )


def show_records(slurm: SimulatedSlurm) -> list[str]:
    """Return the lines of `sacct -o jobidraw,jobname,state,exitcode`: a job, its batch step, and its steps."""
    lines: list[str] = []
    for job in slurm.jobs:
        record = slurm.records.get(job.id)
        if record is None:
            continue
        lines += [f"{job.id}|bringup-{job.request.check}|{record}", f"{job.id}.batch|batch|{record}"]
        lines += [f"{job.id}.{step}|true|{record}" for step in range(job.request.steps)]
    return lines


def show_queue(slurm: SimulatedSlurm) -> list[str]:
    """Return the lines of `squeue -o '%j|%i|%T|%r'`."""
    return [f"bringup-{job.request.check}|{job.id}|{job.state}|{job.reason}" for job in slurm.queue()]


def show_nodes(slurm: SimulatedSlurm) -> tuple[list[str], list[str]]:
    """Return the lines of `sinfo -o '%T|%G|%N'` and of `sinfo -R -o '%E|%N'`."""
    shown = [f"{node.state}|{node.gres or '(null)'}|{node.name}" for node in slurm.nodes.values()]
    return shown, [f"{node.reason}|{node.name}" for node in slurm.nodes.values() if node.reason]
