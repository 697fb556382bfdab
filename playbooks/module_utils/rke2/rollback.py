"""Rollback of a cluster to its previous release: a marker file with each server's progress, and the restore of etcd's snapshot.

The procedure is RKE2's (docs.rke2.io, "Roll-Back"): the previous release on every server, etcd restored from a snapshot on one, and
the databases of the others removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import Callable, Optional

from ansible.module_utils import atomic_files
from ansible.module_utils.rke2 import etcd_snapshots, release_backup, rke2_mounts, rke2_versions, site_paths

MARK = os.path.join(release_backup.STORE, "rollback.json")
DATABASE = os.path.dirname(etcd_snapshots.FOLDER)
ETCD = os.path.join(DATABASE, "etcd")
CONFIG = release_backup.CONFIGURATION[0]
RESET = "reset-flag"
"""Flag file in the database folder until RKE2's next start. A reset writes it before its etcd has started, so an interrupted reset
has written it too (Reset of K3s). It does not hinder a reset from a snapshot.
"""
RESET_DONE = os.path.join(release_backup.STORE, "etcd-set-back")
"""The file with the path of the snapshot from which etcd was restored completely."""
BEGUN, DONE = "begun", "done"


def read_mark(to: str, installed: str, path: str = MARK) -> dict:
    """Return `to`, `left`, `snapshot` and `step` (empty, begun or done) from this server's marker file of the rollback to `to`.

    All are empty if there is no marker file or it is of another rollback.
    """
    recorded = _read(path)
    if recorded.get("to") != to or (recorded.get("step") == DONE and installed != to):
        recorded = {}
    return {name: str(recorded.get(name, "")) for name in ("to", "left", "snapshot", "step")}


def _read(path: str) -> dict:
    recorded = atomic_files.read_json(path)
    return recorded if isinstance(recorded, dict) else {}


def is_under_way(installed: str, path: str = MARK) -> bool:
    """Return True if this server's rollback to the installed release has begun, so that etcd may still hold newer data."""
    return read_mark(installed, installed, path)["step"] == BEGUN


def is_done(installed: str, path: str = MARK) -> bool:
    """Return True if this server's rollback to the installed release is complete except for joining the cluster."""
    return read_mark(installed, installed, path)["step"] == DONE


def is_newer(installed: str, to: str) -> bool:
    """Return True if release `installed` is newer than release `to`; False if one of them is no RKE2 version."""
    have, want = rke2_versions.parse(installed), rke2_versions.parse(to)
    return have is not None and want is not None and have > want


def write(mark: dict, path: str = MARK) -> None:
    """Write this server's marker file of a rollback, with the `step` that has begun or is done."""
    atomic_files.write(path, json.dumps(mark).encode(), 0o600)


def forget(path: str = MARK, store: str = release_backup.STORE, reset: str = RESET_DONE) -> bool:
    """Remove the marker files of a finished rollback and the records of its snapshots; return True if there was a rollback.

    The snapshot is older than anything written from now on, so the next upgrade to the same release saves etcd again, even on the
    same day.
    """
    if not os.path.exists(path):
        return False
    left = str(_read(path).get("left", ""))
    if left:
        etcd_snapshots.forget(_snapshot_prefix(left), store)
    _forget_reset(reset)
    os.unlink(path)  # last: a killed run then does all of this again
    return True


def offered_snapshots(left: str, folder: str = etcd_snapshots.FOLDER, store: str = release_backup.STORE) -> list:
    """Return the complete snapshots saved before release `left`, each as `{path, at}` (`at`: epoch seconds), newest first."""
    names = etcd_snapshots.recorded_names(_snapshot_prefix(left), store)
    paths = [os.path.join(folder, entry) for name in names for entry in etcd_snapshots.complete_files(name, folder, store)]
    return sorted(({"path": path, "at": os.stat(path).st_mtime} for path in paths), key=lambda entry: -entry["at"]) if left else []


def _snapshot_prefix(left: str) -> str:
    """Return the name prefix of the snapshots that the role saves before it installs release `left` (see roles/rke2/vars)."""
    return "bringup-before-%s-" % re.sub("[^A-Za-z0-9.-]", "-", left)


def etcd_obstacle(mounted: Optional[list] = None, folder: str = ETCD) -> str:
    """Return what keeps RKE2 from restoring etcd: its folder is a link, or has a mount at or below it; empty if nothing does.

    RKE2 renames the old folder (Restore of K3s). A mount cannot be renamed, and with a link or an inner disk etcd would move to the
    parent's disk.
    """
    if os.path.islink(folder):
        return "%s is a link to %s" % (folder, os.readlink(folder))
    mounts_here = rke2_mounts.mounts_below(folder, site_paths.targets() if mounted is None else mounted)
    return "%s is a disk of its own" % mounts_here[0] if mounts_here else ""


def is_reset(snapshot: str, database: str = DATABASE, path: str = RESET_DONE) -> bool:
    """Return True if etcd was restored from this snapshot and RKE2 has not started since."""
    try:
        with open(path) as source:
            return source.read() == snapshot and os.path.exists(os.path.join(database, RESET))
    except FileNotFoundError:
        return False


def set_back(snapshot: str, reset: Callable[[], None], database: str = DATABASE, path: str = RESET_DONE) -> bool:
    """Call `reset` to restore etcd from a snapshot and return True; return False if that is already done (`is_reset`).

    Errors of `reset` pass through.
    """
    if is_reset(snapshot, database, path):
        return False
    # RKE2 writes its flag early: with a record of an earlier reset, one that is killed now would look complete
    _forget_reset(path)
    reset()
    atomic_files.write(path, snapshot.encode(), 0o600)
    return True


def _forget_reset(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def join_nobody(config: str = CONFIG) -> bool:
    """Remove the key `server` from config.yaml, which `rke2 server --cluster-reset` refuses; return True if it was there."""
    with open(config) as source:
        lines = source.readlines()
    # `rke2 server --cluster-reset` refuses to run with a `server` key
    own = [line for line in lines if not line.startswith("server:")]
    if own != lines:
        atomic_files.write(config, "".join(own).encode(), 0o600)
    return own != lines


def clear(database: str = DATABASE) -> list:
    """Remove etcd's database except its snapshots, and return the removed names. Disks and links of the site stay.

    Raises OSError if something cannot be removed.
    """
    names: list = sorted(os.listdir(database)) if os.path.isdir(database) else []
    spared = (os.path.basename(etcd_snapshots.FOLDER), rke2_mounts.LOST_FOUND)
    paths = [os.path.join(database, name) for name in names if name not in spared]
    stay = rke2_mounts.targets() + [path for path in paths if os.path.islink(path) and os.path.isdir(path)]
    gone = [path for path in paths if rke2_mounts.has_content(path, stay)]
    for path in gone:
        rke2_mounts.remove_content(path, stay)
    left = [path for path in gone if rke2_mounts.has_content(path, stay)]
    if left:
        raise OSError("%s cannot be removed: see what holds it, or whether its disk has errors" % left[0])
    return [os.path.basename(path) for path in gone]
