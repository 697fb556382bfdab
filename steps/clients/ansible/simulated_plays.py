"""Plays on simulated hosts: a rehearsal's simulator answers with ansible-runner's events, and Ansible does not run."""

import time
from collections.abc import Callable, Iterator

import msgspec

from steps import timeouts
from steps.clients.ansible.stop import Stop
from steps.clients.simulator_access import simulator_pool
from steps.contract.canonical import UNREADABLE_JSON, canonical
from steps.contract.host_play import PlayRequest, PlayStatus
from steps.errors import BadTask, StepError, Unreachable

LONGEST_LINE = 4 * 1024 * 1024
CHUNK = 65536


class SimulatedTransport:
    """Transport that posts the request to `URL/hosts/play` and reads one JSON event a line."""

    name = "simulated"

    def __init__(self, url: str, token: str, pin: str = "") -> None:
        self._url = url.rstrip("/") + "/hosts/play"
        self._token, self._pin = token, pin

    def stream(self, request: PlayRequest, feed: Callable[[object], None], stop: Stop) -> tuple[PlayStatus, str]:
        """Pass on the events until the simulator closes, a stop is requested, or time is up. Return status and message."""
        import urllib3

        pool = simulator_pool(self._token, self._pin)
        timeout = urllib3.Timeout(connect=timeouts.API_CONNECT, read=request.idle_timeout_seconds)
        until = time.monotonic() + request.timeout_seconds
        try:
            answer = pool.request("POST", self._url, body=canonical(request), timeout=timeout, preload_content=False)
            _refuse(answer)
            stop.on_request(answer.shutdown)
            # read1 returns whatever has arrived; stream() would wait for a whole chunk and delay the events
            for line in _lines(iter(lambda: answer.read1(CHUNK), b"")):
                feed(msgspec.json.decode(line))
                if time.monotonic() > until:
                    return PlayStatus.TIMEOUT, ""
        except urllib3.exceptions.ReadTimeoutError:
            return PlayStatus.TIMEOUT, "the simulator was silent for too long"
        except urllib3.exceptions.HTTPError as error:
            if not stop.requested:
                raise Unreachable(f"simulated hosts: {error}", hint="is the rehearsal's simulator still running?") from error
        except UNREADABLE_JSON as error:
            raise StepError(f"simulated hosts: not a line of JSON: {error}") from error
        finally:
            pool.clear()
        return (PlayStatus.CANCELLED if stop.requested else PlayStatus.OK), ""


def _refuse(answer: object) -> None:
    status = getattr(answer, "status", 0)
    if status == 200:
        return
    message = f"simulated hosts answered {status}"
    raise Unreachable(message) if status >= 500 or status == 429 else BadTask(message)


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())
        if len(rest) > LONGEST_LINE:
            raise StepError(f"simulated hosts: a line of more than {LONGEST_LINE} bytes")
    if rest.strip():
        yield rest
