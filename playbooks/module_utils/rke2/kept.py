"""The release that another takes the place of, and its configuration: kept aside, so that it can be put back."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import Iterator, Optional

from ansible.module_utils.rke2 import files, pending

STORE = "/var/lib/rancher/download"
PLACE, MARK = os.path.join(STORE, "kept"), "/VERSION"
BEGUN = os.path.join(STORE, "installing")
"""There while files are replaced: what lies at their places is then no release that could be kept."""
PROGRAM = "/usr/local/bin/rke2"
"""It says which release is installed: an install puts it in its place last, the way back first, so that both are gone on with."""
CONFIGURATION = ("/etc/rancher/rke2/config.yaml", "/etc/rancher/rke2/registries.yaml", "/etc/rancher/rke2/audit-policy.yaml")


class NotKept(Exception):
    """The release that is to be put back is not the one that is kept."""


@contextmanager
def aside(paths: list, version: str) -> Iterator[None]:
    """Keep the installed release while its files are replaced; one that a killed run has kept before it began stays as it is."""
    if not (is_replacing() and version_kept() == version):
        keep(paths, version)
    begin()
    yield
    finish()


def keep(paths: list, version: str) -> None:
    """Copy the installed release and its configuration aside; a half-done copy counts for nothing."""
    fresh = PLACE + ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    os.makedirs(fresh, mode=0o700)
    for path in filter(os.path.exists, [*paths, *CONFIGURATION]):
        os.makedirs(os.path.dirname(fresh + path), exist_ok=True)
        shutil.copy(path, fresh + path)  # without its label: what lies here is no program to run
    with open(fresh + MARK, "w") as out:
        out.write(version)
    shutil.rmtree(PLACE, ignore_errors=True)
    os.rename(fresh, PLACE)


def restore(version: str) -> list:
    """Put the kept release and its configuration back; returns the files. Raises NotKept where it is another one."""
    if version_kept() != version:
        raise NotKept("%s was to be put back, and %s is kept in %s" % (version, version_kept() or "none", PLACE))
    found = [os.path.join(folder, name) for folder, _, names in os.walk(PLACE) for name in names]
    places = sorted(path[len(PLACE) :] for path in found if path != PLACE + MARK)
    pending.mark()
    begin()
    for path in sorted(places, key=lambda path: path != PROGRAM):
        with open(PLACE + path, "rb") as source:
            files.copy(path, source, os.stat(PLACE + path).st_mode & 0o777)
    finish()
    return places


def begin() -> None:
    """Files of another release come to their places from now on, or are not all that is to be done for it."""
    files.touch(BEGUN)


def finish() -> None:
    """All files of one release are at their places."""
    if is_replacing():
        os.unlink(BEGUN)


def is_replacing() -> bool:
    """Whether files were being replaced when a run was killed."""
    return os.path.exists(BEGUN)


def version_kept() -> Optional[str]:
    """The release that is kept; None where there is none, empty where nothing was installed before."""
    try:
        with open(PLACE + MARK) as source:
            return source.read()
    except FileNotFoundError:
        return None
