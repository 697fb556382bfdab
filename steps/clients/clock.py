"""The target's clock: real time, or the simulated time of a rehearsal, as the environment says."""

import json
import time
from typing import Protocol

from steps.clients.environment import Environment
from steps.clients.simulator_access import simulator_pool


class Clock(Protocol):
    """The target's clock. Verbs read time and wait only through it, so that a rehearsal can simulate time."""

    def now(self) -> float:
        """Return seconds since the epoch."""

    def pause(self, seconds: float, deadline: float) -> None:
        """Let `seconds` pass. A simulated clock may jump to `deadline` when nothing can happen before it."""


class RealClock:
    """The clock of this machine."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def pause(self, seconds: float, deadline: float) -> None:
        """Sleep, but not past the deadline."""
        time.sleep(max(0.0, min(seconds, deadline - time.time())))


class SimulatedClock:
    """The clock of a rehearsal. A pause advances the simulated cluster at once, however long it is."""

    def __init__(self, url: str, token: str, pin: str = "") -> None:
        self._http = simulator_pool(token, pin)
        self._url = url.rstrip("/")
        self._after_pause: float | None = None

    def now(self) -> float:
        """Return simulated seconds since the epoch. The first call after a pause returns the time at the pause's end."""
        time_then, self._after_pause = self._after_pause, None
        return self._call("GET", "/clock", None) if time_then is None else time_then

    def pause(self, seconds: float, deadline: float) -> None:
        """Advance simulated time, and return once the simulated cluster has reacted to everything due by then."""
        # most callers look at the clock at once, and the answer has the time already
        self._after_pause = self._call("POST", "/clock/sleep", {"seconds": seconds, "deadline": deadline})

    def _call(self, method: str, path: str, body: dict[str, float] | None) -> float:
        data = None if body is None else json.dumps(body).encode()
        answer = self._http.request(method, self._url + path, body=data, timeout=600)
        if answer.status != 200:
            raise RuntimeError(f"simulated clock answered {answer.status}: {answer.data[:200]!r}")
        return float(json.loads(answer.data)["now"])


def clock_of(environment: Environment) -> Clock:
    """Return the simulated clock in a rehearsal, else this machine's."""
    if environment.simulator:
        return SimulatedClock(environment.simulator, environment.simulator_token, environment.simulator_pin)
    return RealClock()
