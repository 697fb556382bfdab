"""What all tests share: the processes that they start behave as a person's do, and the longest files come first.

Started processes keep compiled modules: hundreds of commands, steps and simulated clusters are started, and where
`PYTHONDONTWRITEBYTECODE` is set, as in many images, each would compile all that it imports anew. And Ctrl-C ends them: what a
script starts in the background ignores SIGINT, and hands that on.
"""

import os
import signal
import sys

import pytest

FIRST = ("test_last_stages.py", "test_first_stages.py", "test_whole_rehearsals.py", "test_healthy_seeds.py", "test_second_run.py")
"""Sweeps of minutes: where two processes test side by side, neither is left with one at the end."""

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the order of `FIRST`; the others behind, as they were."""
    order = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(item.path.name, len(FIRST)))
