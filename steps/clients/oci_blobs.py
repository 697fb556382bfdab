"""Layers of OCI images as blobs: a tar in zstd, written as a stream, so that memory does not grow with the number of files."""

import hashlib
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from steps.clients import program_streams
from steps.contract.oci import ZSTD, Blob, Digesting
from steps.errors import BadTask

if TYPE_CHECKING:
    from _typeshed import SupportsRead

LEVEL: Final = 3


class StreamedTar(tarfile.TarFile):
    """A tar archive that is written in one pass; unlike its base class it remembers no members."""

    def addfile(self, tarinfo: tarfile.TarInfo, fileobj: "SupportsRead[bytes] | None" = None) -> None:
        """Write a member: its header, and its bytes from `fileobj`."""
        super().addfile(tarinfo, fileobj)
        self.members: list[tarfile.TarInfo] = []


def pack_layer(out: Path, made_by: str, fill: Callable[[StreamedTar], None]) -> Blob:
    """Write a layer's compressed blob and return it; `fill` adds the members. Equal members give equal bytes.

    Raises BadTask if zstd is not installed or fails.
    """
    with out.open("wb") as file:
        diff_id = _squeeze(file, fill)
    with out.open("rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        return Blob(digest, file.tell(), diff_id, made_by, ZSTD)


def _squeeze(file: IO[bytes], fill: Callable[[StreamedTar], None]) -> str:
    """Write the compressed blob and return the digest of its uncompressed tar.

    zstd gives equal bytes for any number of threads above one.
    """
    try:
        with program_streams.into(["zstd", f"-{LEVEL}", "-q", "-T2", "-c"], file) as squeezed:
            plain = Digesting(squeezed)
            with StreamedTar.open(fileobj=cast(IO[bytes], plain), mode="w|", format=tarfile.PAX_FORMAT) as archive:
                fill(archive)
    except BrokenPipeError as error:
        raise BadTask("zstd ended before it had the whole layer", hint="make room on the disk that the image goes to") from error
    return plain.digest
