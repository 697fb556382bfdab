"""The release that another takes the place of, and its configuration: kept aside, so that it can be put back."""

from __future__ import annotations

import glob
import os
import shutil
from contextlib import contextmanager
from typing import Iterator, Optional

from ansible.module_utils.rke2 import files, pending

STORE = "/var/lib/rancher/download"
PLACE, MARK = os.path.join(STORE, "kept"), "/VERSION"
ABSENT = "/ABSENT"
"""Beside the mark: which files of the configuration were not there. What an older bringup has kept does not say, and nothing is
removed for it."""
BEGUN = os.path.join(STORE, "installing")
"""There while files are replaced: what lies at their places is then no release that could be kept."""
PROGRAM = "/usr/local/bin/rke2"
"""It says which release is installed: an install puts it in its place last, the way back first, so that both are gone on with."""
CONFIGURATION = (
    "/etc/rancher/rke2/config.yaml",
    "/etc/rancher/rke2/registries.yaml",
    "/etc/rancher/rke2/audit-policy.yaml",
    "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/90-bringup.conf",
    "/var/lib/rancher/rke2/agent/pod-manifests/kube-vip.yaml",
    "/etc/default/rke2-server",
    "/etc/default/rke2-agent",
)
REGISTRY_FILES = "/etc/rancher/rke2/rke2_registry_*.pem"
"""All that the role writes for RKE2 (`roles/rke2/vars`, `rke2_files` and `rke2_secret_files`), but for the token, which stays."""
OURS = "# Made by bringup."
"""How a file of ours begins that was not there before; others are left alone."""


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


def keep(paths: list, version: str, root: str = "") -> None:
    """Copy the installed release and its configuration aside; a half-done copy counts for nothing."""
    place = root + PLACE
    fresh = place + ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    os.makedirs(fresh, mode=0o700)
    for path in [*paths, *CONFIGURATION, *registry_files(root)]:
        if os.path.exists(root + path):
            _folders(os.path.dirname(path), root, fresh)
            shutil.copy(root + path, fresh + path)  # without its label: what lies here is no program to run
    for name, text in ((MARK, version), (ABSENT, "\n".join(path for path in CONFIGURATION if not os.path.exists(root + path)))):
        with open(fresh + name, "w") as out:
            out.write(text)
    shutil.rmtree(place, ignore_errors=True)
    os.rename(fresh, place)


def _folders(path: str, root: str, fresh: str) -> None:
    """Have the folders of a path in the copy, as open as they are on the host: who goes back by hand copies them over those."""
    os.makedirs(fresh + path, exist_ok=True)
    while path != "/":
        os.chmod(fresh + path, os.stat(root + path).st_mode & 0o7777)
        path = os.path.dirname(path)


def restore(version: str, root: str = "") -> list:
    """Put the kept release and its configuration back, and remove what that did not have; returns the files that are back. Raises
    NotKept where it is another one."""
    if version_kept(root) != version:
        raise NotKept("%s was to be put back, and %s is kept in %s" % (version, version_kept(root) or "none", PLACE))
    place = root + PLACE
    found = [os.path.join(folder, name)[len(place) :] for folder, _, names in os.walk(place) for name in names]
    places = sorted(path for path in found if path not in (MARK, ABSENT))
    pending.mark(root + pending.PATH)
    begin(root)
    for path in sorted(places, key=lambda path: path != PROGRAM):
        with open(place + path, "rb") as source:
            files.copy(root + path, source, os.stat(place + path).st_mode & 0o777)
    for path in new_since(root):
        os.unlink(root + path)
    finish(root)
    return places


def new_since(root: str = "") -> list:
    """Files of ours that are there, and were not when the release was kept."""
    try:
        with open(root + PLACE + ABSENT) as source:
            absent = source.read().splitlines()
    except FileNotFoundError:
        return []
    ours = [path for path in absent if path in CONFIGURATION and _is_ours(root + path)]
    return ours + [path for path in registry_files(root) if not os.path.exists(root + PLACE + path)]


def registry_files(root: str = "") -> list:
    """The certificates and keys of registries that are there."""
    return sorted(path[len(root) :] for path in glob.glob(glob.escape(root) + REGISTRY_FILES))


def _is_ours(path: str) -> bool:
    try:
        with open(path, errors="replace") as source:
            return source.read(len(OURS)) == OURS
    except FileNotFoundError:
        return False


def begin(root: str = "") -> None:
    """Files of another release come to their places from now on, or are not all that is to be done for it."""
    files.touch(root + BEGUN)


def finish(root: str = "") -> None:
    """All files of one release are at their places."""
    if is_replacing(root):
        os.unlink(root + BEGUN)


def is_replacing(root: str = "") -> bool:
    """Whether files were being replaced when a run was killed."""
    return os.path.exists(root + BEGUN)


def version_kept(root: str = "") -> Optional[str]:
    """The release that is kept; None where there is none, empty where nothing was installed before."""
    try:
        with open(root + PLACE + MARK) as source:
            return source.read()
    except FileNotFoundError:
        return None
