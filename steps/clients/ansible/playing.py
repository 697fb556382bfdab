"""The Ansible client: plays one playbook on some hosts and returns the outcome of each host.

Real hosts are reached over SSH by ansible-runner. If the environment names a rehearsal's simulator, the same request goes there,
and its events take the same way to the result. Tasks do not say which transport is used, so their digests are equal.
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
from steps.clients.ansible.simulated_plays import SimulatedTransport
from steps.clients.ansible.ssh_plays import SshTransport
from steps.clients.ansible.stop import Stop
from steps.clients.environment import SIMULATOR, SIMULATOR_PIN, SIMULATOR_TOKEN
from steps.contract.host_play import PlayEvent, PlayRequest, PlayResult, PlayStatus
from steps.errors import BadTask, Temporary


class Transport(Protocol):
    """A way to run a play on hosts: over SSH, or on simulated hosts."""

    name: str

    def stream(self, request: PlayRequest, feed: Callable[[object], None], stop: Stop) -> tuple[PlayStatus, str]:
        """Play to the end and pass every event to `feed` as it comes. Return status and, if it matters, Ansible's last output."""


def play(
    request: PlayRequest,
    *,
    on_event: Callable[[PlayEvent], object] | None = None,
    events_file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> PlayResult:
    """Run a playbook on its hosts, and once more on those with a temporary failure or without a turn.

    Every event goes to `on_event` and, as a line of JSON, to `events_file`, as it comes. A failed host is an outcome, not an error.
    SIGTERM and SIGINT end the play with all its children; the result then is `cancelled`. Raises BadTask for a request that cannot
    be played (unknown playbook, unusable host name, missing key), Unreachable if a simulator does not answer, Temporary if this
    machine lacks resources.
    """
    environ = os.environ if environ is None else environ
    simulator, token, pin = (environ.get(name, "") for name in (SIMULATOR, SIMULATOR_TOKEN, SIMULATOR_PIN))
    transport: Transport = SimulatedTransport(simulator, token, pin) if simulator else SshTransport()
    with ExitStack() as stack:
        stop = stack.enter_context(Stop())
        # without a buffer, so that a killed step leaves each event that came
        lines = stack.enter_context(events_file.open("ab", buffering=0)) if events_file is not None else None

        def hand_on(event: PlayEvent) -> None:
            if lines is not None:
                lines.write(msgspec.json.encode(event) + b"\n")
            if on_event is not None:
                on_event(event)

        result = _once(transport, request, hand_on, stop)
        second_try = retry.remaining_play(request, result)
        while second_try is not None and not stop.requested:
            result = retry.join_outcomes(result, _once(transport, second_try, hand_on, stop))
            second_try = retry.remaining_play(request, result, second_try)
        return result


def _once(transport: Transport, request: PlayRequest, hand_on: Callable[[PlayEvent], None], stop: Stop) -> PlayResult:
    played = [host.name for host in request.hosts]
    others = [name for host in request.helpers if host.name not in played for name in (host.name, host.address)]
    ledger = Ledger(played, others, marked=workspace.marks_ends(request.playbook))
    started = time.time()
    ended, last_output = transport.stream(request, lambda raw: hand_on(ledger.feed(raw)), stop)
    # no event of any host: the playbook did not load, or Ansible could not start
    if ended is PlayStatus.FAILED and not ledger.seen:
        last_output = f"playbook {request.playbook} did not start: {last_output}"
        raise Temporary(last_output) if failures.is_of_controller(last_output) else BadTask(last_output)
    outcomes = ledger.outcomes(ended)
    return PlayResult(
        playbook=request.playbook,
        status=retry.play_status(ended, outcomes),
        hosts=outcomes,
        transport=transport.name,
        started=started,
        finished=time.time(),
        message="" if ledger.complete else last_output or _CUT_OFF.get(ended, "the play ended without its statistics"),
    )


_CUT_OFF = {
    PlayStatus.TIMEOUT: "the play took longer than it may, or was silent for too long",
    PlayStatus.CANCELLED: "the play was cancelled by a signal",
}
