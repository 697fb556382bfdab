"""A function called in a namespace sees its layers and nothing else, answers or says why not, and leaves nothing behind."""

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from steps.errors import BadTask, Refused, StepError, Temporary
from steps.nodeimage.containment import namespace
from tests.boot.builder.called import Seen, Word
from tests.boot.builder.started import ROOT, descendants, mounts, running
from tests.hosts.hostlab.waiting import until

CALLED = "tests.boot.builder.called"
SECONDS = 60.0
NOBODY = 0xFFFFFFFF
"""No one's id, in the entries of an access list that name none."""


@pytest.fixture
def stack(tmp_path: Path) -> tuple[Path, ...]:
    """Two layers with names that mount options would take apart."""
    upper, lower = tmp_path / "up,per:one", tmp_path / "lo\\wer"
    for folder, name in ((upper, "high"), (lower, "low")):
        folder.mkdir()
        (folder / name).write_text(name)
    return upper, lower


def see(stack: tuple[Path, ...], **options: object) -> Seen:
    return namespace.call(stack, f"{CALLED}:see", Word("hello"), Seen, seconds=SECONDS, **options)  # type: ignore[arg-type]


def test_sees_the_layers_and_itself_alone(stack: tuple[Path, ...]) -> None:
    lines: list[str] = []
    found = see(stack, say=lines.append)
    assert found == Seen(names=["high", "low"], processes=1, user=0, host="image")
    assert lines == ["said hello"]
    assert os.uname().nodename != "image"
    assert not mounts(stack[0])


def test_one_layer_and_none(stack: tuple[Path, ...]) -> None:
    assert see(stack[:1]).names == ["high"]
    assert "etc" in see(()).names


def test_changes_go_to_the_upper_folder_alone(stack: tuple[Path, ...], tmp_path: Path) -> None:
    upper = tmp_path / "new" / "tree"
    upper.mkdir(parents=True)
    for _ in range(2):
        found = namespace.call(stack, f"{CALLED}:write", Word("x"), Seen, upper=upper, seconds=SECONDS)
        assert found.names == ["high", "new"]
        (upper / "low").unlink()
    assert (upper / "new").read_text() == "x"
    assert (stack[1] / "low").exists()


def test_without_an_upper_folder_it_is_read_only(stack: tuple[Path, ...]) -> None:
    with pytest.raises(StepError, match="Read-only file system"):
        namespace.call(stack, f"{CALLED}:write", Word("x"), Seen, seconds=SECONDS)


def setgid(folder: Path) -> None:
    os.chown(folder, 0, 1234)
    folder.chmod(0o2775)


def listed(folder: Path) -> None:
    """A default access list: whatever is made below may be written by group 1234."""
    entries = ((0x01, 7, NOBODY), (0x04, 5, NOBODY), (0x08, 7, 1234), (0x10, 7, NOBODY), (0x20, 5, NOBODY))
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(folder, "system.posix_acl_default", value)
    (folder / "probe").mkdir()
    assert os.listxattr(folder / "probe"), "a folder made there has the list too"


@pytest.mark.parametrize("rights", [setgid, listed])
def test_the_rights_of_the_folder_around_stay_outside(
    rights: Callable[[Path], None], stack: tuple[Path, ...], tmp_path: Path
) -> None:
    around = tmp_path / "around"
    around.mkdir()
    rights(around)
    upper = around / "tree"
    upper.mkdir()
    found = namespace.call(stack, f"{CALLED}:make", Word("made"), list[str], upper=upper, seconds=SECONDS)
    assert found == ["755 0 []", "755 0 []", "644 0 []"]


def test_a_store_whose_file_system_gives_groups_on_is_one_sentence(tmp_path: Path) -> None:
    disk, place = tmp_path / "disk", tmp_path / "place"
    disk.touch()
    os.truncate(disk, 8 << 20)
    place.mkdir()
    subprocess.run(["mkfs.ext4", "-q", disk], check=True)
    subprocess.run(["mount", "-o", "loop,grpid", disk, place], check=True)
    try:
        (place / "tree").mkdir()
        with pytest.raises(BadTask, match="get the group of their folder") as told:
            see((), upper=place / "tree")
        assert "grpid" in told.value.hint
    finally:
        subprocess.run(["umount", place], check=True)


def test_errors_come_back_as_themselves(stack: tuple[Path, ...]) -> None:
    with pytest.raises(Refused, match=r"^no way$") as told:
        namespace.call(stack, f"{CALLED}:refuse", Word("way"), Seen, seconds=SECONDS)
    assert told.value.hint == "ask again"
    with pytest.raises(StepError, match=r"called:fail: ValueError\('x+'\): .*called\.py:\d+") as long:
        namespace.call(stack, f"{CALLED}:fail", Word("x" * 400), Seen, seconds=SECONDS)
    assert len(str(long.value)) < 800
    with pytest.raises(StepError, match="ended without an answer: last words: bye"):
        namespace.call(stack, f"{CALLED}:die", Word("bye"), Seen, seconds=SECONDS)
    with pytest.raises(BadTask, match=f"no function {CALLED}:none"):
        namespace.call(stack, f"{CALLED}:none", Word(), Seen, seconds=SECONDS)
    with pytest.raises(BadTask, match="is gone"):
        see((stack[0] / "gone",))


def test_what_takes_too_long_is_ended(stack: tuple[Path, ...]) -> None:
    with pytest.raises(Temporary, match="called:hang took longer than 1 s: "):
        namespace.call(stack, f"{CALLED}:hang", Word("987654"), Seen, seconds=1)
    assert until(lambda: not running("987654"), SECONDS)


def test_with_its_caller_everything_ends(stack: tuple[Path, ...]) -> None:
    script = (
        "import sys; from pathlib import Path;"
        "from steps.nodeimage.containment import namespace; from tests.boot.builder.called import Word;"
        f"namespace.call(tuple(map(Path, sys.argv[1:])), '{CALLED}:hang', Word('876543'), int, seconds=600,"
        " say=lambda line: print(line, flush=True))"
    )
    command = [sys.executable, "-c", script, *map(str, stack)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as caller:
        try:
            assert caller.stdout is not None
            assert caller.stdout.readline() == "hangs\n"
            assert len(descendants(caller.pid)) >= 3
            assert until(lambda: running("876543"), SECONDS)  # a shell says so while its child is still a shell
        finally:
            caller.kill()
    assert until(lambda: not running("876543"), SECONDS)
    assert not mounts(stack[0])


def test_a_store_on_an_overlay_is_one_sentence(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("lower", "upper", "work", "merged")]
    for folder in folders:
        folder.mkdir()
    options = f"lowerdir={folders[0]},upperdir={folders[1]},workdir={folders[2]}"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "none", folders[3]], check=True)
    try:
        (folders[3] / "tree").mkdir()
        with pytest.raises(BadTask, match=r"layers cannot be mounted over each other there: .*Invalid argument") as told:
            see((), upper=folders[3] / "tree")
        assert "local file system" in told.value.hint
    finally:
        subprocess.run(["umount", folders[3]], check=True)
