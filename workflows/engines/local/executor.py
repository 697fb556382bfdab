"""Runs pods as subprocesses: own session, own output folder an attempt, logs in files; ends them with all that came from them."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workflows.engines.local import processes
from workflows.engines.local.errors import PlatformError, StorageError
from workflows.engines.local.journal import Process
from workflows.engines.local.model import Container, Template
from workflows.engines.local.paths import RunPaths, slug
from workflows.engines.local.state import StartPod

LARGEST_PARAMETER = 1 << 20  # bytes of one output parameter; more is no parameter but data for the store
KILLED_SECONDS = 1.0  # a killed process is gone within milliseconds; one that hangs in the kernel is not waited for
LARGEST_RESULT = 256 << 10  # the last bytes of stdout that become `outputs.result` (hera_argo §2.2)
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a pod ended; `undelivered` says which output could not be read, `refused` why nothing was started."""

    node: str
    exit_code: int
    parameters: Mapping[str, str] = field(default_factory=dict)
    undelivered: str = ""
    result: str | None = None
    refused: str = ""


@dataclass(slots=True)
class _Pod:
    node: str
    process: subprocess.Popen[bytes]
    handle: int
    out: Path
    template: Template
    stdout: Path | None
    mark: str
    kill_at: float | None = None


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Kubernetes syntax in args: `$(NAME)` of a declared variable, `$$` for a dollar; an unknown name stays."""
    return _REFERENCE.sub(lambda match: "$" if match[1] is None else variables.get(match[1], match[0]), text)


class Executor:
    """Holds the processes of one engine.  Not a thread: `poll` waits for the next end, a wake-up byte, or the time-out."""

    def __init__(self, run_dir: Path, paths: RunPaths, environment: Mapping[str, str], token: str, grace: float) -> None:
        if not hasattr(os, "pidfd_open"):
            raise PlatformError("the local engine needs Linux with pidfd (5.3 or newer)")
        self.run_dir = run_dir
        self.paths = paths
        self.environment = dict(environment)
        self.token = token
        self.grace = grace
        self.most = 0
        self._pods: dict[str, _Pod] = {}
        self._strays: set[int] = set()
        self._selector = selectors.DefaultSelector()
        for folder in ("logs", "out"):
            (run_dir / folder).mkdir(exist_ok=True)

    def watch(self, descriptor: int) -> None:
        """Also return from `poll` when this descriptor is readable."""
        self._selector.register(descriptor, selectors.EVENT_READ, None)

    # --- start --------------------------------------------------------------------------------------------------------

    def start(self, action: StartPod) -> Process | Ended:
        """Start a pod, or say why it cannot be (a command that does not exist is a failed pod, not an error of the engine)."""
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
            folder = base.with_name(f"{base.name}.{number}")
            try:
                folder.mkdir()
                return folder.absolute()
            except FileExistsError:
                number += 1

    def _command(self, container: Container, out: Path, node: str) -> tuple[list[str], dict[str, str]]:
        declared: dict[str, str] = {}
        for name, value in container.env:
            declared[name] = expand(self.paths.rewrite(value, out), declared)
        words = [expand(self.paths.rewrite(word, out), declared) for word in (*container.command, *container.args)]
        return words, {**self.environment, **declared, processes.MARK: f"{self.token}/{slug(node)}"}

    def _spawn(self, action: StartPod, argv: list[str], env: dict[str, str], out: Path, stdout: Path | None) -> Process | Ended:
        log = (self.run_dir / "logs" / f"{slug(action.node)}.log").open("ab")
        captured = stdout.open("wb") if stdout else None
        try:
            process = subprocess.Popen(
                argv, env=env, cwd=out, stdin=subprocess.DEVNULL, stdout=captured or log, stderr=log, start_new_session=True
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as err:
            return Ended(action.node, 64, refused=f'failed to find name in PATH: exec: "{argv[0]}": {_not_found(argv[0], err)}')
        except OSError as err:
            if err.errno in (7, 8):  # E2BIG, ENOEXEC: a property of the command
                return Ended(action.node, 64, refused=f'exec: "{argv[0]}": {str(err.strerror).lower()}')
            raise
        finally:
            log.close()
            if captured:
                captured.close()
        handle = os.pidfd_open(process.pid)
        self._pods[action.node] = _Pod(action.node, process, handle, out, action.template, stdout, env[processes.MARK])
        self._selector.register(handle, selectors.EVENT_READ, action.node)
        self.most = max(self.most, len(self._pods))
        return Process(action.node, process.pid, processes.start_time(process.pid))

    # --- end ----------------------------------------------------------------------------------------------------------

    def end(self, node: str) -> None:
        """SIGTERM to the pod's group now, SIGKILL after the grace."""
        pod = self._pods.get(node)
        if pod is not None and pod.kill_at is None:
            pod.kill_at = time.monotonic() + self.grace
            self._signal(pod, signal.SIGTERM)

    def hurry(self) -> None:
        """No grace any more for pods that are being ended."""
        for pod in self._pods.values():
            if pod.kill_at is not None:
                pod.kill_at = time.monotonic()

    def _signal(self, pod: _Pod, number: signal.Signals) -> None:
        try:
            os.killpg(pod.process.pid, number)
        except ProcessLookupError:
            return  # it has just ended: the pidfd tells

    @property
    def wake(self) -> float | None:
        """Monotonic time of the next SIGKILL."""
        times = [pod.kill_at for pod in self._pods.values() if pod.kill_at is not None]
        return min(times) if times else None

    def poll(self, timeout: float | None) -> list[Ended]:
        """Wait until a pod ends, a watched descriptor is readable, or `timeout` seconds; what ended since."""
        ready = self._selector.select(timeout)
        now = time.monotonic()
        for pod in self._pods.values():
            if pod.kill_at is not None and pod.kill_at <= now:
                pod.kill_at = now + 1.0
                self._signal(pod, signal.SIGKILL)
        self._reap_strays()
        return [self._collect(key.data) for key, _ in ready if key.data is not None]

    def _collect(self, node: str) -> Ended:
        pod = self._pods.pop(node)
        code = self._forget(pod)
        exit_code = 128 - code if code < 0 else code
        parameters, undelivered = self._parameters(pod)
        return Ended(node, exit_code, parameters, undelivered, self._result(pod))

    def _forget(self, pod: _Pod) -> int:
        """Reap a pod that has ended, with everything that it left behind; its return code."""
        self._selector.unregister(pod.handle)
        os.close(pod.handle)
        processes.kill_group(pod.process.pid)  # before the leader is reaped: its number cannot be another group's yet
        code = pod.process.wait()
        self._end_escaped(pod.mark)
        return code

    def _end_escaped(self, mark: str) -> None:
        """Descendants that left the pod's group were adopted by this process: end them too, until none is left. What was killed
        hands on its own as it ends, which may take a moment: whatever was seen to end is followed by another look."""
        known = {pod.process.pid for pod in self._pods.values()} | self._strays
        while True:
            adopted = [pid for pid in processes.children() if pid not in known]
            escaped = [pid for pid in adopted if processes.mark_of(pid) == mark]
            ending = [pid for pid in adopted if processes.is_ending(pid)]
            if not escaped and not ending:
                return
            processes.kill_all(escaped, KILLED_SECONDS)
            processes.await_all(ending, KILLED_SECONDS)
            known.update(escaped, ending)
            self._strays.update(escaped)

    def _reap_strays(self) -> None:
        for pid in list(self._strays):
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            except ChildProcessError:
                pass  # reaped by somebody else
            self._strays.discard(pid)

    def _parameters(self, pod: _Pod) -> tuple[dict[str, str], str]:
        found: dict[str, str] = {}
        undelivered = ""
        for output in pod.template.outputs:
            if not output.path:
                continue
            try:
                found[output.name] = _read(Path(self.paths.rewrite(output.path, pod.out)))
            except OSError as err:
                if output.default is not None:
                    found[output.name] = output.default
                else:
                    undelivered = undelivered or f"open {output.path}: {str(err.strerror or err).lower()}"
        return found, undelivered

    def _result(self, pod: _Pod) -> str | None:
        if pod.stdout is None:
            return None
        with pod.stdout.open("rb") as file:
            file.seek(max(0, pod.stdout.stat().st_size - LARGEST_RESULT - 1))
            text = file.read().decode(errors="replace")
        return text.removesuffix("\n")[-LARGEST_RESULT:]

    def close(self) -> None:
        """End whatever still runs (after an error of the engine) and let go of everything."""
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
    """Why a command cannot be started, in the words of Argo's executor (argo_conformance `command-not-found`)."""
    if not isinstance(error, FileNotFoundError):
        return str(error.strerror).lower()
    return f"stat {command}: no such file or directory" if "/" in command else "executable file not found in $PATH"


def _read(path: Path) -> str:
    """A parameter's file without its one trailing newline.  OSError when there is no such file or it is too large."""
    if path.stat().st_size > LARGEST_PARAMETER:
        raise OSError(0, f"larger than {LARGEST_PARAMETER} bytes")
    return path.read_bytes().decode(errors="replace").removesuffix("\n")
