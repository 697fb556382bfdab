"""Plays that do not come to their own end: one host hangs, Ansible is killed, or this machine has no room for what it writes."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hostlab import faults
from hostlab.census import plays
from hostlab.host import Host
from hostlab.lab import Lab

from steps.clients.ansible import playing
from steps.contract.host_play import FailureKind, HostStatus, PlayEvent, PlayHost, PlayRequest, PlayStatus

pytestmark = pytest.mark.sampled("preparing hosts")

SECONDS = 50
"""Of a play in which one host hangs, far longer than that."""


def request(made: Lab, *hosts: PlayHost, **words: Any) -> PlayRequest:
    """A play that asks each host one thing."""
    reached = hosts or tuple(host_of(made, host) for host in made.hosts)
    return PlayRequest(playbook="identify", hosts=reached, known_hosts=str(made.known_hosts), **words)


def host_of(made: Lab, host: Host, **words: Any) -> PlayHost:
    return PlayHost(name=host.name, address=host.address, key_path=str(made.key), **words)


def test_a_host_that_hangs_in_a_short_play_fails_alone(up: Any) -> None:
    made = up(2)
    hangs = host_of(made, made.hosts[1], python=faults.python_that_waits(made.hosts[1], 600))

    result = playing.play(request(made, host_of(made, made.hosts[0]), hangs, timeout_seconds=SECONDS))

    assert [(row.status, row.kind) for row in result.hosts] == [
        (HostStatus.OK, None),
        (HostStatus.FAILED, FailureKind.TIMEOUT),
    ], [row.message for row in result.hosts]
    assert result.status is PlayStatus.FAILED
    assert result.finished - result.started < SECONDS


def playbooks() -> list[int]:
    """The processes of Ansible that this one has started."""
    children = [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    return [int(pid) for pid in children if b"ansible-playbook" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_an_ansible_that_is_killed_is_started_once_more(up: Any) -> None:
    made = up(2)
    killed: list[int] = []

    def kill(event: PlayEvent) -> None:
        if event.event == "runner_on_start" and not killed:
            killed.extend(playbooks())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    result = playing.play(request(made), on_event=kill)

    assert len(killed) == 1
    assert [(row.status, row.tries) for row in result.hosts] == [(HostStatus.OK, 2)] * 2, [row.message for row in result.hosts]
    assert (result.status, result.message) == (PlayStatus.OK, "")
    assert plays() == []


PLAY = """
import sys, msgspec
from pathlib import Path
from steps.clients.ansible import playing
from steps.contract.host_play import PlayRequest
from steps.errors import Temporary
request = msgspec.json.decode(sys.stdin.buffer.read(), type=PlayRequest)
def fill(event):
    try:
        Path(sys.argv[1], "filled").write_bytes(bytes(1 << 20))
    except OSError:
        pass
try:
    playing.play(request, on_event=fill)
except Temporary as error:
    print(error, error.hint)
"""


@pytest.fixture
def small() -> Iterator[Path]:
    """A file system of half a MiB, at a path that is short enough for SSH's sockets."""
    with tempfile.TemporaryDirectory(prefix="small-", dir="/tmp") as place:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", place], check=True)
        yield Path(place)
        subprocess.run(["umount", place], check=True)


def test_a_full_disk_where_the_play_runs_is_temporary_and_no_fault_of_the_hosts(up: Any, small: Path) -> None:
    made = up(1)
    environment = os.environ | {"PYTHONPATH": str(Path(playing.__file__).parents[3]), "TMPDIR": str(small)}

    done = subprocess.run(
        [sys.executable, "-c", PLAY, str(small)],
        input=msgspec.json.encode(request(made)),
        env=environment,
        capture_output=True,
        check=False,
    )

    assert b"cannot be played here: No space left on device" in done.stdout, done.stderr.decode()
    assert b"space for temporary files" in done.stdout
