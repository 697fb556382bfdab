"""Normalization of a layer: removes what differs between builds and sets every time to the recipe's, so that builds are equal.

It works on the layer's own folder, not on the merged root: all lower layers are normal, so what it removes was made by this layer.
"""

import fnmatch
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from steps.nodeimage.contract import debian
from steps.nodeimage.layer import layer_content

EMPTIED: Final = ("dev", "proc", "run", "sys", "tmp", "var/tmp", *debian.EMPTIED, "var/cache/man", "var/cache/fontconfig")
"""Folders that are emptied: those of a running system, and caches with times in them."""
WITHOUT_FILES: Final = ("var/log", "var/backups")
"""Folders that lose their files and keep their sub-folders, which services expect."""
REMOVED: Final = (
    "boot/initrd.img*",
    "etc/.pwd.lock",
    "etc/group-",
    "etc/gshadow-",
    "etc/passwd-",
    "etc/shadow-",
    "etc/ssh/ssh_host_*",
    "etc/subgid-",
    "etc/subuid-",
    "initrd.img*",
    "root/.bash_history",
    "root/.cache",
    "root/.wget-hsts",
    "usr/sbin/policy-rc.d",
    "var/cache/ldconfig/aux-cache",
    "var/lib/dbus/machine-id",
    "var/lib/dhcp/*.leases",
    "var/lib/systemd/credential.secret",
    "var/lib/systemd/random-seed",
    *debian.REMOVED,
)
"""Paths that are removed: a machine's identities, locks, old copies, caches, and initial RAM disks, which packing makes."""
BLANKED: Final = ("etc/machine-id",)
"""Files that must exist and be empty, so that systemd makes the machine's identity at its first boot."""
_CACHED: Final = 16
"""Bytes of the header of a compiled Python module: magic, flags, time and size of its source."""


def normalise(tree: Path, below: Path | None, epoch: int) -> None:
    """Normalize a layer's folder in place; `below` is the merged root of the layers under it, `epoch` the time for all files."""
    for path in [path for name in EMPTIED for path in _matches(tree, f"{name}/*")]:
        _remove(path)
    for folder in (tree / name for name in WITHOUT_FILES if _is_folder(tree / name)):
        for path in list(_files(folder)):
            path.unlink()
    for path in [path for pattern in REMOVED for path in _matches(tree, pattern)]:
        _remove(path)
    for path in (tree / name for name in BLANKED):
        if path.is_file() and not path.is_symlink():
            os.truncate(path, 0)
    for path in _files(tree):
        if path.suffix == ".pyc":
            _restamp(path, epoch)
    if below is not None:
        _prune(tree, below)
    _settle(tree, epoch)


def _matches(tree: Path, pattern: str) -> list[Path]:
    folder, _, name = pattern.rpartition("/")
    if not _is_folder(tree / folder):
        return []
    return [tree / folder / entry for entry in sorted(os.listdir(tree / folder)) if fnmatch.fnmatchcase(entry, name)]


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _remove(path: Path) -> None:
    """Remove an entry unless it is a whiteout, because the lower entry that it hides must stay hidden."""
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        shutil.rmtree(path)
    elif not layer_content.is_whiteout(status):
        path.unlink()


def _files(tree: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(tree):
        for name in names:
            path = Path(folder, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def _restamp(path: Path, epoch: int) -> None:
    """Set the source time in a compiled Python module to the recipe's; otherwise Python would compile it at each start."""
    with path.open("r+b") as stream:
        head = stream.read(_CACHED)
        if len(head) == _CACHED and head[4:8] == bytes(4):  # flags: by the source's time, not by its hash
            stream.seek(8)
            stream.write(epoch.to_bytes(4, "little"))


def _prune(upper: Path, lower: Path) -> None:
    """Remove entries of `upper` that are equal in `lower`: files that were rewritten alike, and folders that became empty."""
    for path in sorted(upper.iterdir()):
        status, beneath = path.lstat(), lower / path.name
        under = beneath.lstat() if os.path.lexists(beneath) else None
        if under is None or stat.S_IFMT(status.st_mode) != stat.S_IFMT(under.st_mode) or layer_content.is_whiteout(status):
            continue
        if stat.S_ISDIR(status.st_mode):
            _prune_folder(path, beneath)
        elif _alike(path, status, beneath, under):
            path.unlink()


def _prune_folder(path: Path, beneath: Path) -> None:
    if layer_content.attributes(path).get(layer_content.OPAQUE) == b"y":
        return
    _prune(path, beneath)
    if not os.listdir(path) and _same_rights(path, path.lstat(), beneath, beneath.lstat()):
        path.rmdir()


def _same_rights(path: Path, status: os.stat_result, beneath: Path, under: os.stat_result) -> bool:
    rights = (status.st_mode, status.st_uid, status.st_gid) == (under.st_mode, under.st_uid, under.st_gid)
    return rights and (stat.S_ISLNK(status.st_mode) or _marks(path) == _marks(beneath))


def _marks(path: Path) -> dict[str, bytes]:
    return {name: value for name, value in layer_content.attributes(path).items() if not name.startswith("user.overlay.")}


def _alike(path: Path, status: os.stat_result, beneath: Path, under: os.stat_result) -> bool:
    if status.st_nlink > 1 or under.st_nlink > 1 or not _same_rights(path, status, beneath, under):
        return False
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path) == os.readlink(beneath)
    is_like_file = stat.S_ISREG(status.st_mode) and status.st_size == under.st_size
    return is_like_file and path.read_bytes() == beneath.read_bytes()


def _settle(tree: Path, epoch: int) -> None:
    """Remove overlayfs' working attributes and set every time to the recipe's; the last step of the normalization."""
    if os.geteuid() == 0:
        os.chown(tree, 0, 0)
    tree.chmod(0o755)
    for folder, folders, names in os.walk(tree, topdown=False):
        for name in [*names, *folders]:
            _settle_one(Path(folder, name), epoch)
    _settle_one(tree, epoch)


def _settle_one(path: Path, epoch: int) -> None:
    status = path.lstat()
    if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        for name in os.listxattr(path, follow_symlinks=False):
            if name.startswith("user.overlay.") and name != layer_content.OPAQUE:
                os.removexattr(path, name, follow_symlinks=False)
    os.utime(path, (epoch, epoch), follow_symlinks=False)
