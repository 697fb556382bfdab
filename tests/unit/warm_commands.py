"""`bringup` commands forked from a process that has imported them already: tests call hundreds, and each takes longer to start than
to do its work. A forked command is a process of its own, with its own folder, environment and output.

Run as a program, this is that process; its argument is the descriptor of a socket that brings one command after another.
"""

import atexit
import functools
import gc
import importlib
import json
import locale
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

COMMAND = Path(sys.executable).with_name("bringup")
LARGEST = 100_000
EARLY = ("hera.workflows", "jinja2", "rich.console", "rich.live", "rich.table", "urllib3", "yaml")
PACKAGES = ("steps", "workflows")
"""All modules of these are imported before commands are forked: most commands import a hundred of them when they are called."""
PLAYBOOK_EARLY = (
    "ansible.cli.playbook",
    "ansible.executor.module_common",
    "ansible.executor.playbook_executor",
    "ansible.plugins.callback.default",
    "ansible.plugins.connection.local",
    "ansible.plugins.strategy.linear",
)
"""Modules of Ansible, imported with the settings that are in the environment of the process that forks."""
PROGRAMS = {"bringup": (EARLY, "workflows.cli.main"), "ansible-playbook": (PLAYBOOK_EARLY, "ansible.cli.playbook")}
"""Early modules of each program, and the module whose `main` is the program."""


class Commands:
    """Runs commands, one at a time."""

    def __init__(self, command: Path, environment: Mapping[str, str] | None = None) -> None:
        """Start the process that forks them: one of `PROGRAMS`, in this environment (None: that of this process)."""
        self._command, self._environment = command, environment
        self._begin()

    def _begin(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), self._command.name],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def call(self, words: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float) -> tuple[int, str, str]:
        """Run a command to its end; its exit code (negative for a signal), its output, its error output.

        `subprocess.TimeoutExpired` where it does not end: it is killed then, and so is the process that it was forked from.
        """
        request = [[str(self._command), *words], dict(environment), str(folder)]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            socket.send_fds(self._connection, [json.dumps(request).encode()], [out.fileno(), err.fileno()])
            self._connection.settimeout(seconds)
            try:
                answer = self._connection.recv(32)
            except TimeoutError:
                os.killpg(self._process.pid, signal.SIGKILL)
                self.close()
                self._begin()
                raise subprocess.TimeoutExpired(list(words), seconds) from None
            assert answer, f"the process that forks commands has ended with {self._process.wait()}"
            out.seek(0)
            err.seek(0)
            return int(answer), out.read().decode(), err.read().decode()

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


@functools.cache
def shared() -> Commands:
    """Return the warm process that all tests of this process share; it ends with them."""
    made = Commands(COMMAND)
    atexit.register(made.close)
    return made


def run(words: Sequence[str], environment: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; raises subprocess.TimeoutExpired after two minutes."""
    code, out, err = shared().call(words, environment, folder, 120)
    return subprocess.CompletedProcess(list(words), code, out, err)


def serve(connection: socket.socket, program: str) -> None:
    """Fork a command for each request, until the connection is closed."""
    early, module = PROGRAMS[program]
    for name in early:
        importlib.import_module(name)
    if program == "bringup":
        _prepare()
    gc.freeze()  # a collection in a child would copy every page that it looks at
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, LARGEST, 2)
        if not data:
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            os._exit(_command(module, *json.loads(data), descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _prepare() -> None:
    """Import all of bringup, and have it keep what each command would read or build anew: its commands, catalog and schemas."""
    for package in PACKAGES:
        for entry in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not entry.name.endswith("__main__"):
                importlib.import_module(entry.name)
    main, bringup = importlib.import_module("workflows.cli.main"), importlib.import_module("workflows.bringup")
    main.command_tree()
    for name in ("h200-16", "single-node"):
        spec = importlib.import_module("workflows.spec").load(importlib.import_module("workflows.examples").path(name))
        plan = importlib.import_module("workflows.plan.compiler").compile_plan(spec)
        importlib.import_module("workflows.render.bundle").render(plan, bringup.build)


def _command(module: str, words: list[str], environment: dict[str, str], folder: str, descriptors: list[int]) -> int:
    """Be the command, as the interpreter would start it."""
    for target, source in enumerate(descriptors, 1):
        os.dup2(source, target)
        os.close(source)
    for name, number in (("stdout", 1), ("stderr", 2)):
        errors = "strict" if name == "stdout" else "backslashreplace"
        setattr(sys, name, open(number, "w", encoding=locale.getencoding(), errors=errors, closefd=False))  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 0
    try:
        importlib.import_module(module).main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except Exception:  # noqa: BLE001 - the interpreter would print it as well
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
    except OSError:
        code = 120
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
