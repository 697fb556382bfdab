"""The Ansible client: plays one playbook on some hosts and says what each host made of it.

Real hosts are reached over SSH by ansible-runner. Where the environment names a rehearsal's simulator, the same request goes there
instead, and its events take the same way to the result; task digests stay equal because nothing in a task says which.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import msgspec

from steps.clients.ansible import failures, retry, workspace
from steps.clients.ansible.events import Ledger
from steps.clients.ansible.over_ssh import SshTransport
from steps.clients.ansible.simulated import SimulatedTransport
from steps.clients.ansible.stop import Stop
from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN
from steps.contract.play import HostOutcome, HostStatus, PlayEvent, PlayRequest, PlayResult, PlayStatus
from steps.errors import BadTask, Temporary


class Transport(Protocol):
    """What carries a play to its hosts: hands on every event as it comes, and says how the play ended."""

    name: str

    def stream(self, request: PlayRequest, feed: Callable[[object], None], stop: Stop) -> tuple[PlayStatus, str]:
        """Play to the end; the second value is what Ansible printed last, where that matters."""


def play(
    request: PlayRequest,
    *,
    on_event: Callable[[PlayEvent], object] | None = None,
    events_file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> PlayResult:
    """Run a playbook on its hosts; those with a temporary failure are played once more, and no others, but for those that Ansible
    never came to.

    Every event goes to `on_event` and, as a line of JSON, to `events_file`, as it comes. A host that fails is an outcome, no
    error. SIGTERM and SIGINT end the play with all its children; the result then says `cancelled`. Raises BadTask for a request
    that cannot be played (no such playbook, unusable host name, missing key), Unreachable where a simulator does not answer,
    Temporary where this machine has no room for the play.
    """
    transport = _transport(os.environ if environ is None else environ)
    with ExitStack() as stack:
        stop = stack.enter_context(Stop())
        lines = stack.enter_context(events_file.open("ab", buffering=0)) if events_file is not None else None

        def hand_on(event: PlayEvent) -> None:
            if lines is not None:
                lines.write(msgspec.json.encode(event) + b"\n")
            if on_event is not None:
                on_event(event)

        result = _once(transport, request, hand_on, stop)
        again = retry.rest(request, result)
        while again is not None and not stop.requested:
            result = retry.joined(result, _once(transport, again, hand_on, stop))
            again = retry.rest(request, result, again)
        return result


def _once(transport: Transport, request: PlayRequest, hand_on: Callable[[PlayEvent], None], stop: Stop) -> PlayResult:
    played = [host.name for host in request.hosts]
    others = [name for host in request.helpers if host.name not in played for name in (host.name, host.address)]
    ledger = Ledger(played, others, marked=workspace.marks_ends(request.playbook))
    started = time.time()
    ended, said = transport.stream(request, lambda raw: hand_on(ledger.feed(raw)), stop)
    if ended is PlayStatus.FAILED and not ledger.seen:
        said = f"playbook {request.playbook} did not start: {said}"
        raise Temporary(said) if failures.is_of_controller(said) else BadTask(said)
    outcomes = ledger.outcomes(ended)
    return PlayResult(
        playbook=request.playbook,
        status=_status(ended, outcomes),
        hosts=outcomes,
        transport=transport.name,
        started=started,
        finished=time.time(),
        message="" if ledger.complete else said or _CUT_OFF.get(ended, "the play ended without its statistics"),
    )


_CUT_OFF = {
    PlayStatus.TIMEOUT: "the play took longer than it may, or was silent for too long",
    PlayStatus.CANCELLED: "the play was cancelled by a signal",
}


def _transport(environ: Mapping[str, str]) -> Transport:
    url = environ.get(SIMULATOR, "")
    return SimulatedTransport(url, environ.get(SIMULATOR_TOKEN, "")) if url else SshTransport()


def _status(ended: PlayStatus, outcomes: tuple[HostOutcome, ...]) -> PlayStatus:
    """A play is ok only if every host is; how it was cut off says more than that."""
    if ended in (PlayStatus.TIMEOUT, PlayStatus.CANCELLED):
        return ended
    return PlayStatus.OK if all(outcome.status is HostStatus.OK for outcome in outcomes) else PlayStatus.FAILED
