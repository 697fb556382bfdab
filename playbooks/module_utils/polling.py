"""Polling on the host itself: a first attempt at once, then more after growing pauses, until time is up."""

from __future__ import annotations

import time
from typing import Iterator

FIRST, LONGEST, GROWTH = 0.5, 5.0, 1.5
"""First and longest pause in seconds, and the factor between pauses: a service that is starting must not be burdened."""


def attempts(seconds: float, first: float = FIRST, most: float = LONGEST) -> Iterator[float]:
    """Yield once an attempt the seconds since the first one, with pauses, until `seconds` have passed; 0 gives one attempt."""
    began = time.monotonic()
    pause = first
    yield 0.0
    while time.monotonic() < began + seconds:
        time.sleep(pause)
        pause = min(pause * GROWTH, most)
        yield time.monotonic() - began
