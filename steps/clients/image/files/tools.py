"""Versions of the programs of this machine whose version can change bytes that they write."""

import ctypes
import hashlib
from collections.abc import Mapping
from typing import Final

from steps.clients.image import programs
from steps.contract.image import keys

_ASKED: Final = {"mksquashfs": ["mksquashfs", "-version"], "zstd": ["zstd", "--version"]}
_LIBRARY: Final = "libzstd.so.1"
"""What mksquashfs squeezes with; it may be of another version than the program zstd."""


def versions() -> dict[str, str]:
    """By name. Raises BadTask where one is not installed."""
    found = {name: programs.version(words) for name, words in _ASKED.items()}
    return found | {"libzstd": _library(), "packer": str(keys.PACKER)}


def mark(key: str, found: Mapping[str, str]) -> str:
    """The name of what zstd and this version of ours make of something with this key: others may make other bytes of it."""
    squeezed = hashlib.sha256(f"{found['zstd']} {found['packer']}".encode())
    return f"{key}-{squeezed.hexdigest()[:12]}"


def key_of(name: str) -> str:
    """The key in such a name."""
    return name.partition("-")[0]


def _library() -> str:
    try:
        said = ctypes.CDLL(_LIBRARY).ZSTD_versionString
    except (OSError, AttributeError):
        return "unknown"
    said.restype = ctypes.c_char_p
    found: bytes = said()
    return found.decode()
