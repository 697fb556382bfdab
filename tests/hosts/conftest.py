"""Fresh SSH hosts for each test; where this machine cannot make them, the reason by name."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hostlab import lab, needs
from hostlab.census import census
from hostlab.waiting import until

PLAYS_OF_OTHERS_SECONDS = 30.0
"""Tests beside this tier play too, each for a few seconds."""

Up = Callable[..., lab.Lab]


@pytest.fixture(scope="session")
def able() -> Iterator[None]:
    """Skip the tier where it cannot run (where it must run, that is a failure); at its end this machine is as it was."""
    reasons = needs.missing()
    if reasons and os.environ.get("CI") == "true":
        pytest.fail("hosts tier: " + "; ".join(reasons), pytrace=False)
    if reasons:
        pytest.skip("hosts tier: " + "; ".join(reasons))
    lab.down()
    before = census()
    yield
    until(lambda: census() == before, PLAYS_OF_OTHERS_SECONDS)
    assert census() == before, "the tier left something on this machine"


@pytest.fixture
def up(able: None) -> Iterator[Up]:
    """Makes hosts, and removes them after the test."""
    lab.down()
    yield lab.up
    lab.down()
