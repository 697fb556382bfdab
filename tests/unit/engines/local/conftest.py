"""Fixtures of the local engine's tests: small manifests, and forked processes that a test can kill."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Manifest = dict[str, Any]
API = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}


def container(script: str, **more: Any) -> dict[str, Any]:
    """A container template's body that runs a shell script."""
    return {"container": {"image": "none", "command": ["sh", "-c"], "args": [script]}, **more}


@pytest.fixture
def manifest() -> Callable[..., Manifest]:
    """Make a Workflow from tasks and templates: `manifest(tasks, templates, **spec)`."""

    def make(tasks: list[dict[str, Any]], templates: list[dict[str, Any]], **spec: Any) -> Manifest:
        main = {"name": "main", "dag": {"tasks": tasks}}
        return {**API, "metadata": {"name": "wf"}, "spec": {"entrypoint": "main", "templates": [main, *templates], **spec}}

    return make


@pytest.fixture
def script() -> Callable[..., dict[str, Any]]:
    """Make a container template: `script(name, text, **fields)`."""
    return lambda name, text, **more: {"name": name, **container(text, **more)}


class Child:
    """A forked process; `wait` gives its exit code, negative for a signal, or fails when it takes too long."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.handle = os.pidfd_open(pid)
        self.code: int | None = None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 120.0) -> int:
        if self.code is None:
            ready, _, _ = select.select([self.handle], [], [], seconds)
            assert ready, "the forked engine did not end in time"
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self.handle)
        return self.code


@pytest.fixture
def fork() -> Iterator[Callable[[Callable[[], int]], Child]]:
    """Run a function in a forked process (an engine that can be killed): `fork(work)`."""
    children: list[Child] = []

    def begin(work: Callable[[], int]) -> Child:
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                code = work()
            finally:
                os._exit(code)
        children.append(Child(pid))
        return children[-1]

    yield begin
    for child in children:
        if child.code is None:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()


@pytest.fixture
def until() -> Callable[[Path], None]:
    """Wait until a file exists (inotify-free: the folder is looked at between short waits of poll)."""

    def wait(path: Path) -> None:
        poll = select.poll()
        for _ in range(6000):
            if path.exists():
                return
            poll.poll(10)
        pytest.fail(f"{path.name} did not appear")

    return wait
