"""Second try of a play: which hosts play again, and the joint result. Only temporary failures are retried. Pure.

A wrong key, password or package stays wrong. A host that hung has used its time, and the others would wait for it again. Hosts
without a turn, because Ansible ends a playbook with a batch that fails, are played as often as that happens.
"""

from typing import Final

import msgspec

from steps.contract.host_play import FailureKind, HostOutcome, HostStatus, PlayRequest, PlayResult, PlayStatus

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
"""Failure kinds worth a second try.

Examples are a host that reboots, a switch that converges, a proxy that restarts, a package manager locked by automatic updates,
Ansible killed for lack of memory, and hosts without a turn.
"""

MOST_TRIES: Final = 8
"""Largest number of plays. If hosts keep failing one after another, the next run continues."""

SHORTEST: Final = 15
"""Least remaining time in seconds for a second try."""


def remaining_play(request: PlayRequest, result: PlayResult, last: PlayRequest | None = None) -> PlayRequest | None:
    """Return a request to play again on the hosts that failed temporarily; None if there are none, or too little time is left.

    Plays are idempotent, so they start over. `last` is the previous second try: after it only hosts without a turn are left, fewer
    each time. Servers that need no second try become helpers, because a first server that is played again must find their cluster.
    With `together` all hosts are played again, but not after a lasting failure, which is meant to stop them.
    """
    seconds_left = int(request.timeout_seconds - (result.finished - result.started))
    kinds = TEMPORARY if last is None else {FailureKind.NO_TURN}
    names = {outcome.host for outcome in result.hosts if outcome.kind in kinds}
    tries = max(outcome.tries for outcome in result.hosts)
    if last is not None and (request.together or len(names) >= len(last.hosts) or tries >= MOST_TRIES):
        return None
    if not names or seconds_left < SHORTEST or result.status not in (PlayStatus.OK, PlayStatus.FAILED):
        return None
    if request.together:
        lasting = any(outcome.status is not HostStatus.OK and outcome.host not in names for outcome in result.hosts)
        return None if lasting else msgspec.structs.replace(request, timeout_seconds=seconds_left)
    hosts = tuple(host for host in request.hosts if host.name in names)
    # a first server that is played again must find the cluster of the others
    servers = tuple(host for host in request.hosts if host.name not in names and "server" in host.groups)
    return msgspec.structs.replace(request, hosts=hosts, helpers=(*request.helpers, *servers), timeout_seconds=seconds_left)


def join_outcomes(first: PlayResult, second: PlayResult) -> PlayResult:
    """Return the result of two plays: for each host the outcome of the second one if it ended there, with the changes of both."""
    later = {outcome.host: outcome for outcome in second.hosts}
    hosts = tuple(_outcome(outcome, later.get(outcome.host)) for outcome in first.hosts)
    status = play_status(second.status, hosts)
    message = "" if status is PlayStatus.OK else first.message or second.message
    return msgspec.structs.replace(first, hosts=hosts, status=status, finished=second.finished, message=message)


def play_status(ended: PlayStatus, outcomes: tuple[HostOutcome, ...]) -> PlayStatus:
    """Return the status of a play: `ended` if the play was cut off, else ok only if every host is ok."""
    if ended in (PlayStatus.TIMEOUT, PlayStatus.CANCELLED):
        return ended
    return PlayStatus.OK if all(outcome.status is HostStatus.OK for outcome in outcomes) else PlayStatus.FAILED


def _outcome(first: HostOutcome, second: HostOutcome | None) -> HostOutcome:
    cut_off = second is not None and second.status is HostStatus.CANCELLED and second.kind is not FailureKind.NO_TURN
    if second is None:
        return first
    both = {"done": first.done + second.done, "changed": first.changed + second.changed, "tries": first.tries + second.tries}
    # a second try that was cut off says less than the first one's end
    if cut_off and first.status is not HostStatus.CANCELLED:
        return msgspec.structs.replace(first, **both)
    facts = {} if second.facts else {"facts": first.facts, "facts_from": first.facts_from, "facts_to": first.facts_to}
    return msgspec.structs.replace(second, **both, **facts)
