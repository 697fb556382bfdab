"""Backup of the installed release and its configuration, so that an upgrade can be rolled back."""

from __future__ import annotations

import glob
import os
import shutil
from contextlib import contextmanager
from typing import Iterator, Optional

from ansible.module_utils import atomic_files
from ansible.module_utils.rke2 import restart_mark

STORE = "/var/lib/rancher/download"
PLACE, MARK = os.path.join(STORE, "kept"), "/VERSION"
ABSENT_FILES = "/ABSENT"
"""List in the backup folder of configuration files that did not exist. Older backups lack it; nothing is then removed."""
REPLACING_MARK = os.path.join(STORE, "installing")
"""Marker file that exists while a release's files are being replaced: their mix of versions must not be backed up."""
PROGRAM = "/usr/local/bin/rke2"
"""The program whose version counts as the installed release.

Installs replace it last, restores first, so that an interrupted run continues.
"""
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
"""Certificates and keys of registries. With CONFIGURATION these are all files that the role writes (`rke2_files`,
`rke2_secret_files`), except the token, which stays.
"""
OURS = "# Made by bringup."
"""First words of the files that bringup writes. Files without them are left alone."""


class WrongBackup(Exception):
    """Error: the backup holds another release than the one to restore."""


@contextmanager
def replacement_of(paths: list, version: str) -> Iterator[None]:
    """Back up the installed release `version`, then keep the marker file of a replacement until the block ends without an error.

    A backup that an interrupted run made of that release is kept, because the installed files are then a mix.
    """
    # after an interrupted run the installed files are a mix, so its backup must not be overwritten by them
    if not (is_replacing() and version_kept() == version):
        back_up(paths, version)
    begin()
    yield
    finish()


def back_up(paths: list, version: str, root: str = "") -> None:
    """Copy the installed release (`paths`) and its configuration into the backup folder, replacing it by a whole copy only."""
    place = root + PLACE
    fresh = place + ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    os.makedirs(fresh, mode=0o700)
    for path in [*paths, *CONFIGURATION, *registry_files(root)]:
        if os.path.exists(root + path):
            _folders(os.path.dirname(path), root, fresh)
            shutil.copy(root + path, fresh + path)  # without its label: what lies here is no program to run
    absent = "\n".join(path for path in CONFIGURATION if not os.path.exists(root + path))
    for name, text in ((MARK, version), (ABSENT_FILES, absent)):
        with open(fresh + name, "w") as out:
            out.write(text)
    shutil.rmtree(place, ignore_errors=True)
    os.rename(fresh, place)


def _folders(path: str, root: str, fresh: str) -> None:
    """Create a path's folders in the backup with the host's modes, because people who restore by hand copy them back."""
    os.makedirs(fresh + path, exist_ok=True)
    while path != "/":
        os.chmod(fresh + path, os.stat(root + path).st_mode & 0o7777)
        path = os.path.dirname(path)


def restore(version: str, root: str = "") -> list:
    """Restore release `version` and its configuration from the backup, remove files added since, and return the restored paths.

    Raises WrongBackup if the backup is missing or holds another release.
    """
    if version_kept(root) != version:
        raise WrongBackup("%s was to be put back, and %s is kept in %s" % (version, version_kept(root) or "none", PLACE))
    place = root + PLACE
    kept = [os.path.join(folder, name)[len(place) :] for folder, _, names in os.walk(place) for name in names]
    places = sorted(path for path in kept if path not in (MARK, ABSENT_FILES))
    # before any file changes: after a kill the next run still restarts RKE2
    restart_mark.mark(root + restart_mark.PATH)
    begin(root)
    for path in sorted(places, key=lambda path: path != PROGRAM):
        with open(place + path, "rb") as source:
            atomic_files.copy(root + path, source, os.stat(place + path).st_mode & 0o777)
    for path in files_added_since(root):
        os.unlink(root + path)
    finish(root)
    return places


def files_added_since(root: str = "") -> list:
    """Return the paths of bringup's configuration files that exist now and did not when the backup was made."""
    try:
        with open(root + PLACE + ABSENT_FILES) as source:
            absent = source.read().splitlines()
    except FileNotFoundError:
        return []
    ours = [path for path in absent if path in CONFIGURATION and atomic_files.read(root + path).startswith(OURS)]
    return ours + [path for path in registry_files(root) if not os.path.exists(root + PLACE + path)]


def registry_files(root: str = "") -> list:
    """Return the paths of bringup's certificates and keys for image registries on this host."""
    return sorted(path[len(root) :] for path in glob.glob(glob.escape(root) + REGISTRY_FILES))


def begin(root: str = "") -> None:
    """Create the marker file for a release whose replacement has begun or which is not complete."""
    atomic_files.touch(root + REPLACING_MARK)


def finish(root: str = "") -> None:
    """Remove the marker file, once all files of one release are in place."""
    if is_replacing(root):
        os.unlink(root + REPLACING_MARK)


def is_replacing(root: str = "") -> bool:
    """Return True if the marker file exists: a run was interrupted while it replaced a release's files, or one is at work."""
    return os.path.exists(root + REPLACING_MARK)


def version_kept(root: str = "") -> Optional[str]:
    """Return the release in the backup; None without a backup, empty if no release had been installed before."""
    try:
        with open(root + PLACE + MARK) as source:
            return source.read()
    except FileNotFoundError:
        return None
