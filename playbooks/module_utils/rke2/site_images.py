"""The site's own image archives, which lie in one folder with a release's files, and their checksum list."""

from __future__ import annotations

import glob
import os
import re

ENDINGS = (".tar", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.lz4")
"""Endings of archives that RKE2 imports from its image folder (k3s, pkg/agent/containerd), without .tgz, which charts have too."""
CHECKSUM_LINE = re.compile(r"([0-9a-f]{64})[ *]+(\S+)")
RELEASE_ARCHIVE = re.compile(r"rke2(-images[a-z0-9-]*)?\.(linux|windows)-[a-z0-9]+\.|rke2-windows-")
"""Pattern of the file names of a release's own archives, for any architecture and system."""


def list_name(architecture: str) -> str:
    """Return the file name of the site's checksum list for an architecture, such as `sha256sum-site-amd64.txt`."""
    return "sha256sum-site-%s.txt" % architecture


def is_archive(name: str) -> bool:
    """Return True if RKE2 would import a file of this name as an image archive."""
    return name.lower().endswith(ENDINGS)


def archive_names(folder: str, architecture: str) -> set:
    """Return the names of image archives in the folder or in the site's checksum list. Raises ValueError for a malformed list.

    Archives of a release for other architectures are left out, as are those that only another architecture's list names.
    """
    names = os.listdir(folder) if os.path.isdir(folder) else []
    archives = {name for name in names if is_archive(name) and os.path.isfile(os.path.join(folder, name))}
    pattern = os.path.join(glob.escape(folder), list_name("*"))
    lists = {os.path.basename(path): set(checksums(path)) for path in glob.glob(pattern)}
    mine = lists.pop(list_name(architecture), set())
    others = set().union(*lists.values()) - mine
    return {name for name in (archives - others) | mine if not RELEASE_ARCHIVE.match(name) or ".linux-%s." % architecture in name}


def checksums(path: str) -> dict:
    """Return file → SHA-256 from a checksum list of the site; empty if the list is missing.

    Raises ValueError for a malformed line.
    """
    if not os.path.isfile(path):
        return {}
    with open(path, errors="replace") as source:
        lines = [line.strip() for line in source]
    sums = {}
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        match = CHECKSUM_LINE.fullmatch(line)
        name = os.path.basename(match.group(2)) if match else ""
        if not match or not is_archive(name):
            message = "%s, line %d, is not the sha256 of an image archive (%s): write it by sha256sum ARCHIVE…"
            raise ValueError(message % (path, number, ", ".join(ENDINGS)))
        sums[name] = match.group(1)
    return sums
