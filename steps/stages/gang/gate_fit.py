"""Judges the test gang that fits: every member is bound in time, and its container runs, ends with 0 and leaves its report.

A binding is a decision of the scheduler and no more: the kubelet can refuse the pod, and the container can fail to start. So only
containers that ran together are proof. See `steps/docs/facts/gpu.md`, Functional gate of a gang scheduler.
"""

from collections.abc import Iterator

from msgspec import structs

from steps.contract.objects.checks import CHECK_NAMESPACE
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.gang import gate_group
from steps.stages.gang.contract import FitExpectation, GangMember, GangObservation
from steps.stages.shared.finding import Finding, fail

FIT = "gang/functional"
_TRIES_AGAIN = "Pending"
"""Phase of a bound pod whose container waits with an error: the kubelet tries to start it again."""


def judge_fit(seen: GangObservation, want: FitExpectation) -> Verdict:
    """Pass if every member of the fitting gang was bound in time and ran to its end together with the others."""
    if problem := next(_findings(seen, want), None):
        return problem.verdict(FIT)
    took = max(member.bound for member in seen.members) - seen.since
    nodes = len({member.node for member in seen.members})
    ran = f"ran a CUDA kernel on {want.devices} each" if want.devices else "reported their nodes"
    text = f"a gang of {want.count} × {want.units} units was bound as a whole in {max(took, 0.0):.0f} s"
    return passed(FIT, f"{text}; all members ran together on {nodes} nodes and {ran}")


def _findings(seen: GangObservation, want: FitExpectation) -> Iterator[Finding]:
    yield from _failed(seen, want)
    bound = [member for member in seen.members if member.node and member.bound]
    complete = len(bound) >= want.count
    if not complete and (seen.free is None or seen.free < want.count * want.units):
        problem = f"{gate_group.count_text(seen)} units are free"
        yield gate_group.undecided(problem, f"{want.count * want.units}, so that the gang fits", "free GPUs")
    yield from gate_group.judge_group(seen, want.count, want.scheduler)
    if not complete:
        yield _waiting(seen, want, len(bound))
        return
    late = max(member.bound for member in bound) - seen.since
    if late > want.within_seconds:
        progress = f"{len(bound)} of {want.count} members bound after {late:.0f} s"
        step = gate_group.LOG[want.scheduler]
        yield fail(FailureClass.PERFORMANCE, progress, f"all within {want.within_seconds:.0f} s", step, final=True)
    yield from _running(seen, want, bound)
    for member in bound:
        yield from _report(member, want)
    yield from _own_devices(bound, want)
    yield from _apart(bound, want)


def _failed(seen: GangObservation, want: FitExpectation) -> Iterator[Finding]:
    """Yield a finding if a bound member has failed, or its container cannot start; a pod that failed never runs again."""
    lost = [member for member in seen.members if member.phase == "Failed" or member.exit_code not in (None, 0)]
    blocked = [member for member in seen.members if member.node and member.phase == _TRIES_AGAIN and member.reason]
    crashes = [member for member in seen.members if member.node and member.reason == "CrashLoopBackOff"]
    stuck = lost or blocked or crashes
    if not stuck:
        return
    first = stuck[0]
    code = f", exit code {first.exit_code}" if first.exit_code else ""
    why = f"{first.reason} {first.message}".strip() or "no reason is given"
    problem = f"{len(stuck)} of {want.count} members did not run, first {first.name} on {first.node or 'no node'}"
    problem += f": {first.phase or 'no phase'}{code}, {why}" + ("" if first.message else gate_group.event_text(seen))
    expected = "every member to start and to end with exit code 0"
    yield fail(FailureClass.RUNTIME, problem, expected, _describe(first), final=bool(lost))


def _waiting(seen: GangObservation, want: FitExpectation, bound: int) -> Finding:
    """Return the finding on a gang that is not bound as a whole yet: a fail after `within_seconds`, else inconclusive."""
    waiting = next((member for member in seen.members if not member.node and member.reason), None)
    why = f"; {waiting.name}: {waiting.reason} {waiting.message}".rstrip() if waiting else ""
    quota = gate_group.quota_of(want.count, want.units, want.quota)
    # the queue's own limit explains more than the scheduler's words about it
    queue = next(gate_group.judge_queue(seen, want.scheduler, quota), None) if seen.queue else None
    limit = f"; {queue.seen}, and the gang takes {quota}" if queue else ""
    state = f"{limit}{why}{gate_group.group_text(seen.group)}{gate_group.event_text(seen)}"
    problem = f"{bound} of {want.count} members bound after {gate_group.age(seen):.0f} s{state}"
    expected, step = f"all within {want.within_seconds:.0f} s", gate_group.next_step(seen, want.scheduler)
    if gate_group.age(seen) > want.within_seconds:
        # whoever is bound later is bound too late
        return fail(FailureClass.RUNTIME, problem, expected, queue.next_step if queue else step, final=True)
    return gate_group.undecided(problem, expected, step)


def _running(seen: GangObservation, want: FitExpectation, bound: list[GangMember]) -> Iterator[Finding]:
    """Yield a finding while a bound member's container has not ended: inconclusive for `run_seconds`, then a fail."""
    unfinished = [member for member in bound if not _has_run(member)]
    if not unfinished:
        return
    first = unfinished[0]
    state = f"{first.name} on {first.node} is {first.phase or 'in no phase'}"
    state += f" with exit code {first.exit_code}" if first.exit_code is not None else ""
    state += f", {first.reason} {first.message}".rstrip(", ") if first.reason else gate_group.event_text(seen)
    problem = f"{want.count - len(unfinished)} of {want.count} members ran to their end; {state}"
    expected = f"all within {want.run_seconds:.0f} s after they were bound"
    if seen.now - max(member.bound for member in bound) > want.run_seconds:
        yield fail(FailureClass.RUNTIME, problem, expected, _describe(first), final=True)
    else:
        yield gate_group.undecided(problem, expected, "wait, or see whether the image is still being pulled")


def _has_run(member: GangMember) -> bool:
    times = 0 < member.started <= member.ended
    return member.phase == "Succeeded" and member.exit_code == 0 and times


def _report(member: GangMember, want: FitExpectation) -> Iterator[Finding]:
    """Yield a finding if a member that ended left no report, or one that does not prove what the member should do."""
    report, where = member.report, f"{member.name} on {member.node}"
    node = report.get("node")
    if node != member.node:
        problem = f"{where} reports node {node}" if node else f"{where} ended with 0 and left no report"
        expected = "the report of its script, with the name of its node"
        yield fail(FailureClass.RUNTIME, problem, expected, _describe(member), final=True)
    begin, end = report.get("begin"), report.get("end")
    if not (isinstance(begin, int) and isinstance(end, int) and 0 < begin <= end):
        problem = f"{where} reports no time at which it ran"
        yield fail(FailureClass.RUNTIME, problem, "begin and end by the node's clock", _describe(member), final=True)
    if not want.devices:
        return
    uuids, done, error = report.get("uuids"), report.get("passed", 0), str(report.get("error", ""))
    devices = len(set(map(str, uuids))) if isinstance(uuids, list) else 0
    if devices != want.devices or done != want.devices:
        problem = f"{where}: a CUDA kernel ran on {done} of {devices} devices: {error}".rstrip(": ")
        step = "see whether device plugin and container toolkit give the pod its devices, and gpu_operator/functional"
        yield fail(FailureClass.RUNTIME, problem, f"a CUDA kernel on {want.devices}", step, final=True)


def _own_devices(bound: list[GangMember], want: FitExpectation) -> Iterator[Finding]:
    """Yield a finding if two members saw the same GPU: together they then had fewer GPUs than the gang was bound for."""
    holders: dict[str, GangMember] = {}
    for member in bound if want.devices and not want.shared else ():
        for uuid in member.report["uuids"]:
            other = holders.setdefault(str(uuid), member)
            if other is not member:
                problem = f"{member.name} on {member.node} and {other.name} on {other.node} saw the same device {uuid}"
                step = "see who else advertises or injects GPUs there: a second device plugin, or NVIDIA_VISIBLE_DEVICES=all"
                yield fail(FailureClass.COMPARISON, problem, "a device of its own for each member", step, final=True)


def _apart(bound: list[GangMember], want: FitExpectation) -> Iterator[Finding]:
    """Yield a finding unless there was a moment at which all members ran: a fail if the last one started too late after admission.

    Members that took turns on a few nodes were bound as a whole too, so without such a moment nothing shows that all have room.
    """
    admitted, last = min(member.bound for member in bound), max(bound, key=lambda member: member.started)
    first = min(bound, key=lambda member: member.ended)
    if last.started <= first.ended:
        return
    gap = last.started - first.ended
    problem = f"{last.name} on {last.node} started {gap:.0f} s after {first.name} on {first.node} had ended"
    delays = f"see what delays pods on {last.node}: image pull, sandbox"
    if last.started - admitted > want.within_seconds:
        expected = f"members that run together, or start within {want.within_seconds:.0f} s after the first was bound"
        yield fail(FailureClass.PERFORMANCE, problem, expected, delays, final=True)
    else:
        finding = gate_group.undecided(problem, "a moment at which all members run", f"{delays}; then run the check again")
        yield structs.replace(finding, final=True)  # every member has ended, so waiting shows nothing more


def _describe(member: GangMember) -> str:
    return f"kubectl -n {CHECK_NAMESPACE} describe pod {member.name}, and the kubelet's log on {member.node or 'its node'}"
