"""A simulator on an emulated API server, both in this process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.rehearsal.simulator.harness import START, Make, User, hosts
from workflows.rehearsal.apiserver import RunningServer, serve_in_thread
from workflows.rehearsal.simulator.machines.simulated_fleet import SimulatedFleet
from workflows.rehearsal.simulator.simulation import build


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serve_in_thread() as running:
        yield running


@pytest.fixture
def make(server: RunningServer, tmp_path: Path) -> Iterator[Make]:
    """Makes users of simulators on the one server; the second is what a restarted simulator would be."""
    made: list[User] = []
    numbers = itertools.count()

    def maker(agents: int = 2, servers: int = 1, **options: Any) -> User:
        kubeconfig = tmp_path / f"kubeconfig{next(numbers)}"
        kubeconfig.write_text(server.kubeconfig)
        options = {"start": START, "seed": 7} | options
        user = User(build(kubeconfig, SimulatedFleet(hosts(agents, servers)), **options), kubeconfig)
        made.append(user)
        return user

    yield maker
    for user in made:
        user.world.close()
        user.api.close()
