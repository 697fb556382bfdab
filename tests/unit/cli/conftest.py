"""The real command line for tests: the `bringup` script as a process of its own, with its own home, and what it leaves behind."""

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit import warm_commands
from tests.unit.warm_commands import COMMAND
from workflows import examples

INTERPRETER = ("PYTHON", "LC_", "LANG", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM")
"""Beginnings of variables that are read when an interpreter starts, or when libraries are imported."""
PATIENCE = 60.0
"""Seconds for what takes one or two on an idle machine."""


def until(holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until a condition holds."""
    idle, end = select.poll(), time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"{what} did not come to be within {seconds:.0f} s"
        idle.poll(20)


@dataclass(frozen=True)
class Done:
    """An ended command."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass
class Started:
    """A running command; its output goes to files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def say(self, text: str) -> None:
        """Wait until the command has printed this."""
        until(lambda: text in self.out.read_text() or self.process.poll() is not None, f"{text!r} in the output")
        assert text in self.out.read_text(), self.out.read_text() + self.err.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = PATIENCE) -> Done:
        code = self.process.wait(seconds)
        return Done(code, self.out.read_text(), self.err.read_text())


@dataclass
class Machine:
    """A machine with its own home for runs."""

    folder: Path
    started: list[Started] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def runs(self) -> list[Path]:
        """Folders of the stored runs."""
        return sorted((self.home / "store/runs").glob("*"))

    def environment(self, more: Mapping[str, str | None]) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "CI")}
        changed = {**plain, "BRINGUP_HOME": str(self.home), **more}
        return {name: value for name, value in changed.items() if value is not None}

    def call(self, *arguments: str | Path, ulimit: str = "", **more: str | None) -> Done:
        """Run a command to its end; `more` changes its environment (None takes a variable away).

        It is forked from a warm process, unless its interpreter itself should start with limits or settings of its own.
        """
        if not ulimit and not any(name.startswith(INTERPRETER) for name in more):
            ended = warm_commands.run([str(one) for one in arguments], self.environment(more), self.folder)
        else:
            command = [str(COMMAND), *map(str, arguments)]
            if ulimit:
                command = ["sh", "-c", f'ulimit {ulimit}; exec "$@"', "sh", *command]
            ended = subprocess.run(
                command, capture_output=True, text=True, cwd=self.folder, env=self.environment(more), timeout=120
            )
        assert "Traceback" not in ended.stderr + ended.stdout
        return Done(ended.returncode, ended.stdout, ended.stderr)

    def start(self, *arguments: str | Path) -> Started:
        """Start a command, in a session of its own."""
        out, err = (self.folder / f"{len(self.started)}.{name}" for name in ("out", "err"))
        with out.open("wb") as output, err.open("wb") as errors:
            process = subprocess.Popen(
                [COMMAND, *map(str, arguments)],
                cwd=self.folder,
                env=self.environment({}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        self.started.append(Started(process, out, err))
        return self.started[-1]

    def hold(self, spec: Path) -> Started:
        """Start a rehearsal and wait until it waits for an approval."""
        held = self.start("rehearse", spec, "--hold")
        held.say("waits for an approval")
        return held

    def processes(self) -> list[str]:
        """Command lines of all processes that know this home: commands, clusters, steps."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                known = str(self.home).encode() in (folder / "environ").read_bytes()
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # gone meanwhile, or somebody else's
            if known and command:
                found.append(command)
        return found

    def close(self) -> None:
        for one in self.started:
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def command() -> str:
    """The `bringup` script."""
    return str(COMMAND)


@pytest.fixture(scope="session")
def small() -> str:
    """The example's first two stages, without an approval."""
    text = examples.path("h200-16").read_text()
    text = re.sub(r"inter_node_floor_gb_s: \d+", "", text)  # of a stage that this spec does not run
    return text[: text.index("approvals:")] + "stages: [os_prep, rke2]\n"


@pytest.fixture(scope="session")
def approved(small: str) -> Callable[..., str]:
    """A function that returns the small spec with an approval before RKE2 by the given people (names or SSH public keys)."""

    def text(*people: str) -> str:
        named = people or ("ada@example.org", "grace@example.org")
        return small + "approvals:\n  - before: rke2\n    approvers:\n" + "".join(f"      - {one}\n" for one in named)

    return text


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory, approved: Callable[..., str]) -> tuple[Machine, Done]:
    """A machine with one finished rehearsal of the small spec, which opened its approval itself."""
    made = Machine(tmp_path_factory.mktemp("rehearsed"))
    spec = made.folder / "small.yaml"
    spec.write_text(approved())
    return made, made.call("rehearse", spec)
