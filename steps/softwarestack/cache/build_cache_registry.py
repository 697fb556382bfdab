"""Storage of a build cache in an OCI registry: a manifest for each package hash, with the description as config.

REPOSITORY:PREFIX8-HASH   manifest of an entry: its config is the description, optionally signed, its only layer the archive

PREFIX8 stands for the install root. Registries know no "create unless it exists": of two writers that meet after both have looked,
the later one's tag stays, and both then read what is there. No reader sees a mix of the two, because a manifest names its own
description and archive by digest. What nobody names any more is left to the garbage collection of the registry.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps.clients.registry_client import MANIFEST, BlobDiffers, RegistryClient, RegistryLimits, RegistryRepository
from steps.contract.canonical import UNREADABLE_JSON, canonical, digest_bytes
from steps.errors import NotUnderstood, Refused, Unreachable
from steps.softwarestack.cache.build_cache import BuildCache
from steps.softwarestack.cache.build_cache_storage import LARGEST_ENTRY, CacheEntry, CacheError
from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import BuildCacheLocation, CacheRegistry, prefix_digest

DESCRIPTION: Final = "application/vnd.bringup.cache-entry.v1+json"
ARCHIVE: Final = "application/vnd.bringup.package.v1.tar+zstd"
"""Media types of an entry's config and layer."""


class BlobDescriptor(Struct, frozen=True, kw_only=True, rename="camel"):
    """Reference of a manifest to a blob."""

    media_type: str
    digest: str
    size: int


class EntryManifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """Manifest of an entry of the build cache, as far as it is read; the bytes that `add` writes have all of it."""

    config: BlobDescriptor
    layers: tuple[BlobDescriptor, ...]
    media_type: str = MANIFEST
    schema_version: int = 2


class _DescribedArchive(Struct, frozen=True):
    archive: str
    size: int


class _Description(Struct, frozen=True):
    """Part of a description that the manifest repeats."""

    entry: _DescribedArchive


class RegistryStorage:
    """Entries of one install root in a repository. Archives pass through temporary files in `folder`."""

    def __init__(self, client: RegistryClient, prefix: str, folder: Path) -> None:
        self.folder = folder
        self._client, self._prefix = client, prefix

    def hashes(self) -> frozenset[str]:
        """Return the hashes of all entries, by their tags alone. Raises errors of the registry's client."""
        self._client.require_registry()
        beginning = f"{self._prefix}-"
        return frozenset(tag.removeprefix(beginning) for tag in self._client.tags() if tag.startswith(beginning))

    def where(self, hash_: str) -> str:
        """Return the reference of an entry's manifest."""
        return f"oci://{self._client.place}:{self._tag(hash_)}"

    def place_of(self, entry: CacheEntry) -> str:
        """Return the reference of an entry's archive."""
        return f"oci://{self._client.place}@{entry.archive}"

    def description(self, hash_: str) -> bytes | None:
        """Return the bytes of a description; None if there is none. Raises CacheError, also for a manifest of anything else."""
        place = self.where(hash_)
        with _failures():
            data = self._client.manifest(self._tag(hash_))
        if data is None:
            return None
        try:
            manifest = msgspec.json.decode(data, type=EntryManifest)
        except UNREADABLE_JSON as error:
            raise CacheError(BuildFailure.TAMPERED, f"{place} is no entry of a build cache: {error}") from error
        kinds = (manifest.media_type, manifest.config.media_type, *(layer.media_type for layer in manifest.layers))
        if kinds != (MANIFEST, DESCRIPTION, ARCHIVE) or not 0 < manifest.config.size <= LARGEST_ENTRY:
            named = " ".join(kinds)[:200]
            raise CacheError(BuildFailure.TAMPERED, f"{place} is no entry of a build cache: its manifest names {named}")
        with _failures():
            description = self._client.blob(manifest.config.digest, manifest.config.size)
        if description is None:
            raise CacheError(BuildFailure.TAMPERED, f"{place}: its description {manifest.config.digest} is missing")
        if problem := _archive_problem(manifest.layers[0], description):
            raise CacheError(BuildFailure.TAMPERED, f"{place} {problem}")
        return description

    @contextlib.contextmanager
    def open_archive(self, entry: CacheEntry) -> Iterator[BufferedRandom]:
        """Download the archive of an entry into a temporary file, and yield that. Raises CacheError."""
        with self.draft() as file:
            with _failures():
                is_there = self._client.download(entry.archive, entry.size, file)
            if not is_there:
                raise CacheError(BuildFailure.TAMPERED, f"{self.place_of(entry)} is missing, and its entry names it")
            file.seek(0)
            yield file

    def require_writable(self) -> None:
        """Raise CacheError unless a registry answers, and the login may push."""
        with _failures():
            self._client.require_registry()
            self._client.require_push()

    @contextlib.contextmanager
    def draft(self) -> Iterator[BufferedRandom]:
        """Open a temporary file without a name, of which a killed process leaves nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.folder) as file:
            yield file

    def add(self, entry: CacheEntry, archive: BufferedRandom, description: bytes) -> bool:
        """Upload archive and description, and tag their manifest unless the tag is there now. Return False, because another
        writer may set the tag at the same time: the caller reads what is there.
        """
        tag = self._tag(entry.hash)
        config = BlobDescriptor(media_type=DESCRIPTION, digest=digest_bytes(description), size=len(description))
        layer = BlobDescriptor(media_type=ARCHIVE, digest=entry.archive, size=entry.size)
        manifest = canonical(EntryManifest(config=config, layers=(layer,)))
        with _failures():
            self._client.upload(layer.digest, layer.size, archive)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(description)
                file.flush()
                self._client.upload(config.digest, config.size, file)
            if self._client.manifest(tag) is None:
                self._put(tag, manifest)
            if self._client.manifest(tag) is None:
                problem = f"{self.where(entry.hash)} is missing after the registry has taken it"
                raise CacheError(BuildFailure.REGISTRY, problem, temporary=True)
        return False

    def _put(self, tag: str, manifest: bytes) -> None:
        try:
            self._client.put_manifest(tag, MANIFEST, manifest)
        except (NotUnderstood, Refused):
            # a registry with immutable tags refuses the second of two writers
            if self._client.manifest(tag) is None:
                raise

    def discard(self, entry: CacheEntry) -> None:
        """Do nothing: the registry collects blobs that no manifest names."""

    def remove_leftovers(self, age: float, current: float) -> int:  # noqa: ARG002  # a folder keeps what is young
        """Return 0: temporary files have no names, and uploads that were broken off are the registry's to remove."""
        return 0

    def _tag(self, hash_: str) -> str:
        return f"{self._prefix}-{hash_}"


def _archive_problem(layer: BlobDescriptor, description: bytes) -> str:
    """Return how the archive of a manifest differs from that of its description; empty if it does not.

    A registry keeps what manifests name: an archive that only a description names is lost at the next garbage collection.
    """
    try:
        described = msgspec.json.decode(description, type=_Description).entry
    except UNREADABLE_JSON:
        return ""  # `BuildCache` says how it is wrong
    if (layer.digest, layer.size) == (described.archive, described.size):
        return ""
    named = f"{layer.digest[:80]} of {layer.size} bytes"
    return f"names the archive {named} in its manifest, {described.archive[:80]} of {described.size} bytes in its description"


def registry_cache(
    location: BuildCacheLocation,
    root: str,
    folder: Path,
    *,
    password: str = "",
    authorities: tuple[str, ...] = (),
    limits: RegistryLimits = RegistryLimits(),
) -> BuildCache:
    """Return the build cache of an install root in the registry of a location.

    `folder` is for temporary files, which are as large as archives. `password` and `authorities` (CA certificates) are the content
    of the secret files that the location names.
    """
    assert location.registry is not None
    client = registry_client(location.registry, password=password, authorities=authorities, limits=limits)
    return BuildCache(location, root, RegistryStorage(client, prefix_digest(root), folder))


def registry_client(
    registry: CacheRegistry, *, password: str, authorities: tuple[str, ...], limits: RegistryLimits
) -> RegistryClient:
    """Return a client of the repository with a build cache; see `registry_cache`."""
    repository = RegistryRepository(
        url=registry.url, name=registry.repository, username=registry.username, password=password, authorities=authorities
    )
    return RegistryClient(repository, limits)


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Turn errors of the registry's client into those of a build cache."""
    try:
        yield
    except Unreachable as error:
        raise CacheError(BuildFailure.REGISTRY, str(error), temporary=True) from error
    except Refused as error:
        raise CacheError(BuildFailure.PERMISSION, str(error)) from error
    except BlobDiffers as error:
        raise CacheError(BuildFailure.TAMPERED, str(error)) from error
    except NotUnderstood as error:
        raise CacheError(BuildFailure.REGISTRY, str(error)) from error
