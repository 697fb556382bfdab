"""Builds in processes of their own: started, killed, and looked after until nothing of them is left."""

import contextlib
import os
import select
import signal
import subprocess
import tempfile
from pathlib import Path

import msgspec

from steps.nodeimage.contract import resolved_recipe
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.stages.image_layers.contract import Built
from tests.boot.builder import tiny
from tests.hosts.hostlab.waiting import until

ROOT = Path(__file__).parents[3]
SECONDS = 120.0
ENDING_MS = 20_000


class Build:
    """One build of a layer by `driver`; its lines go to a file."""

    def __init__(self, images: Path, wanted: Recipe, layer: str, prefix: tuple[str, ...] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=images))
        (self.folder / "recipe.json").write_bytes(resolved_recipe.encode(wanted))
        self.output = self.folder / "output"
        self.folder.chmod(0o755)
        with self.output.open("w") as stream:
            command = [*prefix, *tiny.DRIVER, str(images), str(self.folder / "recipe.json"), layer]
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=stream, stderr=stream, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )

    def said(self, line: str) -> bool:
        """Return True if the build has printed a line that starts with this text."""
        return any(found.startswith(line) for found in self.output.read_text().splitlines())

    def wait_for(self, line: str) -> None:
        assert until(lambda: self.said(line) or self.process.poll() is not None, SECONDS), self.output.read_text()
        assert self.said(line), self.output.read_text()

    def built(self) -> Built:
        """Wait until the build has ended and return its result."""
        self.process.wait(SECONDS)
        return msgspec.json.decode(self.output.read_text().splitlines()[-1], type=Built)

    def kill(self) -> None:
        """Kill it with `kill -9`, and wait until all that it had started is gone."""
        family = []
        for pid in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):  # ended by itself meanwhile
                family.append(os.pidfd_open(pid))
        try:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            for handle in family:
                assert select.select([handle], [], [], ENDING_MS / 1000)[0], "a process of the killed build lives on"
        finally:
            for handle in family:
                os.close(handle)


def descendants(pid: int) -> list[int]:
    """Every process that descends from one."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(after[1]), []).append(int(path.parent.name))
    found, new = [], [pid]
    while new:
        new = [child for one in new for child in children.get(one, [])]
        found += new
    return found


def mounts(folder: Path) -> list[str]:
    """Mounts below a folder, in any namespace that a process here is in."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            found |= {line for line in path.read_text().splitlines() if str(folder) in line}
        except OSError:
            continue
    return sorted(found)


def running(word: str) -> list[int]:
    """Programs that were told a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in words:
            found.append(int(path.parent.name))
    return found
