"""Versions of the external programs whose output fills the image store."""

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from steps.clients import process
from steps.nodeimage.contract import build_keys

_LIBRARY: Final = "libzstd.so.1"
"""Library by which mksquashfs compresses; its version may differ from that of the program zstd."""


def version(words: Sequence[str]) -> str:
    """Return the version that a command prints, `unknown` if it prints none. Raises BadTask if the program is not installed."""
    output = process.run(list(words)).out.replace(",", " ").split()
    return next((word.lstrip("v") for word in output if word.lstrip("v")[:1].isdigit()), "unknown")


def tool_versions() -> dict[str, str]:
    """Return name → version of each program that can change the bytes of an image. Raises BadTask if one is missing."""
    versions = {name: version([name, option]) for name, option in (("mksquashfs", "-version"), ("zstd", "--version"))}
    return versions | {"libzstd": _library(), "packer": str(build_keys.PACKER)}


def mark(key: str, versions: Mapping[str, str]) -> str:
    """Return `KEY-HASH`, a name for the output of zstd and our packer for a key: other versions of both may make other bytes."""
    digest = hashlib.sha256(f"{versions['zstd']} {versions['packer']}".encode())
    return f"{key}-{digest.hexdigest()[:12]}"


def key_of(name: str) -> str:
    """Return the key in a name that `mark` made."""
    return name.partition("-")[0]


def _library() -> str:
    try:
        function = ctypes.CDLL(_LIBRARY).ZSTD_versionString
    except (OSError, AttributeError):
        return "unknown"
    function.restype = ctypes.c_char_p
    return str(function(), "utf-8")
