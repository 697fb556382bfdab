"""In a world with a time of its own the engine's waits pass there; where a person or a pod is waited for, time takes its time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workflows.engines.local import inbox
from workflows.engines.local.local_engine import LocalEngine
from workflows.engines.local.result import News, NodeNews

BACKOFF = {"limit": "3", "retryPolicy": "Always", "backoff": {"duration": "600", "factor": "2"}}
THREE = 'n=$(cat {count} 2>/dev/null | wc -c); printf x >> {count}; [ "$n" -ge 2 ]'


class World:
    """A world whose time passes at once; `slow`: it takes real time for it, as a simulator in real time does."""

    def __init__(self, slow: float = 0.0) -> None:
        self.passed: list[float] = []
        self._slow = slow

    def passing(self, seconds: float) -> float:
        self.passed.append(seconds)
        threading.Event().wait(self._slow)
        return seconds


def test_a_back_off_passes_in_the_world(tmp_path: Path, manifest: Callable[..., Any], script: Callable[..., Any]) -> None:
    text = THREE.format(count=tmp_path / "count")
    document = manifest([{"name": "a", "template": "work"}], [script("work", text, retryStrategy=BACKOFF)])
    world, began, started = World(), time.monotonic(), dict[str, float]()

    def observe(news: News) -> None:
        if isinstance(news, NodeNews) and news.node.type == "Pod":
            started[news.node.name] = news.node.started

    assert LocalEngine(tmp_path / "run", document, observer=observe, passing=world.passing).run().exit_code == 0
    assert 1790 < sum(world.passed) <= 1800  # 600 + 1,200 seconds of two back-offs
    assert time.monotonic() - began < 600
    first, second, third = sorted(started.values())
    assert second - first >= 600
    assert third - second >= 1200


def test_time_that_passed_by_itself_counts_once(tmp_path: Path, manifest: Callable[..., Any], script: Callable[..., Any]) -> None:
    text = THREE.format(count=tmp_path / "count")
    backoff = {**BACKOFF, "backoff": {"duration": "2", "factor": "1"}}
    document = manifest([{"name": "a", "template": "work"}], [script("work", text, retryStrategy=backoff)])
    world, began = World(slow=0.25), time.monotonic()
    assert LocalEngine(tmp_path / "run", document, passing=world.passing).run().exit_code == 0
    beside = time.monotonic() - began - 2 * 0.25
    assert 4.0 - beside < sum(world.passed) <= 4.0  # not less by the half second that it took


def test_nobody_is_overtaken_who_still_decides(tmp_path: Path, manifest: Callable[..., Any]) -> None:
    """A gate with a time limit of an hour waits for its person, while the world could live through that hour at once."""
    gate = {"name": "gate", "suspend": {"duration": "3600"}}
    world, run = World(), tmp_path / "run"

    def observe(news: News) -> None:
        if isinstance(news, NodeNews) and news.node.name.endswith("gate") and news.node.phase == "Running":
            threading.Thread(target=inbox.send, args=(run, "resume", "gate", {}, "")).start()

    result = LocalEngine(
        run, manifest([{"name": "gate", "template": "gate"}], [gate]), observer=observe, passing=world.passing
    ).run()
    assert (result.exit_code, world.passed) == (0, [])


def test_a_pod_at_work_is_not_overtaken(tmp_path: Path, manifest: Callable[..., Any], script: Callable[..., Any]) -> None:
    os.mkfifo(tmp_path / "fifo")
    slow = script("slow", f"read line < {tmp_path / 'fifo'}", activeDeadlineSeconds=3600)
    world = World()

    def observe(news: News) -> None:
        if isinstance(news, NodeNews) and news.node.phase == "Running" and news.node.type == "Pod":
            threading.Thread(target=(tmp_path / "fifo").write_text, args=("go on\n",)).start()

    document = manifest([{"name": "slow", "template": "slow"}], [slow])
    assert LocalEngine(tmp_path / "run", document, observer=observe, passing=world.passing).run().exit_code == 0
    assert world.passed == []
