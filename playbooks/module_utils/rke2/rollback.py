"""A cluster on its way back to a release before: what each server has done of it, and the snapshots that etcd can be set back to.

docs.rke2.io, "Roll-Back": the release before on every server, etcd reset to a snapshot on one, the databases of the others removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import Callable, Optional

from ansible.module_utils.rke2 import files, kept, mounts, places, snapshots, versions

MARK = os.path.join(kept.STORE, "rollback.json")
DATABASE = os.path.dirname(snapshots.FOLDER)
ETCD = os.path.join(DATABASE, "etcd")
CONFIG = kept.CONFIGURATION[0]
RESET = "reset-flag"
"""In the database's folder until RKE2's next start. A reset writes it before its etcd has come up, so that one that was cut off has
written it too (Reset of K3s); to one with a snapshot it is no hindrance."""
SET_BACK = os.path.join(kept.STORE, "etcd-set-back")
"""Which snapshot RKE2 said that it has set etcd back to: its reset came to its end."""
BEGUN, DONE = "begun", "done"


def seen(to: str, installed: str, path: str = MARK) -> dict:
    """What this server has done on its way back to `to`: `step` is empty, begun or done. A mark of another way back counts for
    nothing, nor does a done one where another release was installed since."""
    found = _read(path)
    if found.get("to") != to or (found.get("step") == DONE and installed != to):
        found = {}
    return {name: str(found.get(name, "")) for name in ("to", "left", "snapshot", "step")}


def _read(path: str) -> dict:
    try:
        with open(path) as source:
            return dict(json.load(source))
    except (OSError, ValueError, TypeError):
        return {}


def is_under_way(installed: str, path: str = MARK) -> bool:
    """Whether the installed release was put back, and etcd still holds what a newer one has written."""
    return seen(installed, installed, path)["step"] == BEGUN


def is_cleared(installed: str, path: str = MARK) -> bool:
    """Whether this server's way back has come to its end but for joining the cluster."""
    return seen(installed, installed, path)["step"] == DONE


def is_newer(installed: str, to: str) -> bool:
    """Whether the installed release is newer than the one that is wanted."""
    have, want = versions.parse(installed), versions.parse(to)
    return have is not None and want is not None and have > want


def write(mark: dict, path: str = MARK) -> None:
    """Remember a step; before what it names is begun, or once it has ended."""
    files.write(path, json.dumps(mark).encode(), 0o600)


def forget(path: str = MARK, store: str = kept.STORE, reset: str = SET_BACK) -> bool:
    """The way back has ended. What etcd was set back to is older than what is written from now on: the next upgrade to the release
    that was left saves etcd anew, be it on the same day."""
    if not os.path.exists(path):
        return False
    left = str(_read(path).get("left", ""))
    if left:
        snapshots.forget(_stem(left), store)
    _forget_reset(reset)
    os.unlink(path)
    return True


def offered(left: str, folder: str = snapshots.FOLDER, store: str = kept.STORE) -> list:
    """The whole snapshots from before the release `left` came, each `{path, at}` (seconds since the epoch), the newest first."""
    names = snapshots.marked(_stem(left), store)
    found = [os.path.join(folder, one) for name in names for one in snapshots.saved(name, folder, store)]
    return sorted(({"path": path, "at": os.stat(path).st_mtime} for path in found), key=lambda one: -one["at"]) if left else []


def _stem(left: str) -> str:
    """How names of snapshots from before a release begin, as the role gives them (roles/rke2/vars)."""
    return "bringup-before-%s-" % re.sub("[^A-Za-z0-9.-]", "-", left)


def apart(mounted: Optional[list] = None, folder: str = ETCD) -> str:
    """What keeps RKE2 from setting its etcd back; empty: nothing. It renames the old folder (Restore of K3s): a mount
    cannot be, and from behind a link, or from a disk further in, etcd would come to the disk of what is above."""
    if os.path.islink(folder):
        return "%s is a link to %s" % (folder, os.readlink(folder))
    found = mounts.within(folder, places.targets() if mounted is None else mounted)
    return "%s is a disk of its own" % found[0] if found else ""


def is_reset(snapshot: str, database: str = DATABASE, path: str = SET_BACK) -> bool:
    """Whether etcd was set back to this snapshot and RKE2 has not started since."""
    try:
        with open(path) as source:
            return source.read() == snapshot and os.path.exists(os.path.join(database, RESET))
    except FileNotFoundError:
        return False


def set_back(snapshot: str, reset: Callable[[], None], database: str = DATABASE, path: str = SET_BACK) -> bool:
    """Have `reset` set etcd back, unless one has come to its end; returns whether that was a change. Raises what `reset` raises."""
    if is_reset(snapshot, database, path):
        return False
    _forget_reset(path)
    reset()
    files.write(path, snapshot.encode(), 0o600)
    return True


def _forget_reset(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def lead(config: str = CONFIG) -> bool:
    """Have this server join nobody: RKE2 resets no etcd of a server that does. Returns whether that was a change."""
    with open(config) as source:
        lines = source.readlines()
    own = [line for line in lines if not line.startswith("server:")]
    if own != lines:
        files.write(config, "".join(own).encode(), 0o600)
    return own != lines


def clear(database: str = DATABASE) -> list:
    """Remove all of the database but its snapshots; returns what went. Disks and links of the site stay. Raises OSError."""
    names: list = sorted(os.listdir(database)) if os.path.isdir(database) else []
    paths = [os.path.join(database, name) for name in names if name not in (os.path.basename(snapshots.FOLDER), mounts.OF_DISK)]
    stay = mounts.targets() + [path for path in paths if os.path.islink(path) and os.path.isdir(path)]
    gone = [path for path in paths if mounts.holds(path, stay)]
    for path in gone:
        mounts.clear(path, stay)
    left = [path for path in gone if mounts.holds(path, stay)]
    if left:
        raise OSError("%s cannot be removed: see what holds it, or whether its disk has errors" % left[0])
    return [os.path.basename(path) for path in gone]
