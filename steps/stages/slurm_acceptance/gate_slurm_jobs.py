"""Checks of gate slurm_acceptance/jobs: answers of nodes, the batch job, scripts around jobs, drain and resume, the queue."""

from collections.abc import Iterator
from typing import Final

from steps.contract.verdict import FailureClass, by_cause
from steps.stages.shared import gate_slurm_states
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.shared.slurm_states import DRAINED
from steps.stages.slurm_acceptance.contract import BatchRecord, JobsExpectation, JobsObservation, NodeAnswer

_RUNTIME, _INPUT, _HEALTH = FailureClass.RUNTIME, FailureClass.INPUT, FailureClass.HEALTH
_DONE: Final = "COMPLETED 0:0"
_AGAIN: Final = "run the job by hand: srun --nodelist={}"


def node_finding(name: str, seen: JobsObservation, want: JobsExpectation) -> Finding | None:
    """Return the first problem of a node, or None if its answer is complete and right."""
    if problem := seen.failed.get(name):
        return fail(_RUNTIME, f"srun reports {problem}", "a job that runs there", _AGAIN.format(name))
    answers = [answer for answer in seen.answers if answer.node == name]
    if len(answers) != 1:
        number = f"{len(answers)} answers" if answers else "no answer"
        first = by_cause(seen.errors)[:1]
        cause = f": {first[0].cause}" if first and not answers else ""
        return unknown(_RUNTIME, f"{number} of the job on all nodes{cause}", "one answer of each node", _AGAIN.format(name))
    return next(
        (finding for finding in (*_identity(answers[0], seen), *_facts(answers[0], want), *_scripts(name, seen, want))), None
    )


def _identity(answer: NodeAnswer, seen: JobsObservation) -> Iterator[Finding]:
    """Yield what speaks against a node being a machine of its own."""
    if not answer.host or not answer.boot:
        yield unknown(_RUNTIME, "the node named neither host nor boot id", "both", "see the job's output")
    for other in seen.answers:
        if other.node != answer.node and answer.boot and other.boot == answer.boot:
            text = f"has the boot id of {other.node}: one machine runs both"
            yield fail(_INPUT, text, "distinct machines", "see NodeHostname and NodeAddr in slurm.conf (multiple slurmd)")


def _facts(answer: NodeAnswer, want: JobsExpectation) -> Iterator[Finding]:
    if answer.matches is None:
        yield unknown(_INPUT, "the node does not say if its slurm.conf is slurmctld's", "HASH_VAL", "scontrol show config there")
    elif not answer.matches:
        step = "distribute one slurm.conf to all nodes, restart slurmd there"
        yield fail(_INPUT, "slurm.conf of the node differs from slurmctld's", "the same file", step)
    if answer.skew is None:
        yield unknown(_RUNTIME, "the node did not tell its time", "seconds since the epoch", "see the job's output")
    elif abs(answer.skew) > want.most_skew:
        text = f"its clock is {answer.skew:+.0f} s off the login node's"
        yield fail(
            _INPUT, text, f"at most {want.most_skew:.0f} s", "see chronyc tracking there: munge refuses credentials after 300 s"
        )
    if want.gpus > 0:
        if answer.gpus != want.gpus:
            text = f"a job got {'no' if answer.gpus is None else answer.gpus} GPUs there"
            yield fail(FailureClass.HARDWARE, text, f"{want.gpus}", "compare Gres in slurm.conf, gres.conf and the devices")
        if answer.devices is not None and answer.devices != want.gpus:
            text = f"nvidia-smi lists {answer.devices} GPUs in a job there"
            yield fail(FailureClass.HARDWARE, text, f"{want.gpus}", "nvidia-smi -L and dmesg on the node")


def _scripts(name: str, seen: JobsObservation, want: JobsExpectation) -> Iterator[Finding]:
    """Yield what is missing of the proof that prolog and epilog ran, where they are configured."""
    configured = {"prolog": bool(seen.prolog), "epilog": bool(seen.epilog)}
    if want.scripts != "marks" or not any(configured.values()):
        return
    trace = next((trace for trace in seen.traces if trace.node == name), None)
    if trace is None:
        yield unknown(
            _RUNTIME, "no trace of prolog and epilog was read", "their marks", "see that the folder of --script-marks is right"
        )
        return
    for script, ran in (("prolog", trace.prolog), ("epilog", trace.epilog)):
        if configured[script] and not ran:
            text = f"{script} left no mark of an ended job"
            yield fail(_RUNTIME, text, f"a file {script}.JOBID", f"run the {script} by hand there, and see slurmd's log")


def findings(seen: JobsObservation, want: JobsExpectation) -> Iterator[Finding]:
    """Yield the problems of jobs that concern no single node, in the order in which they matter."""
    yield from _batch(seen.batch)
    configured = [name for name in ("prolog", "epilog") if getattr(seen, name)]
    if configured and want.scripts == "unstated":
        step = "name the folder where they leave marks with --script-marks, or leave it out with --waive-scripts"
        yield unknown(_INPUT, f"{' and '.join(configured)} configured, and nothing proves that they ran", "marks of a job", step)
    if seen.prolog is None or seen.epilog is None:
        yield unknown(_RUNTIME, "nothing says if prolog and epilog are configured", "`scontrol show config`", "run it here")
    if want.drain:
        yield from _trip(seen)
    if seen.remaining is None:
        yield unknown(_RUNTIME, "the queue was not read after the jobs", "no job of this run", "squeue --me")
    elif seen.remaining:
        step = f"scancel {' '.join(seen.remaining[:5])}"
        yield fail(_RUNTIME, f"jobs {', '.join(seen.remaining[:5])} of this run are still in the queue", "no job of this run", step)


def _batch(batch: BatchRecord | None) -> Iterator[Finding]:
    if batch is None or not batch.id:
        yield unknown(_RUNTIME, "the batch job on two nodes was not submitted", "a job id", "see the log of this task")
        return
    if not batch.accounted:
        step = "sacct: see that slurmdbd runs and slurmctld reaches it"
        yield fail(FailureClass.DEPENDENCY, f"job {batch.id} has no record in accounting", _DONE, step)
    elif batch.accounted != _DONE:
        yield fail(_RUNTIME, f"batch job {batch.id} ended as {batch.accounted}", _DONE, "see the log of this task")
    elif batch.recorded != 2:
        yield fail(_RUNTIME, f"job {batch.id} has {batch.recorded} nodes in accounting", "2", "sacct -j, slurmctld's log")
    elif not batch.writer or not batch.reader or batch.writer == batch.reader:
        text = f"its steps ran on {batch.writer or 'no node'} and {batch.reader or 'no node'}"
        yield fail(_RUNTIME, text, "one step on each of two nodes", "see the log of this task")
    elif not batch.read:
        text = f"{batch.reader} does not read what {batch.writer} wrote into the shared folder"
        yield fail(FailureClass.DEPENDENCY, text, "the same file on both", "mount the same file system on both nodes")
    elif not batch.listed:
        text = f"the login node does not see what {batch.writer} wrote into the shared folder"
        yield fail(FailureClass.DEPENDENCY, text, "the same file", "mount the same file system on login and compute nodes")


def _trip(seen: JobsObservation) -> Iterator[Finding]:
    trip = seen.trip
    if trip is None or not trip.node or not trip.before:
        yield unknown(_RUNTIME, "no node was drained", "a drain and a resume", "drain needs operator rights: sacctmgr show user")
    elif not DRAINED & set(trip.drained):
        text = f"{trip.node} is {'+'.join(trip.drained) or 'unknown'} after a drain"
        yield fail(_HEALTH, text, "drain", "scontrol update NodeName=… State=DRAIN by hand, as this user")
    elif gate_slurm_states.state(trip.resumed) is not None:
        text = f"{trip.node} is {'+'.join(trip.resumed) or 'unknown'} after a resume"
        yield fail(_HEALTH, text, "idle or allocated", f"scontrol update NodeName={trip.node} State=RESUME")


def notes(seen: JobsObservation, want: JobsExpectation) -> list[str]:
    """Return what was not checked, and why."""
    lines = []
    configured = [name for name in ("prolog", "epilog") if getattr(seen, name)]
    if configured and want.scripts == "waived":
        lines.append(f"not checked by --waive-scripts: that {' and '.join(configured)} ran")
    if seen.prolog == "" and seen.epilog == "":
        lines.append("no prolog and no epilog is configured")
    if not want.drain:
        lines.append("not checked without --allow-drain: drain and resume of a node")
    return lines
