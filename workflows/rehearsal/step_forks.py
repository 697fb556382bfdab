"""Starts the steps of a run as forks of one process that has imported them, at a quarter of the cost of new processes."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from steps.contract.fork_request import LARGEST, ForkRequest
from workflows.engines.local import process_control
from workflows.engines.local.executor import ChildProcess, start_process
from workflows.engines.local.run_settings import default_environment

STEP = ("-m", "steps")


class ForkedStep:
    """A step process that the fork server has forked and that the kernel made a child of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        """Wait until the step ends and return its exit code; the negative signal number if a signal killed it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class StepForks:
    """Starts steps through a fork server, which begins with the first step; `log` is the file for what the server prints."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._server: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    @property
    def server(self) -> int | None:
        """Return the process id of the fork server, or None before the first step."""
        return self._server[0].pid if self._server else None

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], folder: Path, out: IO[bytes], err: IO[bytes]
    ) -> ChildProcess:
        """Start a command and return its process: a fork for `python -m steps …`, a new process for anything else.

        `out` and `err` receive what it prints. Raises OSError if the fork server has ended.
        """
        request = msgspec.json.encode(ForkRequest(list(words[3:]), dict(environment), str(folder)))
        if tuple(words[1:3]) != STEP or not words[0].startswith("python") or len(request) > LARGEST:
            return start_process(words, environment, folder, out, err)
        with self._lock:
            self._server = self._server or self._serving(environment.get(process_control.MARK, ""))
            process, connection = self._server
            try:
                socket.send_fds(connection, [request], [out.fileno(), err.fileno()])
                answer = connection.recv(32)
            except ConnectionError:
                answer = b""
        if not answer:
            raise OSError(f"the fork server ended with {process.wait()}; its output is in {self._log}")
        return ForkedStep(int(answer))

    def close(self) -> None:
        """End the fork server and wait for it. Steps that still run go on."""
        if self._server is not None:
            process, connection = self._server
            connection.close()
            process.wait()

    def _serving(self, mark: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """Start the fork server with the token in `mark` of a step, which the kernel shows as the mark of every fork.

        The next engine thereby finds a step that was forked and not yet recorded when this one was killed.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "steps.fork_server", str(theirs.fileno())],
                env={**default_environment(), process_control.MARK: mark.partition("/")[0]},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C goes to the engine, which ends the steps
            )
        return process, ours
