"""Build cache: one entry for each package hash, complete or absent, verified whenever it is read.

An entry is a description (`CacheEntry`), optionally signed, and an archive, which the description names by digest. They lie in a
folder (`build_cache_folder`) or in an OCI registry (`build_cache_registry`), apart for each install root, which binaries embed.
Several builders may write one hash at once: the first description stays, and the others take that. So a reader never sees a
description with another builder's archive. A wrong entry is an error of its own kind and is never replaced: somebody has to look
how it came to be.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Struct

from steps.clients import signature
from steps.contract.canonical import UNREADABLE_JSON, canonical
from steps.errors import BadTask
from steps.softwarestack.cache.build_cache_folder import FolderStorage
from steps.softwarestack.cache.build_cache_storage import SCHEMA, CacheEntry, CacheError, CacheStorage
from steps.softwarestack.cache.package_packing import MOST_BYTES, MOST_MEMBERS, PackedContent, largest_archive
from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import BuildCacheLocation, prefix_digest
from steps.softwarestack.contract.stack_release import PACKAGE_NAMESPACE

SIGNER: Final = "bringup"
"""Name under which trusted keys are listed for ssh-keygen; keys count, not names."""
_HASH: Final = re.compile(r"[a-z0-9]{16,64}")


class _SignedEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of a description; the signature is over the canonical bytes of the entry."""

    entry: CacheEntry
    signature: str = ""


class BuildCache:
    """The entries of a build cache for one install root. With signers, only entries that one of them signed are read.

    They lie in `storage`, by default in the folder of the location.
    """

    def __init__(self, location: BuildCacheLocation, root: str, storage: CacheStorage | None = None) -> None:
        self._storage = storage or FolderStorage(Path(location.folder) / prefix_digest(root))
        self._root, self._signers = root, location.signers
        self._is_writable = False

    @property
    def folder(self) -> Path:
        """Folder of this machine in which archives are written: that of the entries, or a folder for temporary files."""
        return self._storage.folder

    def hashes(self) -> frozenset[str]:
        """Return the hashes of all entries, by their names alone. Raises a StepError if the names cannot be read."""
        return self._storage.hashes()

    def entry(self, hash_: str) -> CacheEntry | None:
        """Return the verified description of an entry; None if there is none. Raises CacheError."""
        if not _HASH.fullmatch(hash_):
            raise BadTask(f"{hash_[:80]!r} is no hash of a package")
        data, place = self._storage.description(hash_), self._storage.where(hash_)
        if data is None:
            return None
        try:
            signed = msgspec.json.decode(data, type=_SignedEntry)
        except UNREADABLE_JSON as error:
            raise CacheError(BuildFailure.TAMPERED, f"{place} is no entry of a build cache: {error}") from error
        if problem := self._problem(signed.entry, hash_):
            raise CacheError(BuildFailure.TAMPERED, f"{place} {problem}")
        self._verify(place, signed)
        return signed.entry

    @contextlib.contextmanager
    def open_archive(self, entry: CacheEntry) -> Iterator[IO[bytes]]:
        """Yield the archive of an entry, whose digest was checked through this very handle. Raises CacheError."""
        place = self._storage.place_of(entry)
        with self._storage.open_archive(entry) as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry.size:
                raise CacheError(BuildFailure.TAMPERED, f"{place} has {size} bytes, its entry says {entry.size}")
            digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
            if digest != entry.archive:
                raise CacheError(BuildFailure.TAMPERED, f"{place} has the digest {digest}, its entry says {entry.archive}")
            file.seek(0)
            yield file

    def put(self, draft: CacheEntry, write: Callable[[IO[bytes]], PackedContent], key: Path | None = None) -> CacheEntry:
        """Store a package and return its entry: that of another builder if one was first.

        `draft` has all but what the archive decides, `write` writes the archive, `key` is the private key that signs. Raises
        OSError if the cache cannot be written, BadTask if the key cannot sign, CacheError if an entry is there and wrong.
        """
        if (entry := self.entry(draft.hash)) is not None:
            return entry
        with self._storage.draft() as file:
            content = write(file)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            entry = msgspec.structs.replace(
                draft,
                archive=f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}",
                size=os.fstat(file.fileno()).st_size,
                modules=content.modules,
                members=content.members,
                unpacked=content.size,
            )
            made = signature.sign(canonical(entry), key, PACKAGE_NAMESPACE).decode() if key else ""
            if self._storage.add(entry, file, canonical(_SignedEntry(entry=entry, signature=made))):
                return entry
        earlier = self.entry(entry.hash)
        if earlier is not None and earlier.archive != entry.archive:
            self._storage.discard(entry)
        return earlier or entry

    def require_writable(self) -> None:
        """Raise CacheError or OSError unless packages can be stored: a build may take hours before its package is.

        Only the first call looks, unless that raises.
        """
        if not self._is_writable:
            self._storage.require_writable()
            self._is_writable = True

    def remove_leftovers(self, age: float, current: float) -> int:
        """Remove files that killed writers left, older than `age` seconds at the time `current`; return their number."""
        return self._storage.remove_leftovers(age, current)

    def _problem(self, entry: CacheEntry, hash_: str) -> str:
        """Return why a description is not one of this hash and root that `put` has written; empty if it is."""
        if entry.schema != SCHEMA:
            return f"has schema {entry.schema}, this version reads {SCHEMA}"
        if entry.hash != hash_ or entry.root != self._root:
            return f"describes {entry.hash[:64]!r} for {entry.root[:200]!r}, not {hash_} for {self._root}"
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", entry.archive) or not entry.size > 0:
            return f"has the archive {entry.archive[:80]!r} of {entry.size} bytes"
        if not 0 <= entry.unpacked <= MOST_BYTES or not 0 <= entry.members <= MOST_MEMBERS:
            return f"has {entry.members} members of {entry.unpacked} bytes"
        if entry.size > largest_archive(entry.members, entry.unpacked):
            return f"has an archive of {entry.size} bytes for {entry.members} members of {entry.unpacked} bytes"
        if odd := [name for name in entry.modules if name.startswith("/") or {"", ".", ".."} & set(name.split("/"))]:
            return f"has the module file {odd[0][:100]!r}"
        return ""

    def _verify(self, place: str, signed: _SignedEntry) -> None:
        if not self._signers:
            return
        if not signed.signature:
            raise CacheError(BuildFailure.UNSIGNED, f"{place} has no signature, and the stack names signers of its cache")
        data, armoured = canonical(signed.entry), signed.signature.encode()
        if not signature.verify(data, armoured, SIGNER, self._signers, PACKAGE_NAMESPACE):
            return
        # a signature over these bytes by another key is a question of trust; over other bytes, of tampering
        if maker := signature.key_of(data, armoured, PACKAGE_NAMESPACE):
            raise CacheError(BuildFailure.UNSIGNED, f"{place} is signed with {maker}, which is no signer of the stack's cache")
        raise CacheError(BuildFailure.TAMPERED, f"{place} has a signature that is not over its content")
