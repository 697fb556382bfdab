"""Judges what jobs prove about a Slurm cluster: its controller, node records, partitions, QoS, topology, kinds of jobs."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from steps.contract import host_ranges
from steps.contract.host_ranges import fold
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.shared import gate_checks, gate_slurm_states
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.slurm.contract import (
    JobCheckName,
    JobsReport,
    PartitionState,
    SchedulingExpectation,
    SchedulingObservation,
    SlurmJob,
)

DONE = ("COMPLETED", "0:0")
JOBS: dict[JobCheckName, int] = {"array": 4, "dependency": 2, "het": 2, "exclusive": 2, "shared": 2}
"""Number of jobs of a check that has several; the others have one."""
ANSWERED: dict[JobCheckName, str] = {"home": "home read", "pyxis": "pyxis system", "login": "login key"}
"""Checks whose proof is an answer, and the answer's name."""
PURPOSE: dict[JobCheckName, str] = {
    "batch": "a batch job",
    "two": "a job on two nodes with two host names",
    "array": "a job array of four tasks",
    "dependency": "a job that waits for another one",
    "het": "a heterogeneous job",
    "steps": "a job with three overlapping steps",
    "memory": "a job that asks for more memory than a node has",
    "gpu": "a job with one GPU that may use one",
    "exclusive": "two exclusive jobs on one node",
    "shared": "two jobs with all CPUs of one node, which may share it",
    "prolog": "a job that reads the prolog's mark",
    "epilog": "a job that reads the mark of an earlier job's epilog",
    "home": "a file in the shared home, written on one node and read on another",
    "pyxis": "a job in a container",
    "login": "an SSH server of the login pods",
    "user": "a job of a plain user",
    "pmix": "an MPI job of two tasks on two nodes by PMIx",
    "metrics": "metrics of Slurm",
    "restart": "a job during a restart of slurmctld",
}


def judge(gate: str, seen: SchedulingObservation, want: SchedulingExpectation) -> Verdict:
    """Return the verdict on the report of check `slurm-jobs`: the first problem in the order of causes, or a pass."""
    if seen.report is None:
        what = "a report of the check's jobs"
        return gate_checks.silent(next(iter(seen.pods), None), (), what, seen.namespace).verdict(gate, final=True)
    problem = next(_problems(seen, seen.report, want), None)
    if problem is not None:
        # the check's jobs run once, so waiting changes nothing
        return problem.verdict(gate, final=True)
    jobs, untested = sum(job.state == DONE[0] for job in seen.report.jobs), tuple(_untested(seen.report, want))
    proven = [check for check in want.checks if check not in untested]
    text = f"{jobs} jobs completed; {len(proven)} checks: {', '.join(proven)}{_seen_gpus(seen.report)}"
    return passed(gate, text, notes=[f"not tested, {PURPOSE[check]}: {_NO_PMIX}" for check in untested])


_NO_PMIX = "Slurm's image has no plugin mpi/pmix"
_PMIX_MISSING = ("FAILED", "75:0")
"""State and exit code of the job of check `pmix` where the image of slurmd lacks the plugin."""


def _untested(report: JobsReport, want: SchedulingExpectation) -> Iterator[JobCheckName]:
    """Yield the checks that an image without their plugin rules out."""
    lacks = any(job.check == "pmix" and (job.state, job.exit_code) == _PMIX_MISSING for job in report.jobs)
    if "pmix" in want.checks and (lacks or "pmix missing" in report.answers):
        yield "pmix"


def _seen_gpus(report: JobsReport) -> str:
    """Return what the job with one GPU saw, as a further clause; empty if it wrote nothing."""
    devices, visible = _view_of_gpus(report)
    return f"; the job with one GPU saw devices {devices}, CUDA_VISIBLE_DEVICES {visible}" if devices or visible else ""


def _view_of_gpus(report: JobsReport) -> tuple[str, str]:
    """Return the number of devices and the CUDA_VISIBLE_DEVICES that the job with one GPU saw; empty if it wrote nothing."""
    comment = next((job.comment for job in report.jobs if job.check == "gpu" and job.comment), "")
    if not comment:
        return "", ""
    words = dict(part.partition(":")[::2] for part in comment.split(",", 1))
    return words.get("devices", "unknown"), words.get("visible", "unknown")


def _problems(seen: SchedulingObservation, report: JobsReport, want: SchedulingExpectation) -> Iterator[Finding]:
    yield from _controllers(report)
    yield from _stale(seen, report, want)
    yield from _partitions(seen, report, want)
    yield from _settings(report, want)
    yield from _topology(seen, report, want)
    yield from _none_submitted(seen, report, want)
    for check in want.checks:
        yield from _check(check, report, want)
    yield from _after(seen, report, want)


def _controllers(report: JobsReport) -> Iterator[Finding]:
    step = "read slurmctld's log"
    if not report.controllers:
        cause = report.errors[0].cause if report.errors else "scontrol ping names no controller"
        yield fail(FailureClass.DEPENDENCY, cause, "slurmctld primary UP", step)
    down = [answer for answer in report.controllers if not answer.endswith(" UP")]
    if down:
        yield fail(FailureClass.DEPENDENCY, f"scontrol ping: slurmctld {', '.join(down)}", "every slurmctld UP", step)


def _stale(seen: SchedulingObservation, report: JobsReport, want: SchedulingExpectation) -> Iterator[Finding]:
    """Yield findings unless each Slurm node is one pod on one Kubernetes node."""
    names = [node.name for node in report.nodes]
    stale = sorted(set(names) - set(seen.node_of))
    if stale:
        step = "see with `scontrol show node` since when they do not respond, then `scontrol delete nodename=NODE`"
        yield fail(FailureClass.COMPARISON, f"Slurm has records of {fold(stale)}, which no pod runs", "one pod for each node", step)
    places = [seen.node_of[name] for name in names if name in seen.node_of]
    twice = sorted({place for place in places if places.count(place) > 1}) if len(set(places)) < len(places) else []
    if twice:
        step = "delete the record of the older pod: scontrol delete nodename=NODE"
        yield fail(FailureClass.COMPARISON, f"Slurm has two nodes on {fold(twice)}", "one Slurm node for each node", step)
    missing = sorted(set(want.nodes) - set(places))
    if missing:
        seen_text = f"Slurm has no node on {fold(missing)}"
        yield fail(FailureClass.HEALTH, seen_text, "a Slurm node on each expected node", "read slurmd's log on the node")


# ---- settings ------------------------------------------------------------------------------------------------------------------


def _partitions(seen: SchedulingObservation, report: JobsReport, want: SchedulingExpectation) -> Iterator[Finding]:
    known = {partition.name: partition for partition in report.partitions}
    for name, groups in want.partitions.items():
        yield from _partition(name, known.get(name), seen, {node for node in want.nodes if want.group_of.get(node) in groups}, want)


def _partition(
    name: str, partition: PartitionState | None, seen: SchedulingObservation, nodes: set[str], want: SchedulingExpectation
) -> Iterator[Finding]:
    step = "compare the partitions in the values of the release slurm with scontrol show partition"
    if partition is None:
        yield fail(FailureClass.INPUT, f"Slurm has no partition {name}", f"partition {name}", step)
        return
    if partition.available != "up":
        resume = f"scontrol update partitionname={name} state=up"
        state = partition.available or "of unknown state"
        yield fail(FailureClass.HEALTH, f"partition {name} is {state}", "up", f"find who set it, then {resume}")
    wanted = want.oversubscribe.get(name, "")
    if wanted and _counted(partition.oversubscribe) != _counted(wanted):
        state = f"partition {name} has OverSubscribe {partition.oversubscribe or 'unknown'}"
        yield fail(
            FailureClass.INPUT, state, wanted, f"{step}; scontrol update partition changes it until slurmctld reads its file"
        )
    there = {seen.node_of.get(node, node) for node in partition.nodes}
    if missing := sorted(nodes - there):
        yield fail(FailureClass.INPUT, f"partition {name} lacks {fold(missing)}", f"{len(nodes)} nodes by the plan", step)
    if others := sorted(there & set(want.nodes) - nodes):
        yield fail(FailureClass.INPUT, f"partition {name} has also {fold(others)}", f"{len(nodes)} nodes by the plan", step)


def _counted(rule: str) -> str:
    """Return a rule of sharing with the number of jobs that Slurm takes if the rule names none."""
    return f"{rule}:4" if rule in ("YES", "FORCE") else rule


def _settings(report: JobsReport, want: SchedulingExpectation) -> Iterator[Finding]:
    if missing := [name for name in want.qos if name not in report.qos]:
        step = "sacctmgr show qos, and sacctmgr add qos"
        yield fail(FailureClass.INPUT, f"the accounting database has no QoS {', '.join(missing)}", ", ".join(want.qos), step)
    types = {node.name: _gpu_types(node.gres) for node in report.nodes if node.gpus or node.gres}
    odd = [name for name, there in types.items() if there != {want.gres}] if want.gres else []
    if odd or (want.gres and not types):
        there = ", ".join(sorted(types[odd[0]])) if odd else ""
        seen = f"Slurm counts GPUs of type {there or 'unknown'}" + (f" on {fold(odd)}" if odd else "")
        step = "compare Gres in slurm.conf and gres.conf with the plan: jobs ask for this type"
        yield fail(FailureClass.INPUT, seen, f"gpu:{want.gres}", step)


def _gpu_types(gres: str) -> set[str]:
    """Return the types of GPU in a Gres: `gpu:h200:8(S:0-1)` → h200; empty for GPUs without a type."""
    entries = (entry.split(":") for entry in gres.split(","))
    return {parts[1] for parts in entries if parts[0] == "gpu" and len(parts) > 2 and not parts[1].isdigit()}


def _topology(seen: SchedulingObservation, report: JobsReport, want: SchedulingExpectation) -> Iterator[Finding]:
    step = "compare topology.conf with the plan, then scontrol reconfigure"
    for source, leaves in (("topology.conf", report.topology_file), ("scontrol show topology", report.topology)):
        for switch, text in want.topology.items():
            expected = set(host_ranges.expand(text))
            there = {seen.node_of.get(name, name) for name in leaves.get(switch, ())}
            # a node that is set aside may be missing in Slurm, never at another switch
            if missing := sorted((expected & set(want.nodes)) - there):
                yield fail(FailureClass.INPUT, f"{source}: switch {switch} lacks {fold(missing)}", fold(expected), step)
            if others := sorted(there - expected):
                yield fail(FailureClass.INPUT, f"{source}: switch {switch} has {fold(others)}", fold(expected), step)


def _none_submitted(seen: SchedulingObservation, report: JobsReport, want: SchedulingExpectation) -> Iterator[Finding]:
    """Yield a finding if the check found no idle node for its jobs: nodes that take none, else a cluster at work."""
    if report.jobs or report.refusals or not set(want.checks) - {*ANSWERED, "metrics"}:
        return
    for name, finding in _unusable(seen, report, want):
        state = f"the check submitted no job: {name} is in {finding.seen}"
        yield fail(finding.failure_class, state, finding.expected, finding.next_step)
    counts = Counter("+".join(node.states) or "of no known state" for node in report.nodes)
    states = ", ".join(f"{number} {state}" for state, number in counts.most_common(3)) or "no node is known"
    busy = f"the check submitted no job, since no partition had an idle node; afterwards: {states}"
    step = (
        "squeue shows whose jobs have the nodes: wait for their end, or reserve two nodes (scontrol create reservation), and resume"
    )
    yield unknown(FailureClass.DEPENDENCY, busy, "an idle node for the check's jobs", step)


# ---- jobs ----------------------------------------------------------------------------------------------------------------------


def _check(check: JobCheckName, report: JobsReport, want: SchedulingExpectation) -> Iterator[Finding]:
    refusal, jobs = report.refusals.get(check), [job for job in report.jobs if job.check == check]
    if check in _untested(report, want):
        return
    if check == "memory":
        yield from _memory(refusal, jobs)
        return
    if check == "metrics":
        yield from _metrics(report, want)
        return
    if refusal is not None:
        failure_class = FailureClass.PERMISSION if check == "user" else FailureClass.RUNTIME
        yield fail(failure_class, f"Slurm refused {PURPOSE[check]}: {refusal}", "its job id", _STEPS.get(check, _READ))
    elif check in ANSWERED:
        yield from _answer(check, report, want)
    elif len(jobs) != JOBS.get(check, 1):
        seen = f"{len(jobs)} jobs of check {check} are known to Slurm ({PURPOSE[check]})"
        yield fail(FailureClass.RUNTIME, seen, f"{JOBS.get(check, 1)}", _READ)
    else:
        yield from _ended(check, jobs, report, want)


_READ = "read the check pod's log in the record, and slurmctld's log about the job"
_STEPS: dict[str, str] = {
    "user": "slurmctld must resolve the user's id as the login pod does: give all pods the same directory or accounts",
    "gpu": "compare gres.conf and cgroup.conf (ConstrainDevices) with the node's devices",
    "two": "see that slurmd pods resolve and reach each other: DNS, network policies, SrunPortRange",
    "het": "het jobs need the backfill scheduler: SchedulerType=sched/backfill",
    "prolog": "see that slurm.conf names the planned Prolog, and read slurmd's log",
    "epilog": "see that slurm.conf names the planned Epilog, and read slurmd's log",
    "home": "see that both slurmd pods mount the shared home",
    "pmix": "run srun -N 2 --mpi=pmix hostname by hand: tasks need free ports between slurmd pods, and one version of PMIx",
    "restart": "see that slurmctld keeps its state on its volume (StateSaveLocation), and that nothing cancels jobs",
}


def _answer(check: JobCheckName, report: JobsReport, want: SchedulingExpectation) -> Iterator[Finding]:
    answer, step = report.answers.get(ANSWERED[check]), _STEPS.get(check, _READ)
    expected = {"home": report.answers.get("home written"), "pyxis": want.container}.get(check) or ""
    if check == "home" and not expected:
        cause = report.errors[0].cause if report.errors else "no job could write there"
        yield fail(FailureClass.RUNTIME, f"not proven, {PURPOSE[check]}: {cause}", "a file in the shared home", step)
    elif not answer or expected not in answer or (check == "home" and answer != expected):
        cause = f"got {answer!r}" if answer else report.errors[0].cause if report.errors else "there is no answer"
        yield fail(FailureClass.RUNTIME, f"not proven, {PURPOSE[check]}: {cause}", expected or "an answer", step)


def _ended(check: JobCheckName, jobs: list[SlurmJob], report: JobsReport, want: SchedulingExpectation) -> Iterator[Finding]:
    step = _STEPS.get(check, _READ)
    for job in jobs:
        if (job.state, job.exit_code) != DONE:
            state = f"{job.state or 'of unknown state'} {job.exit_code}".strip() + (f", {job.reason}" if job.reason else "")
            state += f"; {job.comment}" if job.comment else ""
            yield fail(FailureClass.RUNTIME, f"{PURPOSE[check]}: job {job.id} is {state}", "COMPLETED 0:0", step)
        elif not (job.nodes and job.start and job.end):
            yield fail(FailureClass.RUNTIME, f"{PURPOSE[check]}: Slurm does not tell where and when job {job.id} ran", "both", step)
        elif job.restarts:
            seen = f"{PURPOSE[check]}: job {job.id} was started {job.restarts + 1} times"
            yield fail(FailureClass.RUNTIME, seen, "one start", step)
    yield from _shape(check, jobs, report)
    if check == "gpu" and want.isolated:
        yield from _isolated(report)
    if want.accounting:
        yield from _records(check, jobs)


def _shape(check: JobCheckName, jobs: list[SlurmJob], report: JobsReport) -> Iterator[Finding]:
    """Yield what is wrong about where and when a check's completed jobs ran."""
    step = _STEPS.get(check, _READ)
    if check in ("two", "pmix") and len(set(jobs[0].nodes)) != 2:
        yield fail(FailureClass.RUNTIME, f"a job for two nodes ran on {fold(jobs[0].nodes) or 'none'}", "two nodes", step)
    if check in ("exclusive", "dependency") and not _in_turn(jobs):
        yield fail(FailureClass.RUNTIME, f"{PURPOSE[check]} ran at the same time", "one after the other", step)
    if check in ("exclusive", "shared") and len({job.nodes for job in jobs}) != 1:
        yield fail(FailureClass.RUNTIME, f"{PURPOSE[check]} ran on different nodes", "one node", step)
    if check == "shared" and _in_turn(jobs):
        seen, step = f"{PURPOSE[check]}, ran one after the other", "compare OverSubscribe of the partition with the plan"
        yield fail(FailureClass.INPUT, seen, "both at the same time", step)
    if check == "restart":
        yield from _restarted(report)


def _isolated(report: JobsReport) -> Iterator[Finding]:
    """Yield a finding unless the job with one GPU saw one device: CUDA_VISIBLE_DEVICES alone keeps no job from those of others."""
    devices, visible = _view_of_gpus(report)
    if devices == "1":
        return
    expected, step = "one device", "see that slurm.conf has TaskPlugin=task/cgroup, and read slurmd's log about cgroup.conf"
    if not devices.isdecimal():
        yield unknown(FailureClass.RUNTIME, "the job with one GPU does not say which devices it saw", expected, step)
        return
    seen = (
        f"a job with one GPU saw {devices} devices (CUDA_VISIBLE_DEVICES {visible}), although cgroup.conf has ConstrainDevices=yes"
    )
    yield fail(FailureClass.RUNTIME, seen, expected, step)


def _in_turn(jobs: Iterable[SlurmJob]) -> bool:
    """Return True if no two jobs ran at the same time; unknown times count as the same time."""
    ordered = sorted(jobs, key=lambda job: job.start)
    return all(earlier.end and later.start and later.start >= earlier.end for earlier, later in pairwise(ordered))


def _restarted(report: JobsReport) -> Iterator[Finding]:
    boots = report.boots
    if len(boots) != 2 or "none" in boots or boots[0] == boots[1]:
        seen = f"slurmctld did not come back after its end (boot times {', '.join(boots) or 'unknown'})"
        step = "see that the container of slurmctld is started again, and read its log"
        yield fail(FailureClass.HEALTH, seen, "a later boot time", step)


def _records(check: JobCheckName, jobs: Iterable[SlurmJob]) -> Iterator[Finding]:
    step = "read the logs of slurmctld (accounting_storage) and slurmdbd"
    for job in jobs:
        if job.accounted != " ".join(DONE):
            seen = f"accounting has {job.accounted or 'no record'} of job {job.id} ({PURPOSE[check]}), which completed"
            yield fail(FailureClass.DEPENDENCY, seen, "COMPLETED 0:0 in sacct", step)
        elif check == "steps" and job.steps < 3:
            yield fail(FailureClass.DEPENDENCY, f"accounting has {job.steps} steps of job {job.id}", "3 steps", step)


_HONEST = ("Resources", "BadConstraints", "ReqNodeNotAvail", "PartitionConfig", "Requested")
"""Beginnings of the reasons for which a job that asks for too much memory may wait."""


def _memory(refusal: str | None, jobs: list[SlurmJob]) -> Iterator[Finding]:
    """Yield a finding unless Slurm refused or kept waiting the job that asks for more memory than any node claims to have."""
    if refusal is not None and ("emory" in refusal or "node configuration" in refusal):
        return
    waits = any(job.state == "PENDING" and job.reason.strip("()").startswith(_HONEST) for job in jobs)
    if waits and all(job.state == "PENDING" for job in jobs):
        return
    state = refusal or ", ".join(f"{job.state} {job.reason}".strip() for job in jobs) or "neither refused nor queued"
    step = "compare RealMemory of the nodes with slurmd -C, and see that SelectTypeParameters has _Memory"
    yield fail(FailureClass.INPUT, f"{PURPOSE['memory']}: {state}", "refused, or PENDING for Resources", step)


def _metrics(report: JobsReport, want: SchedulingExpectation) -> Iterator[Finding]:
    """Yield findings unless Slurm serves each expected metric, and its values add up to what Slurm itself shows."""
    step = "read the log of what serves them (SUNK: the syncer, Slinky: slurmctld), and ask its endpoint with curl"
    served = report.metrics
    shown = {"nodes": len(report.nodes), "gpus": sum(node.gpus for node in report.nodes)}
    if not served:
        cause = report.answers.get("metrics silent") or "the endpoint serves no series slurm_…"
        yield fail(FailureClass.HEALTH, f"no metrics of Slurm: {cause}", ", ".join(want.metrics), step)
        return
    for name, what in want.metrics.items():
        total = served.get(name)
        if total is None:
            yield fail(FailureClass.HEALTH, f"{len(served)} metrics of Slurm, without {name}", name, step)
        elif total != shown[what]:
            seen = f"metric {name} adds up to {total}, Slurm shows {shown[what]} {what}"
            yield fail(FailureClass.COMPARISON, seen, "the same number", step)


def _after(seen: SchedulingObservation, report: JobsReport, want: SchedulingExpectation) -> Iterator[Finding]:
    """Yield what is left when all jobs have ended: jobs in the queue, or nodes that take no more jobs."""
    if report.remaining:
        names = ", ".join(report.remaining[:4])
        step = "scancel them; a job that stays CG waits for its node's epilog"
        yield fail(FailureClass.HEALTH, f"jobs of the check are still in the queue: {names}", "an empty queue", step)
    for name, finding in _unusable(seen, report, want):
        state = f"after the jobs, {name} is in {finding.seen}"
        yield fail(finding.failure_class, state, finding.expected, finding.next_step)


def _unusable(seen: SchedulingObservation, report: JobsReport, want: SchedulingExpectation) -> Iterator[tuple[str, Finding]]:
    """Yield the Slurm nodes on expected nodes that take no jobs, each with the finding that says why."""
    expected = frozenset(want.nodes)
    for node in report.nodes:
        finding = gate_slurm_states.state(node.states, node.reason) if seen.node_of.get(node.name) in expected else None
        if finding:
            yield node.name, finding
