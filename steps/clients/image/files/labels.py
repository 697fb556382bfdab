"""Extended attributes that a squashfs takes: an image's own, none that the builder's kernel writes to whatever is made there."""

import os
import re
from pathlib import Path
from typing import Final

from steps.clients.image import programs
from steps.clients.image.contained import confined, namespace

_OWN: Final = r"^(user\.|security\.capability$)"
"""Those of an image: a file's rights, and what its users wrote there."""
_CHOOSES: Final = (4, 6)
"""The first release of mksquashfs that can be told which to take."""
_SEEN: Final = ("", "etc", "usr/bin")
"""Folders to look for others in: SELinux labels all files, IMA at least programs."""
_NEVER: Final = "system."
"""No squashfs takes these."""


def words(root: Path) -> list[str]:
    """What to tell mksquashfs. Where it takes all, those that are not the image's are said: other machines make other bytes."""
    release = programs.version(["mksquashfs", "-version"])
    if tuple(int(part) for part in re.findall(r"\d+", release)[:2]) >= _CHOOSES:
        return ["-xattrs-include", _OWN]
    if found := _others(root):
        told = f"note: mksquashfs {release} packs what this machine's kernel writes to files ({', '.join(found)})"
        namespace.tell(f"{told}: other machines make other bytes of the image; mksquashfs 4.6 leaves it out")
    return ["-xattrs"]


def _others(root: Path) -> list[str]:
    folders = [path for path in (confined.place(root, name) if name else root for name in _SEEN) if path.is_dir()]
    paths = [path for folder in folders for path in (folder, *folder.iterdir())]
    names = {name for path in paths for name in os.listxattr(path, follow_symlinks=False)}
    return sorted(name for name in names if not re.match(_OWN, name) and not name.startswith(_NEVER))
