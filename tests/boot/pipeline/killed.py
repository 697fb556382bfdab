"""An image build whose engine is killed at random points and told to go on, until it has ended."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

from steps.contract.image.manifest import decode
from tests.boot.pipeline.site import NAME, Site, digests

LONGEST = 6.0
"""Seconds between two kills, at most: the longest part takes some twenty."""
MOST_IN_A_RUN = 5
END_SECONDS = 600.0


def chance() -> random.Random:
    """Chance that can be had again: `BRINGUP_SEED` says its seed, which is printed."""
    seed = int(os.environ.get("BRINGUP_SEED") or time.time_ns() % 1_000_000)
    print(f"seed {seed} (BRINGUP_SEED)")
    return random.Random(seed)


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


def works_in(pid: int, folder: Path) -> bool:
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
