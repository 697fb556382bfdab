"""The engine of an image build is killed at random points: going on ends in the same bytes, and nothing is half there.

Boots are those of the first image, which is the same to the byte: the runs here reuse them, as a person would.
"""

import json
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from steps.contract.image.manifest import decode
from tests.boot.builder.started import descendants, mounts
from tests.boot.pipeline.site import NAME, Site, digests
from tests.hosts.hostlab.waiting import until
from tests.hosts.killing import chance

LONGEST = 6.0
"""Seconds between two kills, at most: the longest part takes some twenty."""
MOST_IN_A_RUN = 5
END_SECONDS = 600.0


def again(site: Site, reference: str, log: Path) -> subprocess.Popen[str]:
    """Begin the build, or go on where one was begun."""
    begun = (site.home / "engine").is_dir() and any((site.home / "engine").iterdir())
    words = ("resume",) if begun else ("image", "build", "--reuse", reference)
    return site.start(*words, log=log)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the engine with `kill -9`; what it had started may go on until the next engine ends it."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def is_sound(site: Site) -> None:
    """Whatever has its own name is whole: published versions, packed images, layers; the pointer leads to a whole version."""
    for version in (site.tree / NAME / "versions").glob("*"):
        made = decode((version / "manifest.json").read_bytes())
        found = digests(version)
        assert {part.name: part.digest.removeprefix("sha256:") for part in made.parts}.items() <= found.items(), version
    for packed in site.images.glob("assembled/*/manifest.json"):
        assert {part.name for part in decode(packed.read_bytes()).parts} <= {path.name for path in packed.parent.iterdir()}
    for entry in (path for path in site.images.glob("layers/*") if len(path.name) == 64):
        assert json.loads((entry / "entry.json").read_text()), entry


def disturbed(site: Site, reference: str, luck: random.Random, most: int, log: Path) -> int:
    """One build to its end with at most so many kills; how many there were."""
    kills, process = 0, again(site, reference, log)
    try:
        while kills < most:
            try:
                process.wait(luck.uniform(0.2, LONGEST))
                break
            except subprocess.TimeoutExpired:
                kill(process)
                kills += 1
                is_sound(site)
                process = again(site, reference, log)
        assert process.wait(END_SECONDS) == 0, log.read_text()[-6000:]
    finally:
        process.kill()
        process.wait()
    return kills


@pytest.mark.parametrize("wanted", [10, pytest.param(30, marks=pytest.mark.long)])
def test_killed_at_random_points_it_ends_in_the_same_bytes(first: Site, tmp_path: Path, wanted: int) -> None:
    luck, kills, number = chance(), 0, 0
    while kills < wanted:
        number += 1
        folder, log = tmp_path / f"site{number}", tmp_path / f"log{number}"
        site = Site(folder, first.images / "archive")
        shutil.copytree(first.home / "store/runs" / first.runs[0], site.home / "store/runs" / first.runs[0])
        kills += disturbed(site, first.runs[0], luck, min(MOST_IN_A_RUN, wanted - kills), log)
        assert site.published() == first.published(min(path.name for path in (first.tree / NAME / "versions").iterdir()))
        for task in ("image_layers.layer_base", "image_assemble.outputs"):
            made = [
                one for one in site.records(*task.split(".")) if one.get("observation") and not one["observation"].get("cached")
            ]
            assert len(made) <= 1, f"{task} was finished, and made again"
        assert until(lambda site=site: not [pid for pid in descendants(1) if _works_in(pid, site.folder)], 30), "a process lives on"
        assert mounts(site.folder) == []
        assert not list((site.tree / NAME / "incoming").glob("*")) or site.run("image", "verify", "image.yaml")
        shutil.rmtree(folder)
    print(f"{kills} kills in {number} builds")


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
