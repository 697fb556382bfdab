"""Repeats a request to a server whose first try has failed."""

from collections.abc import Callable
from typing import Any, TypeVar

from steps.errors import Unreachable

Result = TypeVar("Result")


def after_failure(call: Callable[[], Result], first: Unreachable, *, stop: Any, wait: Any) -> Result:
    """Repeat a call whose first try failed with `first` while it raises Unreachable; return its result or raise its last error.

    `stop` and `wait` are rules of tenacity. It is imported here, on a failure alone, because each step is a process of its own.
    """
    import tenacity

    retrying = tenacity.Retrying(retry=tenacity.retry_if_exception_type(Unreachable), stop=stop, wait=wait, reraise=True)
    for attempt in retrying:
        with attempt:
            if attempt.retry_state.attempt_number == 1:
                raise first
            return call()
    raise AssertionError("tenacity re-raises the last error")
