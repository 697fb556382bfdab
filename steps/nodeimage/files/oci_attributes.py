"""Extended attributes of an image's root, read from its OCI archive because squashfs-tools before 4.6 list none of a squashfs.

Both are packed from one root and keep the same attributes (`oci_layers`).
"""

import json
import os
import tarfile
from pathlib import Path
from typing import IO

from steps.clients import program_streams
from steps.errors import BadTask
from steps.nodeimage.files.oci_layers import ATTRIBUTE, HIDDEN, OPAQUE


def read(archive: Path) -> dict[str, str]:
    """Return path → extended attributes in one text, for paths that have any.

    Raises BadTask if the file is no OCI archive of ours.
    """
    attributes: dict[str, str] = {}
    try:
        with tarfile.open(archive) as whole:
            index = json.load(_member(whole, "index.json"))
            manifest = json.load(_blob(whole, index["manifests"][0]["digest"]))
            for layer in manifest["layers"]:
                with program_streams.feed(("zstd", "-dcq"), _blob(whole, layer["digest"])) as plain:
                    _lay(plain, attributes)
    except (tarfile.TarError, KeyError, ValueError, IndexError, TypeError, OSError) as error:
        raise BadTask(
            f"{archive.name} is no whole archive of layers: {error}", hint="`bringup image verify` says what is wrong"
        ) from error
    return attributes


def _blob(whole: tarfile.TarFile, digest: str) -> IO[bytes]:
    return _member(whole, f"blobs/{digest.replace(':', '/')}")


def _member(whole: tarfile.TarFile, name: str) -> IO[bytes]:
    member = whole.extractfile(name)
    if member is None:
        raise KeyError(name)
    return member


def _lay(layer: IO[bytes], attributes: dict[str, str]) -> None:
    """Apply a layer to `attributes`: entries that it replaces or hides lose the attributes of the layers below."""
    with tarfile.open(fileobj=layer, mode="r|") as members:
        for member in members:
            folder, _, name = member.name.rpartition("/")
            if name == OPAQUE:
                _forget(attributes, f"{folder}/")
            elif name.startswith(HIDDEN):
                gone = os.path.join(folder, name.removeprefix(HIDDEN))
                attributes.pop(gone, None)
                _forget(attributes, f"{gone}/")
            elif marks := sorted((name, text) for name, text in member.pax_headers.items() if name.startswith(ATTRIBUTE)):
                words = (f"{name.removeprefix(ATTRIBUTE)}={os.fsencode(text).hex()}" for name, text in marks)
                attributes[member.name] = " ".join(words)
            else:
                attributes.pop(member.name, None)


def _forget(attributes: dict[str, str], below: str) -> None:
    for path in [path for path in attributes if path.startswith(below)]:
        del attributes[path]
