"""Judges the etcd member of one server: connected to the others, with a fast disk and a stable leader.

A slow disk shows here first: etcd answers and the node is Ready, but under load leaders change and the API stalls.
"""

from collections.abc import Iterator

from steps.contract.verdict import FailureClass
from steps.stages.rke2.contract import Etcd, EtcdLimits
from steps.stages.shared.finding import Finding, fail, unknown

QUARTER_HOUR = 900.0
_DATA = "/var/lib/rancher/rke2/server/db"


def findings(name: str, etcd: Etcd | None, want: EtcdLimits, servers: int, planned: int) -> Iterator[Finding]:
    """Yield the problems of server `name`'s etcd, the worst first. `servers` counts the ready ones, `planned` those of the plan."""
    ask = f"ask it by hand: curl http://127.0.0.1:2381/health on {name}, and read /var/log/pods/kube-system_etcd-{name}*"
    if etcd is None:
        yield unknown(FailureClass.HEALTH, "etcd did not tell its metrics on 127.0.0.1:2381", "an etcd member that answers", ask)
        return
    if not etcd.healthy or not etcd.has_leader:
        problem = "etcd has no leader" if etcd.healthy else f"etcd says that it is not healthy {etcd.reason}".rstrip()
        yield unknown(FailureClass.HEALTH, problem, "a healthy member with a leader", ask)
    if etcd.learner is not False:
        problem = "etcd is a learner" if etcd.learner else "etcd does not tell whether it is a learner"
        yield unknown(FailureClass.HEALTH, problem, "a voting member", f"wait until {name} has caught up")
    if etcd.members < servers:
        step = f"see whether the other servers reach port 2380 of {name}, and it theirs"
        seen = f"etcd is connected to {etcd.members} of {servers} members, itself included"
        yield unknown(FailureClass.DEPENDENCY, seen, "all", step)
    yield from _membership(name, etcd, planned)
    yield from _disk(name, etcd, want)
    yield from _leader(name, etcd, want)


def _membership(name: str, etcd: Etcd, planned: int) -> Iterator[Finding]:
    """Yield a failure if etcd has more members than the plan has servers.

    A member whose server is gone counts for the quorum until somebody removes it; one more loss can then stop etcd.
    """
    if etcd.known is None:
        seen = "etcd does not tell how many members it has (etcd_network_known_peers)"
        yield unknown(FailureClass.HEALTH, seen, f"{planned}", f"ask it by hand: curl http://127.0.0.1:2381/metrics on {name}")
    elif etcd.known > planned:
        step = f"`kubectl -n kube-system exec etcd-{name} -- etcdctl member list` names them; remove the one that has no server"
        seen = f"etcd counts {etcd.known} members, for {planned} servers in the plan: one that is gone still counts for its quorum"
        yield fail(FailureClass.HEALTH, seen, f"{planned} members", step)


def _disk(name: str, etcd: Etcd, want: EtcdLimits) -> Iterator[Finding]:
    expected = f"at most {want.fsync_p99 * 1000:g} ms (rke2.etcd_fsync_ms; etcd's FAQ advises 10 ms)"
    if etcd.fsync_p99 is None or etcd.fsyncs < want.fsyncs:
        seen = f"etcd has written its log {etcd.fsyncs} times only, too few to tell how fast its disk is"
        yield unknown(FailureClass.PERFORMANCE, seen, f"at least {want.fsyncs} times", "run the stage again after some minutes")
    elif etcd.fsync_p99 > want.fsync_p99:
        seen = f"the 99th percentile of etcd's {etcd.fsyncs} fsyncs since its start is {etcd.fsync_p99 * 1000:.3g} ms"
        step = f"put {_DATA} of {name} on an NVMe disk or SSD of its own, and see what else writes there"
        yield fail(FailureClass.PERFORMANCE, seen, expected, step)


def _leader(name: str, etcd: Etcd, want: EtcdLimits) -> Iterator[Finding]:
    age = max(etcd.read - etcd.started, 0.0)
    if not etcd.started or not etcd.read:
        yield unknown(FailureClass.HEALTH, "etcd does not tell since when it runs", "a start time", f"see the clock of {name}")
        return
    # the counter covers the whole life of the process, so the limit grows with its age
    allowed = want.leader_changes * max(age / QUARTER_HOUR, 1.0)
    if etcd.leader_changes > allowed:
        seen = f"etcd saw {etcd.leader_changes} changes of its leader in {age:.0f} s"
        expected = f"at most {want.leader_changes} in a quarter of an hour"
        step = f"see the round trip time and losses between the servers, and the disk and load of {name}"
        yield fail(FailureClass.HEALTH, seen, expected, step)
