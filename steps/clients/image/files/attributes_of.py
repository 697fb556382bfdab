"""Reads the extended attributes of an image's root from its OCI archive: squashfs-tools before 4.6 lists none of a squashfs.

Both are of one root, and the attributes that both keep are the same (`oci_layers`).
"""

import json
import os
import tarfile
from pathlib import Path
from typing import IO, Any, Final

from steps.clients.image import streams
from steps.clients.image.files.oci_layers import ATTRIBUTE, HIDDEN, OPAQUE
from steps.errors import BadTask

_INDEX: Final = "index.json"
_UNPACK: Final = ("zstd", "-dcq")


def read(archive: Path) -> dict[str, str]:
    """Path → its attributes in one text, of those that have any. Raises BadTask where it is no archive of ours."""
    found: dict[str, str] = {}
    try:
        with tarfile.open(archive) as whole:
            for layer in _manifest(whole)["layers"]:
                with streams.fed(_UNPACK, _blob(whole, layer["digest"])) as plain:
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
    """Take a layer's attributes; what it brings or hides has no longer those of the layers below."""
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
    """The names of its attributes with their bytes in hex."""
    marks = ((name, text) for name, text in member.pax_headers.items() if name.startswith(ATTRIBUTE))
    return " ".join(f"{name.removeprefix(ATTRIBUTE)}={os.fsencode(text).hex()}" for name, text in sorted(marks))
