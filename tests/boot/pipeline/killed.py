"""An image build whose engine is killed at random points and told to go on, until it has ended.

A kill counts for the stage that it hit, and only if it ended an engine that was not done. Files that were finished at a kill must
have the same inode and time at the end.
"""

import contextlib
import functools
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

from steps.clients.releases import publication
from steps.nodeimage.contract.image_manifest import decode
from steps.nodeimage.layer import layer_integrity
from steps.nodeimage.publishing import image_release
from tests.boot.builder.started import descendants
from tests.boot.pipeline.site import NAME, Site, digests
from tests.hosts.hostlab.waiting import until

STAGES = {
    "image_lock": ("image_status/judge", 0.4),
    "image_layers": ("image_lock/judge", 8.0),
    "image_assemble": ("image_layers/judge", 10.0),
    "image_sandbox": ("image_assemble/judge", 0.8),
    "image_boot": ("image_sandbox/judge", 0.5),
    "image_publish": ("image_boot/judge", 1.5),
}
"""Stage → the task whose record lets it begin, and within how many seconds after that it is killed."""
IN_A_RUN = ("image_layers", "image_assemble", "image_sandbox", "image_boot", "image_publish", "image_publish", "image_lock")
"""Stages in which runs are killed, taken in turn; the kills of one run follow the order of the stages."""
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


def kill(process: subprocess.Popen[str]) -> bool:
    """Kill the engine with `kill -9`; what it had started may go on until the next engine ends it. Whether that is what ended the
    engine, and not its own end just before."""
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def unfinished(site: Site) -> str:
    """The stage that the run is in: the first without its gate's record; empty where all have one, and only the report is left."""
    return next((stage for stage in STAGES if not recorded(site, f"{stage}/judge")), "")


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


def is_whole(site: Site) -> None:
    """Check that every cached layer and packed image is intact: the product's own verification reads it to its last byte."""
    layer = [path.name for path in site.images.glob("layers/*") if len(path.name) == 64]
    packed = [path for path in site.images.glob("assembled/*") if len(path.name) == 64]
    assert layer, site.images
    assert packed, site.images
    assert [wrong for key in layer if (wrong := layer_integrity.verify(site.images, key))] == []
    for folder in packed:
        publication.examine(folder, image_release.load(folder).manifest.parts)


Finished = dict[Path, tuple[int, int]]


def finished(site: Site) -> Finished:
    """Layers and packed images that are done: the last file of each, as it was written then. Made again it is another one."""
    done = (*site.images.glob("layers/*/entry.json"), *site.images.glob("assembled/*/manifest.json"))
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in done if not path.parent.name.startswith(".")}


def not_made_again(site: Site, before: Finished) -> Finished:
    """Return what is finished now, after a check that nothing finished before is gone or was made again."""
    now = finished(site)
    assert before.items() <= now.items(), f"done, and made again or gone: {dict(before.items() - now.items())}"
    return now


def in_a_boot(site: Site, luck: random.Random, log: Path) -> None:
    """One build to its end, killed once while a test machine boots."""
    process = again(site, "none", log)
    try:
        assert until(functools.partial(_boots, process), END_SECONDS), log.read_text()[-6000:]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(luck.uniform(0.0, 5.0))
        assert kill(process), log.read_text()[-6000:]
        assert unfinished(site) == "image_boot"
        is_sound(site)
        done = finished(site)
        process = again(site, "none", log)
        assert process.wait(END_SECONDS) == 0, log.read_text()[-6000:]
        not_made_again(site, done)
    finally:
        process.kill()
        process.wait()


def _boots(process: subprocess.Popen[str]) -> bool:
    """Return True if the engine runs a test machine, or has ended."""
    return process.poll() is not None or any(works_in(pid, Path("qemu-system")) for pid in descendants(process.pid))


def places(number: int, missing: int, kills: list[str]) -> list[str]:
    """The stages in which run `number` is to be killed, in running order: each has its turn over the runs. Where enough have hit,
    or nearly, those that none has hit yet go first: chance may let a stage end before its kill comes."""
    start = number * MOST_IN_A_RUN
    turn = [IN_A_RUN[(start + step) % len(IN_A_RUN)] for step in range(MOST_IN_A_RUN)]
    spared = [stage for stage in STAGES if stage not in kills]
    chosen = turn if missing >= MOST_IN_A_RUN else [*spared, *turn][: max(missing, len(spared))][:MOST_IN_A_RUN]
    return sorted(chosen, key=list(STAGES).index)


def disturbed(site: Site, reference: str, luck: random.Random, stages: list[str], log: Path) -> list[str]:
    """One build to its end, killed once from the beginning of each of these stages on; which stages the kills hit. What was killed
    had not ended, and was not done with its stages. What was finished at a kill is not made again."""
    kills: list[str] = []
    done: Finished = {}
    process = again(site, reference, log)
    try:
        for stage in stages:
            before, seconds = STAGES[stage]
            until(functools.partial(_begins, site, before, process), END_SECONDS)
            try:
                process.wait(luck.uniform(0.0, seconds))
                break
            except subprocess.TimeoutExpired:
                if not kill(process):
                    break
                if hit := unfinished(site):
                    kills.append(hit)
                is_sound(site)
                done = not_made_again(site, done)
                process = again(site, reference, log)
        assert process.wait(END_SECONDS) == 0, log.read_text()[-6000:]
        not_made_again(site, done)
    finally:
        process.kill()
        process.wait()
    return kills


def _begins(site: Site, before: str, process: subprocess.Popen[str]) -> bool:
    return recorded(site, before) or process.poll() is not None


def recorded(site: Site, task: str) -> bool:
    """Return True if a task (`STAGE/NAME`) of the newest run has written its record."""
    engines = site.home / "engine"
    newest = max((path.name for path in engines.iterdir()), default="") if engines.is_dir() else ""
    return any((site.home / "store/runs" / newest / "evidence" / task).rglob("*.json")) if newest else False


def works_in(pid: int, folder: Path) -> bool:
    """Return True if the command line of a process contains this path or program name."""
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
