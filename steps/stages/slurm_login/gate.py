"""Gate of slurm_login: every login pod runs the newest revision, and no update ends sessions by itself."""

from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.slurm_login.contract import LoginPod, PodsExpectation, PodsObservation

PODS = "slurm_login/pods"
ON_DELETE = "OnDelete"


def pods(seen: PodsObservation, want: PodsExpectation) -> Verdict:
    """Check strategy and status of the StatefulSet, and that each of its pods is of the newest revision and ready."""
    problem = _whole(seen) or next(filter(None, (_pod(pod, seen) for pod in seen.pods)), None) or _count(seen, want)
    if problem is not None:
        return problem.verdict(PODS)
    names = ", ".join(pod.name for pod in seen.pods)
    return passed(PODS, f"{names}: revision {seen.revision}, ready")


def _whole(seen: PodsObservation) -> Finding | None:
    if not seen.exists:
        step = "check the release slurm: login.replicas, and events of its namespace"
        return unknown(FailureClass.APPLY, "there is no StatefulSet of login pods", "one", step)
    if seen.strategy != ON_DELETE:
        state = f"login pods are updated by {seen.strategy or 'an unknown strategy'}, which ends sessions without asking anybody"
        return fail(FailureClass.INPUT, state, ON_DELETE, "set login.updateStrategy to OnDelete in the values of release slurm")
    if not seen.revision or seen.observed < seen.generation or not seen.generation:
        state = f"status is of generation {seen.observed}, spec of {seen.generation}"
        step = "see that kube-controller-manager runs"
        return unknown(FailureClass.HEALTH, state, "the newest generation, with its revision", step)
    return None


def _pod(pod: LoginPod, seen: PodsObservation) -> Finding | None:
    if pod.revision != seen.revision:
        state = f"{pod.name} is of the old revision {pod.revision or 'unknown'}"
        step = "see record replace for who is logged in there, or kubectl describe for what keeps the pod; then start the run again"
        return unknown(FailureClass.COMPARISON, state, f"revision {seen.revision}", step)
    if not pod.ready:
        why = f": {pod.trouble.reason} {pod.trouble.message}".rstrip() if pod.trouble else ""
        step = f"read the log of pod {pod.name}; nobody can log in there meanwhile"
        return unknown(FailureClass.HEALTH, f"{pod.name} of the new revision is not ready{why}", "ready", step)
    return None


def _count(seen: PodsObservation, want: PodsExpectation) -> Finding | None:
    names = {pod.name for pod in seen.pods}
    missing = [name for number in range(max(want.replicas, 1)) if (name := f"{want.name}-{number}") not in names]
    if not missing:
        return None
    step = "look at the StatefulSet's events: a deleted pod must come back"
    return unknown(FailureClass.HEALTH, f"there is no pod {', '.join(missing[:4])}", f"{want.replicas} login pods", step)
