"""Another date for a build, by libfaketime: for the builder's own processes, and by a layer for the packages that it installs.

Programs that make an initrd still see the machine's date.
"""

import hashlib
import json
import shutil
import time
from pathlib import Path

from steps.nodeimage.contract.resolved_recipe import PlacedFile, ResolvedLayer

LIBFAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
LIBRARY = "/opt/clock/libfaketime.so.1"
DPKG = "/usr/local/sbin/dpkg"
DAY = 86_400


def later(folder: Path, days: int) -> Path:
    """A folder on whose path Pythons, and what they start, see a date so many days later; times of files and waits stay."""
    shutil.copytree(Path(__file__).with_name("later"), folder, ignore=shutil.ignore_patterns("__pycache__"))
    told = {"LD_PRELOAD": str(LIBFAKETIME), "FAKETIME": f"+{days}d", "NO_FAKE_STAT": "1", "DONT_FAKE_MONOTONIC": "1"}
    (folder / "environment.json").write_text(json.dumps(told))
    return folder


def layer(days: int) -> tuple[ResolvedLayer, dict[str, bytes]]:
    """A lowest layer, whose dpkg sees that date and ends with 9 where it does not; and its files by digest."""
    early = int(time.time()) + days * DAY - DAY
    later = f"export LD_PRELOAD={LIBRARY} FAKETIME=+{days}d\ntest $(date +%s) -gt {early} || exit 9"
    texts = {
        LIBRARY: LIBFAKETIME.read_bytes(),
        DPKG: f'#!/bin/sh\n{later}\nexec /usr/bin/dpkg "$@"\n'.encode(),
        # libfaketime 0.9.10 finds no file for it: its stat is of an older C library
        "/usr/local/sbin/update-alternatives": b'#!/bin/sh\nunset LD_PRELOAD\nexec /usr/bin/update-alternatives "$@"\n',
    }
    files = {hashlib.sha256(data).hexdigest(): data for data in texts.values()}
    placed = tuple(PlacedFile(path=path, sha256=digest, mode=0o755) for path, digest in zip(texts, files, strict=True))
    return ResolvedLayer(name="clock", files=placed), files
