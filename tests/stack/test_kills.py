"""The engine is killed at random points of builds and of promotions, and told to go on.

A kill counts only if it ended an engine that was not done. What was finished at a kill must be there unchanged at the end.
"""

import contextlib
import functools
import hashlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.hosts.hostlab.waiting import until
from tests.stack.conftest import SiteMaker
from tests.stack.stack_site import SECONDS, Site

KILLS = {"stack_build": ("run/open", 6.0), "stack_publish": ("stack_test/judge", 1.0)}
"""Stage → the task whose record lets it begin, and within how many seconds after that it is killed."""
IN_A_RUN = ("stack_build", "stack_build", "stack_build", "stack_publish", "stack_publish")
Finished = dict[Path, tuple[int, int]]


@pytest.mark.parametrize("wanted", [10, pytest.param(30, marks=pytest.mark.long)])
def test_kills_leave_nothing_half_published_and_nothing_finished_is_built_again(small: SiteMaker, wanted: int) -> None:
    seed = int(os.environ.get("BRINGUP_SEED") or time.time_ns() % 1_000_000)
    print(f"seed {seed} (BRINGUP_SEED)")
    chance = random.Random(seed)
    site = small("bzip2", "bsdiff", suffix=f"_{wanted}")
    kills = list[str]()
    for number in range(2 * wanted):
        missing = wanted - len(kills)
        if missing <= 0:
            break
        site.change("bzip2", new=f"# {seed} {number}\n")
        site.run("lock")
        kills += disturbed(site, chance, IN_A_RUN[-missing:])
        assert site.current.startswith(f"{number + 1:04}-")
        site.run("verify", "--stack", site.name)
    assert len(kills) >= wanted
    assert set(kills) == set(KILLS)
    site.run("gc")
    # the lock of a release tree stays when nobody holds it
    remains = [path for path in site.published.rglob(".*") if not path.match("incoming/.lock.*")]
    assert remains == [], "gc left something of killed publications"
    assert "builds of 3 packages: 3 are in the cache" in site.run("plan")


def disturbed(site: Site, chance: random.Random, stages: tuple[str, ...]) -> list[str]:
    """Build to the end, killed once in each of these stages; return the stages that were hit."""
    hits = list[str]()
    earlier = len(site.runs) if (site.home / "store/runs").is_dir() else 0
    process = site.start("stack", "build")
    done = Finished()
    try:
        for stage in stages:
            before, seconds = KILLS[stage]
            assert until(functools.partial(may_begin, process, site, earlier, before), SECONDS), site.log.read_text()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.0, seconds))
            process.send_signal(signal.SIGKILL)
            if process.wait() != -signal.SIGKILL:
                break
            hits.append(stage)
            done = finished(site, done)
            is_sound(site)
            process = site.start("resume")
        assert process.wait(SECONDS) == 0, site.log.read_text()[-6000:]
    finally:
        process.kill()
        process.wait()
    finished(site, done)
    is_sound(site)
    return hits


def may_begin(process: subprocess.Popen[str], site: Site, earlier: int, task: str) -> bool:
    """Return True if the run after so many earlier ones has a record of the task, or if its engine has ended."""
    folder = site.home / "store/runs"
    if process.poll() is not None:
        return True
    if not folder.is_dir() or len(site.runs) <= earlier:
        return False
    return any((folder / site.runs[-1] / "evidence" / task).rglob("*.json"))


def finished(site: Site, before: Finished) -> Finished:
    """Return the entries of the build cache as they were written, after a check that none of those before was made again."""
    entries = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in site.cache.rglob("*.json")}
    assert before.items() <= entries.items(), f"made again or gone: {dict(before.items() - entries.items())}"
    return entries


def is_sound(site: Site) -> None:
    """Check that whatever has its own name is whole: cache entries, versions with their packages, and where the pointer leads."""
    for path in site.cache.rglob("*.json"):
        entry = json.loads(path.read_text())["entry"]
        digest = entry["archive"].removeprefix("sha256:")
        (archive,) = path.parent.glob(f"{path.stem}-{digest[:12]}*")
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == digest, path
    pointer = site.published / "current"
    assert not pointer.is_symlink() or pointer.resolve(strict=True).parent.name == "versions"
    versions = site.published / "versions"
    for version in versions.glob("[0-9]*"):
        summed = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=version, capture_output=True, text=True)
        assert summed.returncode == 0, summed
        manifest = json.loads((version / "manifest.json").read_text())
        for package in manifest["packages"]:
            assert (site.root / "packages" / package["folder"]).is_dir(), package
