"""Judges RKE2's control plane: API server, etcd members, DNS and network plugin. The first problem is the verdict."""

from collections.abc import Iterator
from itertools import chain

from steps.contract.objects.charts import Workload
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.rke2.contract import ControlExpectation, ControlObservation, Server, StaticPod
from steps.stages.shared.finding import Finding, fail, unknown

GATE = "rke2/control"


def judge(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Run the checks from the API server upwards and return the first problem as the verdict."""
    checks = (_api, _servers, _etcd, _jobs, _workloads, _settled)
    if first := next(chain.from_iterable(check(seen, want) for check in checks), None):
        return first.verdict(GATE)
    names = ", ".join(wanted.rpartition(" ")[2] for wanted in want.workloads)
    return passed(GATE, f"/readyz is ok, {len(want.nodes)} of {len(want.nodes)} etcd members are healthy, {names} are complete")


def _api(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    if not want.nodes:
        yield unknown(FailureClass.INPUT, "no server is expected", "at least one", "check the fleet: it must list servers")
    # no answer is not a failed check, so the verdict stays open
    if seen.readyz is None:
        yield _open("/readyz did not say whether the API server is ready", "readyz check passed", "ask the API server by hand")
    elif seen.readyz:
        step = "read the API server's log on the servers"
        yield _open(f"/readyz is not ok: {', '.join(seen.readyz)}", "every check ok", step)


def _servers(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    by_name = {server.name: server for server in seen.servers}
    for name in want.nodes:
        server = by_name.get(name)
        if server is None:
            step = f"read journalctl -u rke2-server on {name}"
            yield _open(f"server {name} is not registered with the role control-plane", "all servers", step)
        elif not server.ready:
            yield _open(f"server {name} is not Ready", "every server Ready", f"read the kubelet's log on {name}")
        elif server.apiserver is None or not server.apiserver.ready:
            problem = "has no pod" if server.apiserver is None else "is not ready"
            step = f"read /var/log/pods/kube-system_kube-apiserver-{name}* on {name}"
            yield _open(f"kube-apiserver-{name} {problem}", "an API server on every server", step)


def _etcd(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    for server in seen.servers:
        yield from _member(server)
    if seen.stray_etcd:
        problem = f"etcd runs on hosts that are no servers: {', '.join(seen.stray_etcd)}"
        step = "remove the member (delete its Node), then run rke2-uninstall.sh on that host"
        yield fail(FailureClass.COMPARISON, problem, f"etcd members {', '.join(want.nodes)} alone", step)
    count = len(want.nodes)
    # an even number survives no more losses than one member less, and stays even by itself
    if count % 2 == 0:
        problem = f"etcd has {count} members, which survive the loss of no more of them than {count - 1} would"
        step = "bring back the server that was set aside (`bringup quarantine list`), replace it, or take one away"
        yield fail(FailureClass.INPUT, problem, "an odd number of servers", step, final=True)


def _member(server: Server) -> Iterator[Finding]:
    name = server.name
    if server.etcd is None or not server.etcd.ready:
        problem = "has no pod" if server.etcd is None else "is not ready"
        step = f"read /var/log/pods/kube-system_etcd-{name}* on {name}; too slow a disk is the usual cause"
        yield _open(f"etcd-{name} {problem}", "a healthy etcd member on every server", step)
    # RKE2 joins a new etcd member as a learner, which does not count for the quorum until it is promoted
    if not server.voter:
        problem = (
            f"etcd member {name} is no voter" if server.voter is False else f"server {name} does not tell whether it votes in etcd"
        )
        step = f"wait until {name} has caught up; if it stays a learner, remove its Node and join it again"
        yield _open(problem, "every member a voter (EtcdIsVoter is True)", step)


def _jobs(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    """Yield a problem for each of RKE2's install Jobs that failed or is not complete.

    Absent Jobs are no sign of a problem: people delete finished ones, and the workloads that they install are checked by name. A
    server that has just started applies the charts of its release anew, which may repair a failed Job, so the failure is not final
    then.
    """
    for job in seen.jobs:
        expected, step = "every part of RKE2 installed", f"kubectl -n kube-system logs job/{job.name}"
        if job.failed:
            final = not any(_settled(seen, want))
            yield fail(FailureClass.APPLY, f"Job {job.name} failed: {job.failed}", expected, step, final=final)
        elif not job.complete:
            yield unknown(FailureClass.APPLY, f"Job {job.name} is not complete", expected, step)


def _workloads(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    by_name = {f"{workload.kind} {workload.name}": workload for workload in seen.workloads}
    if not want.workloads:
        step = "name DNS and network plugin in the expectation"
        yield unknown(FailureClass.INPUT, "no workload of RKE2 is expected", "at least one", step)
    for name in want.workloads:
        workload = by_name.get(name)
        if workload is None:
            step = "see the helm-install-rke2-* Jobs in kube-system"
            yield unknown(FailureClass.DEPENDENCY, f"there is no {name}", name, step)
        elif not workload.settled(want.spare):
            yield _short(workload, want.spare)


def _settled(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    """Yield a problem for each API server or etcd pod that has just started, because it may be about to end again; checked last."""
    for server in seen.servers:
        for name, pod in (("kube-apiserver", server.apiserver), ("etcd", server.etcd)):
            problem = why_unsteady(pod, seen.now, want.settled_seconds, want.storm, want.calm_seconds) if pod else ""
            if problem:
                step = f"wait; where it goes on, read /var/log/pods/kube-system_{name}-{server.name}* on {server.name}"
                yield _open(f"{name}-{server.name} {problem}", "no fresh restart", step)


def _short(workload: Workload, spare: int) -> Finding:
    counts = f"{workload.ready} of {workload.desired} pods ready, {workload.updated} updated"
    forgiven = f" ({spare} may be missing by the quorum)" if spare and workload.kind == "DaemonSet" else ""
    step = f"kubectl -n kube-system describe {workload.kind.lower()} {workload.name}, and its pods"
    return _open(f"{workload.kind} {workload.name}: {counts}", f"all of them{forgiven}", step)


def _open(seen: str, expected: str, next_step: str) -> Finding:
    return unknown(FailureClass.HEALTH, seen, expected, next_step)


def why_unsteady(pod: StaticPod, now: float, settled: float, storm: int, calm: float) -> str:
    """Return why a pod has not run long enough since its last start; empty if it has.

    `now` is the target's clock in seconds since the epoch. A pod must have run for `settled` seconds; with `storm` or more
    restarts, for `calm` seconds.
    """
    needed = calm if pod.restarts >= storm else settled
    if not pod.started:
        return f"does not tell when it started ({pod.restarts} restarts)"
    age = max(now - pod.started, 0.0)
    return f"started {age:.0f} s ago, after {pod.restarts} restarts" if age < needed else ""
