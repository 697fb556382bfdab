"""Rehearsals without faults and with random delays raise no alarm; the long sweep runs twenty-one more."""

from collections.abc import Callable
from pathlib import Path

import pytest

Healthy = Callable[[int, Path], list[str]]


@pytest.mark.parametrize("seed", [7, pytest.param(1234, marks=pytest.mark.long)])
def test_random_delays_raise_no_alarm(seed: int, tmp_path: Path, healthy: Healthy) -> None:
    assert not healthy(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
def test_twenty_healthy_rehearsals_raise_no_alarm(seed: int, tmp_path: Path, healthy: Healthy) -> None:
    assert not healthy(seed, tmp_path)
