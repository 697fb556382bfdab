"""The log of Slurm's check is read whole: at 10,000 nodes it has 30,000 lines, and the first section must not be cut off."""

from typing import Any, TypeVar

import msgspec

from steps.stages.shared.kube_reader import Scope
from steps.stages.slurm import probe

T = TypeVar("T")
NODES = tuple(f"gpu{number:05d}" for number in range(1, 10_001))


class ClusterOfOneCheck:
    """A cluster with one check pod, whose report was too large for a termination message, and whose log is `lines`."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def list(self, path: str, kind: type[T], labels: str = "", fields: str = "") -> tuple[T, ...]:
        if not path.endswith("/pods"):
            return ()
        report = '{"node": "gpu00001", "exits": {"sinfo": 0, "hosts": 0, "gpus": 0}, "packed": ""}'
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": report}}
        status = {"phase": "Succeeded", "containerStatuses": [{"name": "check", "state": ended}]}
        return (msgspec.convert({"metadata": {"name": "srun-x"}, "spec": {"nodeName": NODES[0]}, "status": status}, kind),)

    def get(self, path: str, kind: type[T]) -> T | None:
        return None

    def text(self, path: str) -> str | None:
        return None

    def log(self, namespace: str, pod: str, container: str = "", tail: int = 200, previous: bool = False) -> str:
        return "\n".join(self._lines[-tail:])

    def events(self, namespace: str, name: str) -> tuple[str, ...]:
        return ()


def test_each_node_of_ten_thousand_is_read_from_the_log() -> None:
    lines: list[Any] = ["@sinfo", *(f"idle|gpu:h200:8(S:0-1)|{node}" for node in NODES), "@reasons", "@hosts", *NODES]
    lines += ["@gpus", *(f"{node} 8 8" for node in NODES), "@errors"]
    srun = probe.functional(ClusterOfOneCheck(lines), Scope()).srun
    assert srun is not None
    assert [len(part) for part in (srun.nodes, srun.hosts, srun.gpus, srun.passed)] == [len(NODES)] * 4
