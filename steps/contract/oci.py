"""OCI image archives: blobs by digest, a config, a manifest and an index; equal bytes for equal inputs, without a daemon.

The archive also has Docker's own `manifest.json`, so that `docker load`, `podman load`, `ctr images import` and `skopeo copy
oci-archive:` all accept the same file.
"""

import hashlib
import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Final

from msgspec import Struct

from steps.contract.canonical import canonical, digest_bytes

MEDIA: Final = "application/vnd.oci.image"
GZIP, ZSTD = "gzip", "zstd"
FILE_MODE, FOLDER_MODE = 0o644, 0o755


class Blob(Struct, frozen=True):
    """A layer: digest and size of its compressed bytes, and `diff_id`, the digest of its tar."""

    digest: str
    size: int
    diff_id: str
    made_by: str = ""
    packed: str = GZIP


class Digesting(io.RawIOBase):
    """A writer that passes bytes on and computes their SHA-256 digest."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self._hash, self.size = out, hashlib.sha256(), 0

    def writable(self) -> bool:
        """Return True always."""
        return True

    def write(self, data: Any, /) -> int:
        """Pass bytes on to the underlying file."""
        self._hash.update(data)
        self._out.write(data)
        self.size += len(data)
        return len(data)

    @property
    def digest(self) -> str:
        """Return the digest of everything that was written."""
        return f"sha256:{self._hash.hexdigest()}"


def config(settings: Mapping[str, Any], layers: Sequence[Blob], architecture: str, created: str) -> bytes:
    """Return the image configuration; its digest is what runtimes call the image id."""
    history = [{"created": created, "created_by": layer.made_by} for layer in layers]
    rootfs = {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]}
    top = {"architecture": architecture, "os": "linux", "created": created, "config": settings, "rootfs": rootfs}
    return canonical({**top, "history": history})


def layout(settings: bytes, layers: Sequence[Blob], name: str) -> dict[str, bytes]:
    """Return the small files of an image layout by path: its marker, index, manifest and configuration; `name` is as in `write`."""
    manifest = _manifest(settings, layers)
    digest = digest_bytes(manifest)
    return {
        "oci-layout": canonical({"imageLayoutVersion": "1.0.0"}),
        "index.json": _index(manifest, digest, name),
        blob_path(digest): manifest,
        blob_path(digest_bytes(settings)): settings,
    }


def manifest_digest(settings: bytes, layers: Sequence[Blob]) -> str:
    """Return the digest of the manifest of an image, by which registries know it."""
    return digest_bytes(_manifest(settings, layers))


def write(
    out: IO[bytes], settings: bytes, layers: Sequence[Blob], read: Callable[[Blob], IO[bytes]], *, name: str, epoch: int
) -> str:
    """Write the archive and return the manifest's digest. `name` is a full reference with a tag; `read` opens a layer's blob."""
    layers_of = [blob_path(layer.digest) for layer in layers]
    docker = {"Config": blob_path(digest_bytes(settings)), "RepoTags": [name], "Layers": layers_of}
    small = {**layout(settings, layers, name), "manifest.json": canonical([docker])}
    large = {blob_path(blob.digest): blob for blob in layers}
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for folder in ("blobs", "blobs/sha256"):
            archive.addfile(_info(folder, 0, epoch, tarfile.DIRTYPE))
        for member in sorted({*small, *large}):
            if member in small:
                archive.addfile(_info(member, len(small[member]), epoch), io.BytesIO(small[member]))
                continue
            with read(large[member]) as blob:
                archive.addfile(_info(member, large[member].size, epoch), blob)
    return manifest_digest(settings, layers)


def _info(name: str, size: int, epoch: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.type = size, epoch, kind
    member.mode = FOLDER_MODE if kind == tarfile.DIRTYPE else FILE_MODE
    return member


def blob_path(digest: str) -> str:
    """Return the path of a blob in an image layout."""
    return "blobs/" + digest.replace(":", "/")


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest_bytes(data), "size": len(data)}


def _manifest(settings: bytes, layers: Sequence[Blob]) -> bytes:
    packed = [{"mediaType": f"{MEDIA}.layer.v1.tar+{layer.packed}", "digest": layer.digest, "size": layer.size} for layer in layers]
    top = {"schemaVersion": 2, "mediaType": f"{MEDIA}.manifest.v1+json"}
    return canonical({**top, "config": _descriptor(f"{MEDIA}.config.v1+json", settings), "layers": packed})


def _index(manifest: bytes, digest: str, name: str) -> bytes:
    # containerd reads the full name, other tools the tag in `ref.name`
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    descriptor = {**_descriptor(f"{MEDIA}.manifest.v1+json", manifest), "digest": digest, "annotations": names}
    return canonical({"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [descriptor]})
