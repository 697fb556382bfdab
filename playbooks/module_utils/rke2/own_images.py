"""Image archives of the site's own, which lie in one folder with the files of releases: which there are, and their checksums."""

from __future__ import annotations

import glob
import os
import re

ENDINGS = (".tar", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.lz4")
"""What RKE2 loads from its folder of images (k3s, pkg/agent/containerd); it takes .tgz too, as which charts lie in folders."""
SUM = re.compile(r"([0-9a-f]{64})[ *]+(\S+)")
RKE2 = re.compile(r"rke2(-images[a-z0-9-]*)?\.(linux|windows)-[a-z0-9]+\.|rke2-windows-")
"""How names of a release's archives begin, of any machine and system."""


def list_name(architecture: str) -> str:
    """The site's list, as the release's own has its machines' architecture in its name: the same image is another one elsewhere."""
    return "sha256sum-site-%s.txt" % architecture


def is_archive(name: str) -> bool:
    """Whether RKE2 would load a file of this name."""
    return name.lower().endswith(ENDINGS)


def names(folder: str, architecture: str) -> set:
    """Names of the archives that are there, or that the list has, but those of a release for other machines, and those that only a
    list for other machines has. Raises ValueError."""
    found = {one for one in _names(folder) if is_archive(one) and os.path.isfile(os.path.join(folder, one))}
    pattern = os.path.join(glob.escape(folder), list_name("*"))
    lists = {os.path.basename(path): set(checksums(path)) for path in glob.glob(pattern)}
    mine = lists.pop(list_name(architecture), set())
    others = set().union(*lists.values()) - mine
    return {one for one in (found - others) | mine if not RKE2.match(one) or ".linux-%s." % architecture in one}


def checksums(path: str) -> dict:
    """File → sha256, as the site's list says; empty where there is none. Raises ValueError for a line that says something else."""
    if not os.path.isfile(path):
        return {}
    with open(path, errors="replace") as source:
        lines = [line.strip() for line in source]
    found = {}
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        match = SUM.fullmatch(line)
        name = os.path.basename(match.group(2)) if match else ""
        if not match or not is_archive(name):
            said = "%s, line %d, is not the sha256 of an image archive (%s): write it by sha256sum ARCHIVE…"
            raise ValueError(said % (path, number, ", ".join(ENDINGS)))
        found[name] = match.group(1)
    return found


def _names(folder: str) -> list:
    return os.listdir(folder) if os.path.isdir(folder) else []
