"""Waiting for a condition, with an end."""

import socket
import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float, *, every: float = 0.02) -> bool:
    """Look again and again until the condition holds; False where it did not in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True


def listens(address: str, port: int) -> bool:
    """Return True if somebody accepts connections at an address and port."""
    with socket.socket() as asking:
        return asking.connect_ex((address, port)) == 0
