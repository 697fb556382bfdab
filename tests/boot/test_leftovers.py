"""The count of what the tier leaves sees what it should: a count that sees nothing would prove nothing."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.boot.leftovers import MARK, Tier

SLEEPS = [sys.executable, "-c", "print(flush=True); input()"]
ENDING_SECONDS = 20.0
ORPHANED = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdin=0).pid, flush=True)"
"""Starts a program and ends: the program's parent is then the first process of the machine."""


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    for name in ("work", "temporary"):
        (tmp_path / name).mkdir()
    return Tier("a-mark", tmp_path / "work", tmp_path / "temporary")


def test_a_marked_process_without_a_parent_and_one_that_works_there_are_seen(tier: Tier) -> None:
    assert tier.left() == {}
    own = os.environ | {MARK: tier.mark}
    command = [sys.executable, "-c", ORPHANED, *SLEEPS]
    with subprocess.Popen(command, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        parent.wait()
        handle = os.pidfd_open(orphan)
        parent.stdout.readline()
        assert [line.split()[0] for line in tier.left()["processes"]] == [str(orphan)]
        parent.stdin.write("\n")
        parent.stdin.flush()
    select.select([handle], [], [], ENDING_SECONDS)
    os.close(handle)
    assert tier.left() == {}
    with subprocess.Popen(SLEEPS, cwd=tier.work, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert [line.split()[0] for line in tier.left()["processes"]] == [str(child.pid)]
        child.communicate(b"\n")
    assert tier.left() == {}


def test_a_mount_in_another_namespace_is_seen(tier: Tier) -> None:
    made = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none {tier.work}; cd /; echo; read line"]
    with subprocess.Popen(made, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert tier.left()["mounts"] == [str(tier.work)]
        child.communicate(b"\n")
    assert "mounts" not in tier.left()


def test_a_folder_for_a_moment_is_seen_and_kept(tier: Tier) -> None:
    (tier.temporary / "bringup-x").mkdir()
    assert tier.left() == {"folders": [str(tier.temporary / "bringup-x")]}
    tier.close()
    assert tier.temporary.is_dir()
    (tier.temporary / "bringup-x").rmdir()
    tier.close()
    assert not tier.temporary.exists()


def test_the_session_itself_is_counted() -> None:
    """Each process of this session has the mark of whoever started it."""
    assert os.environ.get(MARK)
    assert Path(os.environ["TMPDIR"]).name.startswith("bringup-boot-")
