"""Turns SIGTERM and SIGINT into a request to stop: a play ends in order, with its children, and reports what it had seen."""

import signal
import threading
from collections.abc import Callable
from types import TracebackType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """Context manager that handles SIGTERM and SIGINT: they set `requested` and call the registered function.

    The previous handlers are restored at the end. Outside the main thread Python allows no signal handlers; there `request` is the
    only way.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, object] = {}
        self._call: Callable[[], object] | None = None

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, lambda *_: self.request()) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]  # what signal() returned, it takes back

    def request(self) -> None:
        """Request a stop, as a signal does."""
        self.requested = True
        if self._call is not None:
            self._call()

    def on_request(self, call: Callable[[], object]) -> None:
        """Register a function to call when a stop is requested. It must end whatever the play waits for."""
        self._call = call
