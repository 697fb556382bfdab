"""Upstream tarballs of Debian 12, fetched once from the mirror that this machine's apt uses, and kept in a cache folder.

`debian_sources.tsv` pins each file by its path in the mirror and its SHA-256. apt's own program fetches, with the proxies and
certificates of apt. The cache folder is `$BRINGUP_CACHE`, else `~/.cache/bringup`, with `stack-sources` below it.
"""

import hashlib
import os
import subprocess
from pathlib import Path

PINS = Path(__file__).with_suffix(".tsv")
OWN = Path(__file__).with_name("sources")
"""Sources of programs that exist for these tests alone."""
APT_HELPER = "/usr/lib/apt/apt-helper"
FETCH_SECONDS = 300
FORMAT = "$(REPO_URI)"


class SourceMissingError(Exception):
    """Error: a tarball is in no cache, and no mirror of this machine has it."""


def folder() -> Path:
    """Return the cache folder of the tarballs."""
    return Path(os.environ.get("BRINGUP_CACHE") or Path.home() / ".cache" / "bringup") / "stack-sources"


def pins() -> dict[str, str]:
    """Return the SHA-256 of each tarball by its path in a mirror."""
    lines = PINS.read_text().splitlines()
    return dict(line.split("\t", 1) for line in lines)


def fetch() -> Path:
    """Fill the cache folder and return it. Raises SourceMissingError with the reason if a tarball is not to be had."""
    folder().mkdir(parents=True, exist_ok=True)
    missing = {path: sha256 for path, sha256 in pins().items() if not _is_kept(path, sha256)}
    mirrors = _mirrors() if missing else []
    for path, sha256 in missing.items():
        _fetch_one(path, sha256, mirrors)
    return folder()


def _is_kept(path: str, sha256: str) -> bool:
    file = folder() / Path(path).name
    return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == sha256


def _mirrors() -> list[str]:
    """Return the addresses of Debian's mirrors in this machine's apt sources."""
    command = ["apt-get", "indextargets", "--format", FORMAT, "Identifier: Packages", "Origin: Debian"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    addresses = list(dict.fromkeys(line.rstrip("/") for line in done.stdout.splitlines() if line.strip()))
    if not addresses:
        raise SourceMissingError("this machine's apt names no Debian mirror: run apt-get update, or add one to its sources")
    return addresses


def _fetch_one(path: str, sha256: str, mirrors: list[str]) -> None:
    target = folder() / Path(path).name
    reasons = []
    for mirror in mirrors:
        partial = folder() / f".{os.getpid()}.part"
        command = [APT_HELPER, "download-file", f"{mirror}/{path}", str(partial), f"SHA256:{sha256}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS)
            if done.returncode == 0:
                partial.replace(target)
                return
            reasons += [line for line in done.stderr.splitlines() if line.startswith("E:")][:1]
        except subprocess.TimeoutExpired:
            reasons.append(f"{mirror} did not send it in {FETCH_SECONDS} s")
        finally:
            partial.unlink(missing_ok=True)
    raise SourceMissingError(f"{target.name} cannot be fetched: {'; '.join(reasons) or 'no mirror answered'}")
