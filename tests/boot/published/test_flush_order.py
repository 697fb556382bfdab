"""Order of flushes and renames in a publication, as strace sees it: after a power cut no half-written version is visible.

Tests that kill a publisher cannot show this, because the kernel keeps written data in memory after a kill.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

from tests.unit.clients.published.published_trees import KINDS, image, place, published

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from pathlib import Path
from tests.unit.clients.published.published_trees import place, published
published(place(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3])
"""
WRITES = ("write", "pwrite64", "copy_file_range", "sendfile")
FLUSHES = ("fsync", "fdatasync")
RENAMES = ("rename", "renameat", "renameat2")
SECONDS = 60


class Call(Struct, frozen=True):
    """One system call that succeeded: its name, and the paths that it is about, whole."""

    name: str
    paths: tuple[str, ...]


def calls(folder: Path, root: Path, kind: str) -> list[Call]:
    """Trace one publication with strace and return the system calls of all its processes."""
    trace = ",".join((*WRITES, *FLUSHES, *RENAMES))
    strace = ["strace", "-f", "-y", "--seccomp-bpf", "-s", "0", "-o", f"{folder}.trace", "-e", f"trace={trace}"]
    command = [*strace, sys.executable, "-c", PROGRAM, root, folder, kind]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=SECONDS)
    found = re.findall(r"^(\w+)\((.*)\) += \d", "\n".join(_whole(Path(f"{folder}.trace").read_text())), re.MULTILINE)
    return [Call(name, _paths(name, arguments)) for name, arguments in found]


def _whole(trace: str) -> list[str]:
    """Lines of a trace without their process; a call that another process's came in between of is one line, where it ended."""
    begun: dict[str, str] = {}
    lines = []
    for line in trace.splitlines():
        process, _, text = line.partition(" ")
        text = text.strip()
        if text.endswith("<unfinished ...>"):
            begun[process] = text.removesuffix("<unfinished ...>").rstrip()
        elif resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", text):
            lines.append(begun.pop(process, "") + resumed[1])
        else:
            lines.append(text)
    return lines


def test_a_call_that_others_interrupt_is_one_call() -> None:
    trace = '7 fsync(3</a> <unfinished ...>\n8 write(1</b>, ""..., 4) = 4\n7 <... fsync resumed>)    = 0\n'
    assert _whole(trace) == ['write(1</b>, ""..., 4) = 4', "fsync(3</a>)    = 0"]


def _paths(name: str, arguments: str) -> tuple[str, ...]:
    if name in RENAMES:
        return tuple(os.path.join(base, path) for base, path in re.findall(r'(?:AT_FDCWD<([^>]*)>, )?"([^"]*)"', arguments))
    return tuple(re.findall(r"<(/[^>]*)>", arguments)[-1 if name == "copy_file_range" else 0 :][:1])


class Seen(Struct, frozen=True):
    """System calls of one publication, in order."""

    calls: list[Call]

    def renamed(self, target: str) -> tuple[int, str]:
        """When something got this name, and the one that it had."""
        ((at, source),) = [
            (at, one.paths[0]) for at, one in enumerate(self.calls) if one.name in RENAMES and one.paths[1] == target
        ]
        return at, source

    def flushed(self, path: str, after: int, before: int) -> bool:
        """Return True if a file or folder was flushed between two calls."""
        return any(one.name in FLUSHES and one.paths == (path,) for one in self.calls[after + 1 : before])

    def filled(self, path: str) -> int:
        """When a file last got bytes; -1: never, as a folder."""
        return max((at for at, one in enumerate(self.calls) if one.name in WRITES and one.paths == (path,)), default=-1)


def _within(source: str, path: Path) -> list[str]:
    """Return the paths of a folder's entries below the name that the folder had before a rename; an empty list for a file."""
    return [os.path.join(source, name) for name in os.listdir(path)] if path.is_dir() else []


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_is_on_disk_before_the_pointer_leads_to_it(able: None, tmp_path: Path, kind: str) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    published(place(root), image(tmp_path / "a", "a"))
    seen = Seen(calls(image(tmp_path / "b", "b"), root, kind))
    version = (root / "compute/current").resolve()
    named, staged = seen.renamed(str(version))
    pointed, link = seen.renamed(f"{root}/compute/current")
    there = [version, *version.rglob("*")]
    assert len(there) > 8
    for path in there:
        source = os.path.normpath(os.path.join(staged, path.relative_to(version)))
        last = max(seen.filled(name) for name in (source, *_within(source, path)))
        assert last >= 0, path
        assert seen.flushed(source, last, named), f"{path} has its name, and is not on disk"
    assert seen.flushed(f"{root}/compute/versions", named, pointed), "the pointer could lead to a name that is lost"
    assert seen.flushed(os.path.dirname(link), -1, pointed)
    assert seen.flushed(f"{root}/compute", pointed, len(seen.calls)), "the publication ends before the pointer is on disk"


@pytest.mark.parametrize("kind", KINDS)
def test_what_nodes_load_first_is_on_disk_before_it_has_its_name(able: None, tmp_path: Path, kind: str) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    seen = Seen(calls(image(tmp_path / "a", "a"), root, kind))
    entries = [*(root / "boot").iterdir(), root / "compute/history.jsonl"]
    assert {path.name for path in entries} == {"boot.ipxe", "default.ipxe", "gpu.ipxe", "history.jsonl"}
    for path in entries:
        named, source = seen.renamed(str(path))
        assert 0 <= seen.filled(source) < named
        assert seen.flushed(source, seen.filled(source), named), f"{path} has its name, and is not on disk"
        assert seen.flushed(str(path.parent), named, len(seen.calls)), f"{path} may lose its name"
    pointed, _ = seen.renamed(f"{root}/compute/current")
    assert seen.flushed(str(root), -1, pointed), "the folder of the image is a name too"
    assert seen.flushed(f"{root}/compute", -1, pointed)
