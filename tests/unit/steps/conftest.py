"""A step's folders and a way to run one task as engines do: `python -m steps VERB --task FILE` in a process of its own."""

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN, read
from steps.clients.store import Store
from steps.contract import fleet, paths
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Task, encode, file_name
from steps.runtime.context import Context
from tests.unit.steps.front import Front, serving
from workflows.rehearsal.apiserver import serve_in_thread
from workflows.rehearsal.simulator.control_server import ControlApi, ControlServer
from workflows.rehearsal.simulator.machines.simulated_fleet import SimulatedFleet
from workflows.rehearsal.simulator.simulation import Simulator, build

ROOT = Path(__file__).parents[3]


@dataclass
class Desk:
    """The five folders of a run called `r1`, with a fleet of one server and three GPU nodes."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in paths.FOLDERS:
            (self.root / folder).mkdir(parents=True)
            self.environment[paths.variable(folder)] = str(self.root / folder)
        self.environment |= {paths.RUN: "r1", paths.ENGINE: "local"}
        self.hosts([host("sv1", role="server"), *(host(f"gpu{number}", gpus=8) for number in (1, 2, 3))])

    @property
    def store(self) -> Store:
        return Store(self.root / "store")

    def hosts(self, every: list[fleet.Host], plan: str = "sha256:p") -> None:
        shards = [[one for one in every if one.role == role] for role in ("server", "agent")]
        for number, members in enumerate(shards):
            data = gzip.compress(msgspec.json.encode(members), mtime=0)
            (self.root / "fleet" / fleet.shard_file(number)).write_bytes(data)
        index = fleet.Index(plan=plan, hosts=len(every), shards=len(shards))
        (self.root / "fleet" / fleet.INDEX).write_bytes(msgspec.json.encode(index))

    def run(self, task: Task, *extra: str) -> subprocess.CompletedProcess[str]:
        name = file_name(task.stage, task.name)
        (self.root / "tasks" / name).write_bytes(encode(task))
        command = [sys.executable, "-m", "steps", task.verb.value, "--task", name, *extra]
        environment = {**os.environ, **self.environment, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60, cwd=self.root)

    def context(self, task: Task, run: str = "r1") -> Context:
        """A task in hand in this process, with a client of its own."""
        return Context(task, read({**self.environment, paths.RUN: run}))

    def output(self, name: str) -> str:
        return (self.root / "out" / name).read_text()

    def record(self, stage: str, task: str) -> Evidence:
        return self.store.records("r1", stage, task)[0]


def host(name: str, *, role: str = "agent", gpus: int = 0) -> fleet.Host:
    return fleet.Host(name=name, address=name, group="g", role=role, gpus=gpus)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def make_host() -> Callable[..., fleet.Host]:
    return host


@pytest.fixture
def api(desk: Desk) -> Iterator[Front]:
    """An emulated API server behind a front that counts; its kubeconfig is among the desk's secrets."""
    with serve_in_thread() as running, serving(running) as front:
        (desk.root / "secrets" / "kubeconfig").write_text(front.kubeconfig)
        yield front


@pytest.fixture
def simulator(desk: Desk, api: Front, tmp_path: Path) -> Iterator[Simulator]:
    """A simulator of the desk's four hosts at the same API; the desk's steps use its clock and its hosts."""
    direct = tmp_path / "direct"
    direct.write_text(api.direct)
    hosts = SimulatedFleet((host("sv1", role="server"), *(host(f"gpu{number}", gpus=8) for number in (1, 2, 3))))
    made = build(direct, hosts)
    server = ControlServer(ControlApi(made), "secret")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    desk.environment |= {SIMULATOR: server.url, SIMULATOR_TOKEN: "secret"}
    yield made
    server.shutdown()
    thread.join()
    server.server_close()
    made.world.close()
