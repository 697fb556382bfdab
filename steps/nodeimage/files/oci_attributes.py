"""Extended attributes of an image's root, read from its OCI archive: squashfs-tools before 4.6 list none of a squashfs.

Both are packed from one root and keep the same attributes (`oci_layers`).
"""

import json
import os
import tarfile
from pathlib import Path
from typing import IO, Any, Final

from steps.errors import BadTask
from steps.nodeimage.files.oci_layers import ATTRIBUTE, HIDDEN, OPAQUE
from steps.nodeimage.store import programs

_INDEX: Final = "index.json"
_UNPACK: Final = ("zstd", "-dcq")


def read(archive: Path) -> dict[str, str]:
    """Return path → its attributes in one text, for paths that have any. Raises BadTask if the file is no archive of ours."""
    found: dict[str, str] = {}
    try:
        with tarfile.open(archive) as whole:
            for layer in _manifest(whole)["layers"]:
                with programs.feed(_UNPACK, _blob(whole, layer["digest"])) as plain:
                    _lay(plain, found)
    except (tarfile.TarError, KeyError, ValueError, IndexError, TypeError, OSError) as error:
        raise BadTask(
            f"{archive.name} is no whole archive of layers: {error}", hint="`bringup image verify` says what is wrong"
        ) from error
    return found


def _manifest(whole: tarfile.TarFile) -> Any:
    index = json.load(_member(whole, _INDEX))
    return json.load(_blob(whole, index["manifests"][0]["digest"]))


def _blob(whole: tarfile.TarFile, digest: str) -> IO[bytes]:
    return _member(whole, f"blobs/{digest.replace(':', '/')}")


def _member(whole: tarfile.TarFile, name: str) -> IO[bytes]:
    found = whole.extractfile(name)
    if found is None:
        raise KeyError(name)
    return found


def _lay(layer: IO[bytes], found: dict[str, str]) -> None:
    """Apply a layer: entries that it brings or hides lose the attributes of the layers below."""
    with tarfile.open(fileobj=layer, mode="r|") as members:
        for member in members:
            folder, _, name = member.name.rpartition("/")
            if name == OPAQUE:
                _forget(found, f"{folder}/")
            elif name.startswith(HIDDEN):
                gone = os.path.join(folder, name.removeprefix(HIDDEN))
                found.pop(gone, None)
                _forget(found, f"{gone}/")
            elif told := _told(member):
                found[member.name] = told
            else:
                found.pop(member.name, None)


def _forget(found: dict[str, str], below: str) -> None:
    for path in [path for path in found if path.startswith(below)]:
        del found[path]


def _told(member: tarfile.TarInfo) -> str:
    """Return the names of its attributes with their bytes in hex."""
    marks = ((name, text) for name, text in member.pax_headers.items() if name.startswith(ATTRIBUTE))
    return " ".join(f"{name.removeprefix(ATTRIBUTE)}={os.fsencode(text).hex()}" for name, text in sorted(marks))
