"""The step image's layers as gzip blobs, and the file of their archive (its form: `steps.contract.oci`)."""

import gzip
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from steps.contract import oci
from steps.contract.oci import Blob, Digesting
from workflows.images import tree

GZIP_LEVEL = 6


def write_layer(content: Mapping[str, tree.Entry], path: Path, epoch: int, made_by: str) -> Blob:
    """Write a tree as a gzip layer (no name, no time in its header)."""
    with path.open("wb") as file:
        packed = Digesting(file)
        sink = cast(IO[bytes], packed)
        with gzip.GzipFile(filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=sink, mtime=0) as squeezed:
            plain = Digesting(cast(IO[bytes], squeezed))
            tree.write_tar(content, cast(IO[bytes], plain), epoch)
    return Blob(packed.digest, packed.size, plain.digest, made_by)


def write_archive(out: Path, settings: bytes, layers: Sequence[tuple[Blob, Path]], name: str, epoch: int) -> str:
    """Write the archive, or nothing; returns the manifest's digest. `name` is a full reference with a tag."""
    places = {blob.digest: path for blob, path in layers}
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            blobs = [blob for blob, _ in layers]
            digest = oci.write(file, settings, blobs, lambda blob: places[blob.digest].open("rb"), name=name, epoch=epoch)
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
    return digest
