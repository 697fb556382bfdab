"""Which hosts of a play are played once more, and what both plays come to: only temporary failures are worth a second try; pure.

A wrong key, password or package stays wrong. A host that hung has had its time, and the others would wait for it again. Hosts that
Ansible never came to, because it ends a playbook with a batch that fails, have their turn as often as that happens.
"""

from typing import Final

import msgspec

from steps.contract.play import FailureKind, HostOutcome, HostStatus, PlayRequest, PlayResult, PlayStatus

TEMPORARY: Final = frozenset(
    {
        FailureKind.NETWORK,
        FailureKind.HELPER,
        FailureKind.SSH_PROXY,
        FailureKind.PACKAGE_LOCK,
        FailureKind.CONTROLLER,
        FailureKind.NO_TURN,
    }
)
"""A host that reboots or whose switch converges, a proxy before SSH that starts anew, a package manager that the machine's own
updates hold, Ansible itself, which the kernel may have killed for memory, and where others failed and nothing was wrong here."""

MOST_TRIES: Final = 8
"""Plays at most: where hosts drop out one after another all day, the next run goes on."""

SHORTEST: Final = 15
"""Seconds: with less time left a second try could not tell more than the first."""


def rest(request: PlayRequest, result: PlayResult, last: PlayRequest | None = None) -> PlayRequest | None:
    """The play of what failed for now; None where nothing did, or its time is up. Plays are idempotent, hence begin anew. `last` is
    the play of this kind that there was already: after it only hosts without a turn are left, and fewer from play to play.

    Servers that need no second try become helpers, who are only asked: a first server that is played again must find their cluster.
    Where hosts go together, those after one that failed have not had their turn: all are played again, but not after a failure that
    stays, which is to stop them.
    """
    left = int(request.timeout_seconds - (result.finished - result.started))
    kinds = TEMPORARY if last is None else {FailureKind.NO_TURN}
    names = {one.host for one in result.hosts if one.kind in kinds}
    tries = max(one.tries for one in result.hosts)
    if last is not None and (request.together or len(names) >= len(last.hosts) or tries >= MOST_TRIES):
        return None
    if not names or left < SHORTEST or result.status not in (PlayStatus.OK, PlayStatus.FAILED):
        return None
    if request.together:
        lasting = any(one.status is not HostStatus.OK and one.host not in names for one in result.hosts)
        return None if lasting else msgspec.structs.replace(request, timeout_seconds=left)
    hosts = tuple(host for host in request.hosts if host.name in names)
    servers = tuple(host for host in request.hosts if host.name not in names and "server" in host.groups)
    return msgspec.structs.replace(request, hosts=hosts, helpers=(*request.helpers, *servers), timeout_seconds=left)


def joined(first: PlayResult, second: PlayResult) -> PlayResult:
    """One outcome a host: the second where it came to an end there, with what both plays changed. `first` may be one of several."""
    later = {one.host: one for one in second.hosts}
    hosts = tuple(_outcome(one, later.get(one.host)) for one in first.hosts)
    cut_off = second.status in (PlayStatus.TIMEOUT, PlayStatus.CANCELLED)
    fine = all(one.status is HostStatus.OK for one in hosts)
    status = second.status if cut_off else PlayStatus.OK if fine else PlayStatus.FAILED
    message = "" if status is PlayStatus.OK else first.message or second.message
    return msgspec.structs.replace(first, hosts=hosts, status=status, finished=second.finished, message=message)


def _outcome(first: HostOutcome, second: HostOutcome | None) -> HostOutcome:
    cut_off = second is not None and second.status is HostStatus.CANCELLED and second.kind is not FailureKind.NO_TURN
    if second is None:
        return first
    both = {"done": first.done + second.done, "changed": first.changed + second.changed, "tries": first.tries + second.tries}
    if cut_off and first.status is not HostStatus.CANCELLED:
        return msgspec.structs.replace(first, **both)
    facts = {} if second.facts else {"facts": first.facts, "facts_from": first.facts_from, "facts_to": first.facts_to}
    return msgspec.structs.replace(second, **both, **facts)
