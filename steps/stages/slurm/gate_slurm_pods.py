"""Judges pods that Slurm schedules for Kubernetes (SUNK's pod scheduler), and a pod that shares a node with them under the lock."""

from steps.contract.host_ranges import fold
from steps.contract.objects.checks import CheckPod
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.shared import gate_checks
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.slurm.contract import SlurmPodsExpectation, SlurmPodsObservation


def judge(gate: str, seen: SlurmPodsObservation, want: SlurmPodsExpectation) -> Verdict:
    """Return the verdict: all pods of the scheduler ended well on nodes of Slurm, and the pod beside them on one of these."""
    finding = _scheduled(seen, want) or _beside(seen)
    if finding is not None:
        return finding.verdict(gate)
    nodes, beside = fold(sorted({pod.node for pod in seen.scheduled})), seen.beside[0].node
    return passed(
        gate, f"{want.count} pods of scheduler {want.scheduler} ran on {nodes}, and a pod that tolerates the lock on {beside}"
    )


def _scheduled(seen: SlurmPodsObservation, want: SlurmPodsExpectation) -> Finding | None:
    expected = f"{want.count} pods that scheduler {want.scheduler} places on nodes of Slurm, and that end"
    if incomplete := gate_checks.wrong_indexes(seen.scheduled, want.count):
        return incomplete
    waits = next((pod for pod in seen.scheduled if not pod.node), None)
    if waits is not None:
        why = gate_checks.why(waits)
        state = f"scheduler {want.scheduler} has placed no pod {waits.name}: {why.text or 'without a reason'}"
        step = "read the log of slurm-scheduler: it refuses pods without requests, or with a grace period of KillWait - 5 s or more"
        return unknown(FailureClass.DEPENDENCY, state, expected, step)
    strange = next((pod for pod in seen.scheduled if pod.node not in seen.slurm_nodes), None)
    if strange is not None:
        step = "see which scheduler has this name: two of one name, or a release in another namespace"
        state = f"scheduler {want.scheduler} placed pod {strange.name} on {strange.node}, which runs no slurmd"
        return fail(FailureClass.INPUT, state, expected, step, final=True)
    silent = next((pod for pod in seen.scheduled if not _good(pod)), None)
    return gate_checks.silent(silent, (), expected, seen.namespace) if silent else None


def _beside(seen: SlurmPodsObservation) -> Finding | None:
    """Return the finding on the pod that tolerates the lock; None if it ended well on a node with a pod of Slurm."""
    expected = "a pod that tolerates the lock runs to its end beside pods of Slurm"
    pod = next(iter(seen.beside), None)
    if pod is None or not _good(pod):
        finding = gate_checks.silent(pod, seen.beside, expected, seen.namespace)
        evicted = "; SUNK's lock may have evicted it in spite of its toleration" if pod is not None and pod.ended else ""
        return Finding(
            status=finding.status,
            seen=f"beside pods of Slurm: {finding.seen}{evicted}",
            expected=expected,
            next_step=finding.next_step,
            failure_class=finding.failure_class,
        )
    if pod.node in {other.node for other in seen.scheduled}:
        return None
    step = "look at the pod's affinity: an admission policy may have changed it"
    return fail(FailureClass.RUNTIME, f"pod {pod.name} ran on {pod.node}, where no pod of Slurm ran", expected, step, final=True)


def _good(pod: CheckPod) -> bool:
    return pod.phase == "Succeeded" and bool(pod.report)
