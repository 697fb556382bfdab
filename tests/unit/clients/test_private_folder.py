"""Private folders of plays: gone with their play, and with the next one where a play was killed."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import steps
from steps.clients.private_folder import private_folder

CHILD = """
import sys
from steps.clients.private_folder import private_folder
with private_folder(sys.argv[1]) as folder:
    (folder / "key0").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for temporary files that is as short as a socket's path asks for."""
    with tempfile.TemporaryDirectory(prefix="b-", dir="/tmp") as folder:
        yield Path(folder)


def start(place: Path) -> tuple[subprocess.Popen[bytes], Path]:
    environment = os.environ | {"PYTHONPATH": str(Path(steps.__file__).parents[1])}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert child.stdout is not None
    return child, Path(child.stdout.readline().decode().strip())


def test_a_folder_is_for_its_owner_and_goes_with_its_play(place: Path) -> None:
    with private_folder(str(place)) as folder:
        assert (folder.parent, folder.stat().st_mode & 0o777) == (place, 0o700)
    assert not list(place.iterdir())


def test_what_a_killed_play_left_goes_and_what_a_living_one_uses_stays(place: Path) -> None:
    dead, left = start(place)
    living, used = start(place)
    with dead, living:
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert (left / "key0").exists()

        with private_folder(str(place)):
            assert not left.exists()
            assert (used / "key0").exists()
        living.communicate(b"")
    assert not list(place.iterdir())
