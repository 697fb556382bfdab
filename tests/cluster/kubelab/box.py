"""The box: one set of namespaces for the whole cluster, so that ending its process 1 ends everything that ran in it."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""Number of this process among the parallel test processes."""
NUMBER = int(os.environ.get("BRINGUP_CLUSTER_BOX") or 0) + WORKER
"""Number of the box on this machine: 0 to 63. Checkouts that test at the same time need numbers that are two apart."""

SUFFIX = f"-{NUMBER}" if NUMBER else ""
SPACE = f"cluster-bringup{SUFFIX}"
LINK = f"vc-bringup{SUFFIX}"
OUTSIDE = f"10.78.0.{4 * NUMBER + 1}"
ADDRESS = f"10.78.0.{4 * NUMBER + 2}"
"""Addresses of the veth pair between the machine (`OUTSIDE`) and the box (`ADDRESS`)."""

CGROUP = f"bringup-cluster{SUFFIX}"
CGROUPS = Path("/sys/fs/cgroup")
SETUP = Path(__file__).with_name("box.sh")
LOOK_SECONDS, LOOK_SECONDS_LATER = 0.01, 0.2
"""Between two looks at the start of a wait, and at the most: a look at an API server costs 10 ms of CPU, and machines have few."""
ALIVE_SECONDS = 1.0
"""Between two looks whether a program that is waited for still runs."""
START_SECONDS = 60.0
STOP_SECONDS = 30.0


class DidNotStart(RuntimeError):
    """A program of the cluster ended, or was never ready; the message holds the end of its log."""


def folder() -> Path:
    """`$BRINGUP_CLUSTER`, else a fixed folder outside the tree, so that `down` finds what another process made."""
    return Path(os.environ.get("BRINGUP_CLUSTER") or f"/var/tmp/bringup-cluster{SUFFIX}")


def up() -> None:
    """Make the box. Raises RuntimeError when one is there."""
    place = folder()
    if place.exists() or _spaces():
        raise RuntimeError(f"a cluster is up already in {place}: run `python tests/cluster/cluster.py down` first")
    place.mkdir(parents=True, mode=0o755)
    for controller in _controllers():
        (controller / CGROUP).mkdir(exist_ok=True)
    _ip(
        f"netns add {SPACE}",
        f"link add {LINK} type veth peer name eth0 netns {SPACE}",
        f"addr add {OUTSIDE}/30 dev {LINK}",
        f"link set {LINK} up",
    )
    _ip(f"addr add {ADDRESS}/30 dev eth0", "link set eth0 up", "link set lo up", f"route add default via {OUTSIDE}", space=SPACE)
    command = ["setsid", "--fork", "nsenter", f"--net=/run/netns/{SPACE}", "unshare", "--mount", "--pid", "--uts", "--ipc"]
    with (place / "box.log").open("ab") as log:
        subprocess.run(
            [*command, "--fork", "--kill-child", "sh", str(SETUP)],
            env=os.environ | {"FOLDER": str(place)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=True,
        )
    until(lambda: (place / "ready").exists(), "the box", log=place / "box.log")


def down() -> None:
    """End every process of the box, and remove its network, cgroups and folder; nothing to do is fine."""
    end = time.monotonic() + STOP_SECONDS
    while pids := _pids():
        if time.monotonic() > end:
            raise RuntimeError(f"processes {pids} of the cluster do not end")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)
    for line in (f"link del {LINK}", f"netns del {SPACE}"):
        subprocess.run(["ip", *line.split()], capture_output=True, check=False)
    _remove_cgroups(end)
    if folder().exists():
        shutil.rmtree(folder())


def run(*command: str, check: bool = True, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in the box to its end."""
    return subprocess.run([*_enter(), *command], input=stdin, capture_output=True, text=True, check=check)


def start(name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Start a program in the box; it outlives the caller. Its log is `NAME.log`, its process number in the box `NAME.pid`."""
    script = 'echo $$ > "$0"; exec "$@"'
    line = ["setsid", "--fork", *_enter(), "sh", "-c", script, str(folder() / f"{name}.pid"), *command]
    (folder() / f"{name}.pid").unlink(missing_ok=True)
    with log(name).open("ab") as output:
        given = dict(os.environ) | dict(environment or {})
        subprocess.run(line, env=given, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=True)
    until((folder() / f"{name}.pid").exists, name)


def stop(name: str, how: str = "TERM") -> None:
    """End a program that `start` started, and wait until it is gone; `how` is a signal."""
    kept = folder() / f"{name}.pid"
    if not kept.exists():
        return
    script = 'kill -s "$1" "$2" && while kill -0 "$2" 2>/dev/null; do sleep 0.02; done'
    run("timeout", str(int(STOP_SECONDS)), "sh", "-c", script, "sh", how, kept.read_text().strip(), check=False)
    kept.unlink(missing_ok=True)


def alive(name: str) -> bool:
    """Return True if a program that `start` has started is running."""
    kept = folder() / f"{name}.pid"
    return kept.exists() and run("sh", "-c", f"kill -0 {kept.read_text().strip()}", check=False).returncode == 0


def log(name: str) -> Path:
    """Return the file with the output of a program."""
    return folder() / f"{name}.log"


def until(ready: Callable[[], bool], name: str, seconds: float = START_SECONDS, log: Path | None = None) -> None:
    """Wait for a condition of a program. Raises DidNotStart at the deadline, or when the program is gone."""
    began = looked = time.monotonic()
    pause = LOOK_SECONDS
    while not ready():
        now, gone = time.monotonic(), False
        if now - looked > ALIVE_SECONDS:
            looked, gone = now, (folder() / f"{name}.pid").exists() and not alive(name)
        if gone or now - began > seconds:
            kept = log or folder() / f"{name}.log"
            tail = kept.read_text(errors="replace")[-3000:] if kept.exists() else ""
            raise DidNotStart(f"{name} {'ended' if gone else f'was not ready in {seconds:.0f} s'}:\n{tail}")
        time.sleep(pause)
        pause = min(pause * 1.2, LOOK_SECONDS_LATER)


def seen(look: Callable[[], T], good: Callable[[T], bool], name: str, seconds: float = START_SECONDS) -> T:
    """Repeat `look` until its result is good and return that. Raises AssertionError with the last result at the deadline."""
    found: list[T] = []

    def is_good() -> bool:
        found[:] = [look()]
        return good(found[0])

    try:
        until(is_good, name, seconds)
    except DidNotStart as error:
        raise AssertionError(f"last seen: {found}") from error
    return found[0]


def _enter() -> list[str]:
    return ["nsenter", "--target", str(_init()), "--mount", "--pid", "--uts", "--ipc", "--net", "--wd=/"]


def _init() -> int:
    """Process 1 of the box, as this machine numbers it."""
    for pid in _pids():
        with contextlib.suppress(OSError):
            numbers = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("NSpid:"))
            if numbers.split()[2:] == ["1"]:
                return pid
    raise RuntimeError(f"no cluster is up: see {folder() / 'box.log'}")


def _pids() -> list[int]:
    listed = subprocess.run(["ip", "netns", "pids", SPACE], capture_output=True, text=True, check=False)
    return [int(pid) for pid in listed.stdout.split()]


def _spaces() -> bool:
    return Path("/run/netns", SPACE).exists()


def _controllers() -> list[Path]:
    """The folder of each cgroup hierarchy: one for version 2, one a controller for version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return sorted(path for path in CGROUPS.iterdir() if os.path.ismount(path))


def _remove_cgroups(end: float) -> None:
    """Cgroups can be removed once the kernel has let go of their last process."""
    while left := [Path(path) for top in _controllers() for path, _, _ in os.walk(top / CGROUP, topdown=False)]:
        for path in left:
            with contextlib.suppress(OSError):
                path.rmdir()
        if time.monotonic() > end:
            raise RuntimeError(f"cgroups do not go away: {left}")


def _ip(*lines: str, space: str = "") -> None:
    options = ["-n", space] if space else []
    done = subprocess.run(
        ["ip", *options, "-batch", "-"], input="\n".join(lines) + "\n", text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"ip: {done.stderr.strip()}")
