"""Run pods as subprocesses: each has its own session, output folder and log, and ends together with its descendants."""

from __future__ import annotations

import errno
import os
import re
import selectors
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from workflows.engines.local import process_control
from workflows.engines.local.errors import PlatformError, StorageError
from workflows.engines.local.journal import PodProcess
from workflows.engines.local.model import ContainerModel, TemplateModel
from workflows.engines.local.run_settings import RunPaths, slug
from workflows.engines.local.run_state import StartPod

LARGEST_PARAMETER = 1 << 20  # bytes of one output parameter; larger data belongs into the run store
KILLED_SECONDS = 1.0  # a killed process is gone within milliseconds, unless it hangs in the kernel
LARGEST_RESULT = 256 << 10  # Argo's executor keeps this many last bytes of stdout as `outputs.result`, silently
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


@dataclass(frozen=True, slots=True)
class PodEnd:
    """Result of a pod that has ended.

    `undelivered` says which output file could not be read, `refused` why no process was started; both are "" otherwise.
    """

    node: str
    exit_code: int
    parameters: Mapping[str, str] = field(default_factory=dict)
    undelivered: str = ""
    result: str | None = None
    refused: str = ""


class ChildProcess(Protocol):
    """A child process that leads its own session, such as `subprocess.Popen` returns."""

    @property
    def pid(self) -> int:
        """Return the process id, which is also the id of its process group."""

    def wait(self) -> int:
        """Reap the process and return its exit code; -N if signal N killed it."""


StartProcess = Callable[[Sequence[str], Mapping[str, str], Path, IO[bytes], IO[bytes]], ChildProcess]
"""Type of a function that starts a program from its words, environment, working folder, stdout and stderr. Raises OSError."""


def start_process(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, out: IO[bytes], err: IO[bytes]
) -> ChildProcess:
    """Start a program in a session of its own and return it. Raises OSError."""
    return subprocess.Popen(
        words, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
    )


@dataclass(slots=True)
class _Pod:
    node: str
    process: ChildProcess
    handle: int
    out: Path
    template: TemplateModel
    stdout: Path | None
    mark: str
    kill_at: float | None = None


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with `$(NAME)` and `$$` expanded, as Kubernetes does in args; unknown names stay as they are."""
    return _REFERENCE.sub(lambda match: "$" if match[1] is None else variables.get(match[1], match[0]), text)


class Executor:
    """Starts and ends the processes of one engine's pods. It has no thread of its own: the caller waits in `poll`."""

    def __init__(
        self,
        run_dir: Path,
        paths: RunPaths,
        environment: Mapping[str, str],
        token: str,
        grace: float,
        start: StartProcess = start_process,
    ) -> None:
        if not hasattr(os, "pidfd_open"):
            raise PlatformError("the local engine needs Linux with pidfd (5.3 or newer)")
        self.run_dir = run_dir
        self.paths = paths
        self.environment = dict(environment)
        self.token = token
        self.grace = grace
        self._start = start
        self.most = 0
        self._pods: dict[str, _Pod] = {}
        self._strays: set[int] = set()
        self._selector = selectors.DefaultSelector()
        for folder in ("logs", "out"):
            (run_dir / folder).mkdir(exist_ok=True)

    def watch(self, descriptor: int) -> None:
        """Make `poll` return also when this file descriptor becomes readable."""
        self._selector.register(descriptor, selectors.EVENT_READ, None)

    # --- start --------------------------------------------------------------------------------------------------------

    def start(self, action: StartPod) -> PodProcess | PodEnd:
        """Start a pod's process and return it, or the pod's end if the command cannot be started.

        A missing command is a failed pod, not an error of the engine. Raises StorageError if the machine is at fault.
        """
        assert action.template.container is not None
        try:
            out = self._fresh_folder(action.node)
            argv, env = self._command(action.template.container, out, action.node)
            stdout = out.with_suffix(".stdout") if action.capture else None
            return self._spawn(action, argv, env, out, stdout)
        except OSError as err:
            raise StorageError(f"cannot start {action.node}: {err}") from err

    def _fresh_folder(self, node: str) -> Path:
        base = self.run_dir / "out" / slug(node)
        number = 0
        while True:
            # never an existing folder: a killed engine's attempt may have left outputs in it
            folder = base.with_name(f"{base.name}.{number}")
            try:
                folder.mkdir()
                return folder.absolute()
            except FileExistsError:
                number += 1

    def _command(self, container: ContainerModel, out: Path, node: str) -> tuple[list[str], dict[str, str]]:
        declared: dict[str, str] = {}
        for name, value in container.env:
            declared[name] = expand(self.paths.rewrite(value, out), declared)
        words = [expand(self.paths.rewrite(word, out), declared) for word in (*container.command, *container.args)]
        return words, {**self.environment, **declared, process_control.MARK: f"{self.token}/{slug(node)}"}

    def _spawn(self, action: StartPod, argv: list[str], env: dict[str, str], out: Path, stdout: Path | None) -> PodProcess | PodEnd:
        log = (self.run_dir / "logs" / f"{slug(action.node)}.log").open("ab")
        captured = stdout.open("wb") if stdout else None
        try:
            process = self._start(argv, env, out, captured or log, log)
        except ValueError as err:  # a NUL, which a step's output may have brought in: no process can have such words
            return PodEnd(action.node, 64, refused=f'exec: "{argv[0]}": invalid argument: {err}')
        # 64 is the exit code of Argo's executor for a command that it cannot start
        except (FileNotFoundError, PermissionError, NotADirectoryError) as err:
            return PodEnd(action.node, 64, refused=f'failed to find name in PATH: exec: "{argv[0]}": {_not_found(argv[0], err)}')
        except OSError as err:
            if err.errno in (7, 8):  # E2BIG, ENOEXEC: the command is at fault, not this machine
                return PodEnd(action.node, 64, refused=f'exec: "{argv[0]}": {str(err.strerror).lower()}')
            raise
        finally:
            log.close()
            if captured:
                captured.close()
        assert action.template.container is not None
        process_control.limit(process.pid, action.template.container.memory)
        handle = os.pidfd_open(process.pid)
        self._pods[action.node] = _Pod(action.node, process, handle, out, action.template, stdout, env[process_control.MARK])
        self._selector.register(handle, selectors.EVENT_READ, action.node)
        self.most = max(self.most, len(self._pods))
        return PodProcess(action.node, process.pid, process_control.start_time(process.pid))

    # --- end ----------------------------------------------------------------------------------------------------------

    def end(self, node: str) -> None:
        """Send SIGTERM to the pod's process group; `poll` sends SIGKILL after the grace period."""
        pod = self._pods.get(node)
        if pod is not None and pod.kill_at is None:
            pod.kill_at = time.monotonic() + self.grace
            self._signal(pod, signal.SIGTERM)

    def hurry(self) -> None:
        """Let the next `poll` send SIGKILL to all pods that are being ended, without the rest of their grace period."""
        for pod in self._pods.values():
            if pod.kill_at is not None:
                pod.kill_at = time.monotonic()

    def _signal(self, pod: _Pod, number: signal.Signals) -> None:
        try:
            os.killpg(pod.process.pid, number)
        except ProcessLookupError:
            return  # the process has just ended; `poll` sees that through its pidfd

    @property
    def wake(self) -> float | None:
        """Return the monotonic time at which the next SIGKILL is due, or None."""
        times = [pod.kill_at for pod in self._pods.values() if pod.kill_at is not None]
        return min(times) if times else None

    def poll(self, timeout: float | None) -> list[PodEnd]:
        """Wait until a pod ends, a watched descriptor is readable, or `timeout` seconds have passed; return the pods that ended."""
        ready = self._selector.select(timeout)
        now = time.monotonic()
        for pod in self._pods.values():
            if pod.kill_at is not None and pod.kill_at <= now:
                # if the pod is still there in a second, SIGKILL is sent again
                pod.kill_at = now + 1.0
                self._signal(pod, signal.SIGKILL)
        self._reap_strays()
        return [self._collect(key.data) for key, _ in ready if key.data is not None]

    def _collect(self, node: str) -> PodEnd:
        pod = self._pods.pop(node)
        code = self._forget(pod)
        # Popen reports death by signal N as -N, Kubernetes as 128 + N
        exit_code = 128 - code if code < 0 else code
        parameters, undelivered = self._parameters(pod)
        return PodEnd(node, exit_code, parameters, undelivered, self._result(pod))

    def _forget(self, pod: _Pod) -> int:
        """Reap an ended pod, kill the processes that it left behind, and return its exit code."""
        self._selector.unregister(pod.handle)
        os.close(pod.handle)
        process_control.kill_group(pod.process.pid)  # before the leader is reaped: its number cannot be another group's yet
        code = pod.process.wait()
        self._end_escaped(pod.mark)
        return code

    def _end_escaped(self, mark: str) -> None:
        """Kill descendants that left the pod's process group, until none with its token `mark` is left.

        As subreaper, this process adopts them. A killed process hands on its own children as it dies, which may take a moment, so
        the search is repeated after each death.
        """
        known = {pod.process.pid for pod in self._pods.values()} | self._strays
        while True:
            adopted = [pid for pid in process_control.children() if pid not in known]
            escaped = [pid for pid in adopted if process_control.mark_of(pid) == mark]
            ending = [pid for pid in adopted if process_control.is_ending(pid)]
            if not escaped and not ending:
                return
            process_control.kill_all(escaped, KILLED_SECONDS)
            process_control.await_all(ending, KILLED_SECONDS)
            known.update(escaped, ending)
            self._strays.update(escaped)

    def _reap_strays(self) -> None:
        for pid in list(self._strays):
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            except ChildProcessError:
                pass  # another part of this program has reaped it
            self._strays.discard(pid)

    def _parameters(self, pod: _Pod) -> tuple[dict[str, str], str]:
        values: dict[str, str] = {}
        undelivered = ""
        for output in pod.template.outputs:
            if not output.path:
                continue
            try:
                values[output.name] = _read(Path(self.paths.rewrite(output.path, pod.out)))
            except OSError as err:
                if output.default is not None:
                    values[output.name] = output.default
                else:
                    undelivered = undelivered or f"open {output.path}: {str(err.strerror or err).lower()}"
        return values, undelivered

    def _result(self, pod: _Pod) -> str | None:
        if pod.stdout is None:
            return None
        with pod.stdout.open("rb") as file:
            file.seek(max(0, pod.stdout.stat().st_size - LARGEST_RESULT - 1))  # and the last newline, which is removed below
            text = file.read().decode(errors="replace")
        return text.removesuffix("\n")[-LARGEST_RESULT:]

    def close(self) -> None:
        """End all pods that still run (after an error of the engine) by SIGTERM, then SIGKILL, and release all handles."""
        for pod in self._pods.values():
            self._signal(pod, signal.SIGTERM)
        end = time.monotonic() + self.grace
        while self._pods:
            ready = [key.data for key, _ in self._selector.select(max(0.0, end - time.monotonic())) if key.data is not None]
            if not ready and time.monotonic() >= end:
                for pod in self._pods.values():
                    self._signal(pod, signal.SIGKILL)
                end = time.monotonic() + 1.0
            for node in ready:
                self._forget(self._pods.pop(node))
        self._reap_strays()
        self._selector.close()


def _not_found(command: str, error: OSError) -> str:
    """Return why a command cannot be started, in the words of Argo's executor (conformance case `command-not-found`)."""
    if not isinstance(error, FileNotFoundError):
        return str(error.strerror).lower()
    return f"stat {command}: no such file or directory" if "/" in command else "executable file not found in $PATH"


def _read(path: Path) -> str:
    """Return the text of an output parameter's file without its last newline.

    Raises OSError if the file is missing, too large or no regular file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO without a writer would block the open
    with os.fdopen(handle, "rb") as file:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR)) if stat.S_ISDIR(mode) else OSError(0, "no regular file")
        data = file.read(LARGEST_PARAMETER + 1)
    if len(data) > LARGEST_PARAMETER:
        raise OSError(0, f"larger than {LARGEST_PARAMETER} bytes")
    return data.decode(errors="replace").removesuffix("\n")
