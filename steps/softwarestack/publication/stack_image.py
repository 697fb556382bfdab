"""A published version of a stack as an OCI image: one layer with its packages and modules at their published absolute paths.

The layer is written as a stream from the lists of files, and each file's bytes are compared with its list on the way: what is
exported is what was published. Owners, times and modes are fixed, so equal versions give equal bytes, with one version of zstd.
"""

import fcntl
import glob
import hashlib
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from msgspec import Struct

from steps.clients import oci_blobs
from steps.clients.oci_blobs import StreamedTar
from steps.clients.releases import release_signatures, verification
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import oci, release_layout
from steps.contract.canonical import digest_bytes
from steps.contract.oci import Blob
from steps.errors import Refused
from steps.softwarestack.cache.package_packing import MTIME
from steps.softwarestack.contract import package_files
from steps.softwarestack.contract.package_files import LISTING, ListedFile, PackageListError
from steps.softwarestack.contract.stack_input import PACKAGES
from steps.softwarestack.contract.stack_release import PackageContent, StackManifest
from steps.softwarestack.publication import package_listing, stack_kind
from steps.softwarestack.publication.package_checks import PackageChecks
from steps.softwarestack.tree import lmod_modules, target_choice

ARCHIVE: Final = ".tar"
"""Ending of a target that is written as one archive; any other target becomes a folder in the layout of OCI images."""
LABEL: Final = "io.bringup.stack"
_MACHINES: Final = {62: "amd64", 183: "arm64", 243: "riscv64", 21: "ppc64le"}
"""Names that OCI images use for the machines of ELF headers; others, such as those of GPU code, name no image."""
_MACHINE_AT: Final = slice(18, 20)
_HEADER: Final = 20
_LITTLE_ENDIAN: Final = 1


class StackImage(Struct, frozen=True, kw_only=True):
    """An image that was written: the stack and version in it, its digests and name, number and bytes of the files in its layer.

    `manifest` is the digest of the version's manifest, `signature` the state of its signature (`release_signatures.state`).
    `digest` is that of the image's manifest, `unpacked` are the bytes of all files, `size` those of the compressed layer.
    """

    stack: str
    version: str
    manifest: str
    signature: str
    digest: str
    layer: str
    name: str
    architecture: str
    modulepath: str
    files: int
    unpacked: int
    size: int


def export(root: Path, tree: ReleaseTree, version: str, signers: tuple[str, ...], target: Path) -> StackImage:
    """Write a version as an image to `target`, by rename: an archive if its name ends with `.tar`, else a new folder.

    `tree` has been read with the digests of that version. Raises Refused if the version is not what its manifest says, or not
    signed by one of `signers`; BadTask if zstd is not installed.
    """
    manifest = _verified(root, tree, version, signers)
    with _workspace(target) as work:
        layer = VersionLayer(root, tree, version, manifest)
        blob = oci_blobs.pack_layer(work / "layer", f"bringup stack export {manifest.name} {version}", layer.write)
        settings = _settings(manifest, tree, version)
        created = datetime.fromtimestamp(MTIME, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        config = oci.config(settings, [blob], layer.architecture, created)
        reference = f"bringup.local/stack/{re.sub('[^a-z0-9]+', '-', manifest.name.lower()).strip('-')}:{version}"
        _place(work, blob, config, reference, target)
    return StackImage(
        stack=manifest.name,
        version=version,
        manifest=tree.manifest_digest(version),
        signature=release_signatures.state(stack_kind.stack_kind(), tree, version, signers),
        digest=oci.manifest_digest(config, [blob]),
        layer=blob.digest,
        name=reference,
        architecture=layer.architecture,
        modulepath=_modulepath(manifest),
        files=layer.files,
        unpacked=layer.size,
        size=blob.size,
    )


@contextmanager
def _workspace(target: Path) -> Iterator[Path]:
    """Return a hidden folder beside the target for this context, and remove those that killed exports to it left.

    An export holds a lock on its folder, which ends with its process.
    """
    prefix = f".{target.name}.export-"
    for left in target.parent.glob(f"{glob.escape(prefix)}*"):
        with suppress(OSError), _locked(left):
            shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as name, _locked(Path(name)):
        yield Path(name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder in this context. Raises OSError if another process holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _verified(root: Path, tree: ReleaseTree, version: str, signers: tuple[str, ...]) -> StackManifest:
    """Return the manifest of a version that is whole as far as lists, names and modes tell. Raises Refused."""
    kind = stack_kind.stack_kind(PackageChecks(root).problems)
    problems = list(verification.version_problems(kind, tree, version, signers))
    manifest = stack_kind.manifest_of(tree, version)
    if problems or manifest is None:
        why = f"{problems[0].place} {problems[0].why}" if problems else "its manifest cannot be read"
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise Refused(f"{version} is not whole: {why}{more}", hint="`bringup stack verify` names all that is wrong")
    return manifest


def _place(work: Path, blob: Blob, config: bytes, reference: str, target: Path) -> None:
    """Write the image around the layer's blob into the folder `work`, and rename it to its target."""
    if target.suffix == ARCHIVE:
        with (work / "image").open("wb") as file:
            oci.write(file, config, [blob], lambda _: (work / "layer").open("rb"), name=reference, epoch=MTIME)
        (work / "image").replace(target)
        return
    folder = work / "image"
    for path, data in oci.layout(config, [blob], reference).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (work / "layer").rename(folder / oci.blob_path(blob.digest))
    folder.rename(target)  # refused by the system if a folder with content is there


def _settings(manifest: StackManifest, tree: ReleaseTree, version: str) -> dict[str, Any]:
    labels = {
        "org.opencontainers.image.title": manifest.name,
        "org.opencontainers.image.version": version,
        LABEL: manifest.name,
        f"{LABEL}.version": version,
        f"{LABEL}.manifest": tree.manifest_digest(version),
        f"{LABEL}.root": manifest.root,
    }
    return {"Env": [f"MODULEPATH={_modulepath(manifest)}"], "Labels": labels, "WorkingDir": "/"}


def _modulepath(manifest: StackManifest) -> str:
    """Return the folders that users name to `module use`, joined as in the variable MODULEPATH."""
    starts: tuple[str, ...] = (target_choice.FOLDER,)
    if not manifest.targets:
        starts = lmod_modules.start_folders(manifest.naming, (file.name for file in manifest.files))
    return ":".join(f"{manifest.root.rstrip('/')}/{manifest.name}/{release_layout.CURRENT}/{start}" for start in starts)


class VersionLayer:
    """The layer of a version: its members in a fixed order, and what was seen of them while they were written."""

    def __init__(self, root: Path, tree: ReleaseTree, version: str, manifest: StackManifest) -> None:
        self._root, self._tree, self._version, self._manifest = root, tree, version, manifest
        self._home = manifest.root.strip("/")
        self._folders = set[str]()
        self._machines = Counter[str]()
        self.files = self.size = 0

    @property
    def architecture(self) -> str:
        """Return the architecture of most programs and libraries; amd64 if there is none, as for scripts and data."""
        return min(self._machines, key=lambda name: (-self._machines[name], name), default="amd64")

    def write(self, archive: StreamedTar) -> None:
        """Write packages, the pointer to the version, and the version. Raises Refused for a file that is not as it was listed."""
        for package in sorted(self._manifest.packages, key=lambda package: package.folder):
            place = f"{PACKAGES}/{package.folder}"
            for file in self._listed(package):
                self._add(archive, f"{place}/{file.path}", file)
            # folders of a package do not come again, and a stack may have a million
            self._folders = {folder for folder in self._folders if not folder.startswith(f"{self._home}/{place}")}
        for file in self._version_files():
            self._add(archive, self._tree.version_path(self._version, file.path), file)
        pointer = ListedFile(path="", link=f"{release_layout.VERSIONS}/{self._version}")
        self._add(archive, self._tree.path(release_layout.CURRENT), pointer)

    def _listed(self, package: PackageContent) -> Iterator[ListedFile]:
        """Yield the files of a package, its list first. Raises Refused if the list is not the one that the manifest names."""
        place = f"{PACKAGES}/{package.folder}/{LISTING}"
        try:
            data = package_listing.read_list(self._root / PACKAGES / package.folder)
            listed = package_files.decode(data)
        except (OSError, PackageListError) as error:
            raise _differs(self._version, place, f"could not be read: {error}") from error
        yield ListedFile(path=LISTING, digest=package.content, size=len(data))
        if digest_bytes(data) != package.content:
            raise _differs(self._version, place, f"has the digest {digest_bytes(data)} instead of {package.content}")
        yield from listed

    def _version_files(self) -> Iterable[ListedFile]:
        folder = self._tree.version_path(self._version)
        for name, entry in sorted(self._tree.below(folder).items()):
            if entry.is_file:
                yield ListedFile(path=name, digest=self._tree.digests.get(f"{folder}/{name}", ""), size=entry.size)
            elif entry.is_link:
                yield ListedFile(path=name, link=entry.target)

    def _add(self, archive: StreamedTar, place: str, file: ListedFile) -> None:
        """Write a member and the folders above it; `place` is its path below the root."""
        path = f"{self._home}/{place}"
        self._add_folders(archive, str(PurePosixPath(path) if file.folder else PurePosixPath(path).parent))
        if file.folder:
            return
        if file.link:
            link = _member(path, tarfile.SYMTYPE, 0o777)
            link.linkname = file.link
            archive.addfile(link)
            return
        member = _member(path, tarfile.REGTYPE, 0o755 if file.executable else 0o644)
        member.size = file.size
        self._add_bytes(archive, member, place, file)
        self.files, self.size = self.files + 1, self.size + file.size

    def _add_bytes(self, archive: StreamedTar, member: tarfile.TarInfo, place: str, file: ListedFile) -> None:
        """Write a file and compare its bytes with the list. Raises Refused."""
        try:
            handle = os.open(self._root / place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise _differs(self._version, place, f"could not be read: {error.strerror}") from error
        with os.fdopen(handle, "rb") as stream:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size != file.size:
                raise _differs(self._version, place, f"has {facts.st_size} bytes instead of {file.size}")
            source = MeteredFile(stream)
            try:
                archive.addfile(member, source)
            except BrokenPipeError:  # zstd has ended
                raise
            except OSError as error:
                raise _differs(self._version, place, f"could not be read: {error}") from error
        if source.digest != file.digest:
            raise _differs(self._version, place, f"has the digest {source.digest} instead of {file.digest}")
        if machine := _machine(source.head):
            self._machines[machine] += 1

    def _add_folders(self, archive: StreamedTar, folder: str) -> None:
        """Write the folders on the way to `folder` that the layer does not have yet, the outermost first."""
        missing = []
        while folder not in (".", "") and folder not in self._folders:
            missing.append(folder)
            folder = str(PurePosixPath(folder).parent)
        for name in reversed(missing):
            self._folders.add(name)
            archive.addfile(_member(name, tarfile.DIRTYPE, 0o755))


class MeteredFile:
    """A stream that computes the digest of what is read from it, and keeps its first bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._hash, self.head = stream, hashlib.sha256(), b""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        data = self._stream.read(size)
        self._hash.update(data)
        self.head = self.head or data[:_HEADER]
        return data

    @property
    def digest(self) -> str:
        """Return the digest of everything that was read."""
        return f"sha256:{self._hash.hexdigest()}"


def _member(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.type, member.mode, member.mtime = kind, mode, MTIME
    return member


def _machine(head: bytes) -> str:
    """Return the architecture of a program or library by the first bytes of its file; empty for any other file."""
    if not head.startswith(b"\x7fELF") or len(head) < _HEADER or head[5] != _LITTLE_ENDIAN:
        return ""
    return _MACHINES.get(int.from_bytes(head[_MACHINE_AT], "little"), "")


def _differs(version: str, place: str, why: str) -> Refused:
    return Refused(f"{version} is not whole: {place} {why}", hint="`bringup stack verify` names all that is wrong")
