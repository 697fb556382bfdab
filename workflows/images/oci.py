"""OCI image archives: blobs by digest, a config, a manifest, an index; written without a daemon, equal for equal inputs.

The archive also has Docker's own `manifest.json`, so that `docker load` of any age, `podman load`, `ctr images import` and
`skopeo copy oci-archive:` all take the same file.
"""

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from msgspec import Struct

from steps.contract.canonical import canonical
from workflows.images import tree

MEDIA = "application/vnd.oci.image"
GZIP_LEVEL = 6
CHUNK = 1 << 20


class Blob(Struct, frozen=True):
    """A layer: digest and size of its compressed bytes, digest of its tar."""

    digest: str
    size: int
    diff_id: str
    made_by: str = ""


class _Digesting(io.RawIOBase):
    """Hands bytes on and digests them."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self._hash, self.size = out, hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._hash.update(data)
        self._out.write(data)
        self.size += len(data)
        return len(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def write_layer(content: Mapping[str, tree.Entry], path: Path, epoch: int, made_by: str) -> Blob:
    """Write a tree as a gzip layer (no name, no time in its header)."""
    with path.open("wb") as file:
        packed = _Digesting(file)
        sink = cast(IO[bytes], packed)
        with gzip.GzipFile(filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=sink, mtime=0) as squeezed:
            plain = _Digesting(cast(IO[bytes], squeezed))
            tree.write_tar(content, cast(IO[bytes], plain), epoch)
    return Blob(packed.digest, packed.size, plain.digest, made_by)


def config(settings: Mapping[str, Any], layers: Sequence[Blob], architecture: str, created: str) -> bytes:
    """The image configuration; its digest is what runtimes call the image id."""
    history = [{"created": created, "created_by": layer.made_by} for layer in layers]
    rootfs = {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]}
    top = {"architecture": architecture, "os": "linux", "created": created, "config": settings, "rootfs": rootfs}
    return canonical({**top, "history": history})


def write_archive(out: Path, settings: bytes, layers: Sequence[tuple[Blob, Path]], name: str, epoch: int) -> str:
    """Write the archive, or nothing; returns the manifest's digest. `name` is a full reference with a tag."""
    manifest = _manifest(settings, [blob for blob, _ in layers])
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    small = {
        "oci-layout": canonical({"imageLayoutVersion": "1.0.0"}),
        "index.json": _index(manifest, digest, name),
        "manifest.json": _docker(settings, [blob for blob, _ in layers], name),
        _place(digest): manifest,
        _place(f"sha256:{hashlib.sha256(settings).hexdigest()}"): settings,
    }
    large = {_place(blob.digest): path for blob, path in layers}
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            _write_members(file, small, large, epoch)
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
    return digest


def _write_members(file: IO[bytes], small: Mapping[str, bytes], large: Mapping[str, Path], epoch: int) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("blobs", "blobs/sha256"):
            archive.addfile(_info(name, 0, epoch, tarfile.DIRTYPE))
        for name in sorted({*small, *large}):
            if name in small:
                archive.addfile(_info(name, len(small[name]), epoch), io.BytesIO(small[name]))
                continue
            with large[name].open("rb") as blob:
                archive.addfile(_info(name, large[name].stat().st_size, epoch), blob)


def _info(name: str, size: int, epoch: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.type = size, epoch, kind
    member.mode = tree.FOLDER_MODE if kind == tarfile.DIRTYPE else tree.FILE_MODE
    return member


def _place(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


def _manifest(settings: bytes, layers: Sequence[Blob]) -> bytes:
    packed = [{"mediaType": f"{MEDIA}.layer.v1.tar+gzip", "digest": layer.digest, "size": layer.size} for layer in layers]
    top = {"schemaVersion": 2, "mediaType": f"{MEDIA}.manifest.v1+json"}
    return canonical({**top, "config": _descriptor(f"{MEDIA}.config.v1+json", settings), "layers": packed})


def _index(manifest: bytes, digest: str, name: str) -> bytes:
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    one = {**_descriptor(f"{MEDIA}.manifest.v1+json", manifest), "digest": digest, "annotations": names}
    return canonical({"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [one]})


def _docker(settings: bytes, layers: Sequence[Blob], name: str) -> bytes:
    image = _place(f"sha256:{hashlib.sha256(settings).hexdigest()}")
    return canonical([{"Config": image, "RepoTags": [name], "Layers": [_place(layer.digest) for layer in layers]}])
