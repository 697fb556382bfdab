"""Waiting in place: look at once, then again after growing pauses, until time is up."""

from __future__ import annotations

import time
from typing import Iterator

FIRST, MOST, GROWTH = 0.5, 5.0, 1.5
"""Pauses in seconds: quick at first, then no burden to what is only starting."""


def rounds(seconds: float, first: float = FIRST, most: float = MOST) -> Iterator[float]:
    """Seconds since the first look, once for each look; who has seen enough leaves the loop. With 0 there is one look."""
    began = time.monotonic()
    pause = first
    yield 0.0
    while time.monotonic() < began + seconds:
        time.sleep(pause)
        pause = min(pause * GROWTH, most)
        yield time.monotonic() - began
