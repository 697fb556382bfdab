"""SIGTERM and SIGINT as a wish to stop: a play ends in order, with its children, and says what it had seen."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """While entered, the two signals set `requested` and call what was registered; before and after, they do what they did.

    Outside the main thread Python lets nobody handle signals; there `request` is the only way.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, object] = {}
        self._call: Callable[[], object] | None = None

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]  # what signal() returned, it takes back

    def request(self) -> None:
        """Ask the play to stop."""
        self.requested = True
        if self._call is not None:
            self._call()

    def on_request(self, call: Callable[[], object]) -> None:
        """Call this when a stop is asked for: it must end what the play waits for."""
        self._call = call

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.request()
