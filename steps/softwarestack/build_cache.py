"""Build cache: a folder with one entry for each package hash, complete or absent, verified whenever it is read.

CACHE/PREFIX8/HASH.json               description of the entry (`CacheEntry`), optionally signed; written last
CACHE/PREFIX8/HASH-DIGEST12.tar.zst   its archive; the name has the first digits of the archive's digest

PREFIX8 stands for the install root, which binaries embed. Several builders may write one hash at once: each writes an archive of
its own, the first description stays, and the others take that. So a reader never sees a description with another builder's archive.
A wrong entry is an error of its own kind and is never replaced: somebody has to look how it came to be.
"""

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Struct

from steps.clients import signature
from steps.contract.canonical import canonical
from steps.errors import BadTask
from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import BuildCacheLocation, prefix_digest
from steps.softwarestack.contract.stack_release import PACKAGE_NAMESPACE
from steps.softwarestack.package_packing import MOST_BYTES, MOST_MEMBERS, PackedContent

SCHEMA: Final = 1
LARGEST_ENTRY: Final = 8 << 20
"""Bytes above which no description is read; one of 50,000 module files has 5 MB."""
SIGNER: Final = "bringup"
"""Name under which trusted keys are listed for ssh-keygen; keys count, not names."""
_DESCRIPTION: Final = re.compile(r"([a-z0-9]{16,64})\.json")
_HASH: Final = re.compile(r"[a-z0-9]{16,64}")


class CacheEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Description of a package in the cache.

    `root` is the install root for which it was built, `archive` the digest of its archive, `size` the bytes of that. `modules` are
    its module files below the folder of modules; `members` and `unpacked` (bytes) bound what unpacking may write. `seconds` is the
    build tool's time, `builder` the tool and its release, `log` the digest of the build's log.
    """

    hash: str
    title: str
    root: str
    archive: str
    size: int
    modules: tuple[str, ...]
    members: int
    unpacked: int
    seconds: float = 0.0
    builder: str = ""
    log: str = ""
    schema: int = SCHEMA


class _SignedEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of HASH.json; the signature is over the canonical bytes of the entry."""

    entry: CacheEntry
    signature: str = ""


class CacheError(Exception):
    """Error: an entry cannot be used; `failure` is tampered, unsigned or permission, the message says what is wrong with it."""

    def __init__(self, failure: BuildFailure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


class BuildCache:
    """The entries of a build cache for one install root. With signers, only entries that one of them signed are read."""

    def __init__(self, location: BuildCacheLocation, root: str) -> None:
        self.folder = Path(location.folder) / prefix_digest(root)
        self._root, self._signers = root, location.signers

    def hashes(self) -> frozenset[str]:
        """Return the hashes of all entries, by the names of their files alone. Raises BadTask if the folder cannot be read."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise BadTask(f"build cache {self.folder}: {error.strerror}", hint="name a folder that can be read") from error
        return frozenset(match[1] for name in names if (match := _DESCRIPTION.fullmatch(name)))

    def entry(self, hash_: str) -> CacheEntry | None:
        """Return the verified description of an entry; None if there is none. Raises CacheError."""
        path = self._description(hash_)
        try:
            with path.open("rb") as file:
                data = file.read(LARGEST_ENTRY + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CacheError(BuildFailure.PERMISSION, f"{path} cannot be read: {error.strerror}") from error
        try:
            signed = msgspec.json.decode(data, type=_SignedEntry)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CacheError(BuildFailure.TAMPERED, f"{path} is no entry of a build cache: {error}") from error
        if problem := self._problem(signed.entry, hash_):
            raise CacheError(BuildFailure.TAMPERED, f"{path} {problem}")
        self._verify(path, signed)
        return signed.entry

    @contextlib.contextmanager
    def open_archive(self, entry: CacheEntry) -> Iterator[IO[bytes]]:
        """Yield the archive of an entry, whose digest was checked through this very handle. Raises CacheError."""
        path = self._archive(entry)
        try:
            file = path.open("rb")
        except FileNotFoundError as error:
            raise CacheError(BuildFailure.TAMPERED, f"{path} is missing, and its entry names it") from error
        except OSError as error:
            raise CacheError(BuildFailure.PERMISSION, f"{path} cannot be read: {error.strerror}") from error
        with file:
            size = os.fstat(file.fileno()).st_size
            if size != entry.size:
                raise CacheError(BuildFailure.TAMPERED, f"{path} has {size} bytes, its entry says {entry.size}")
            digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
            if digest != entry.archive:
                raise CacheError(BuildFailure.TAMPERED, f"{path} has the digest {digest}, its entry says {entry.archive}")
            file.seek(0)
            yield file

    def put(self, draft: CacheEntry, write: Callable[[IO[bytes]], PackedContent], key: Path | None = None) -> CacheEntry:
        """Store a package and return its entry: that of another builder if one was first.

        `draft` has all but what the archive decides, `write` writes the archive, `key` is the private key that signs. Raises
        OSError if the cache cannot be written, BadTask if the key cannot sign, CacheError if an entry is there and wrong.
        """
        if (entry := self.entry(draft.hash)) is not None:
            return entry
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._temporary(draft.hash) as temporary:
            with temporary.open("w+b") as file:
                content = write(file)
                file.flush()
                os.fsync(file.fileno())
                file.seek(0)
                digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
                os.fchmod(file.fileno(), 0o644)
            entry = msgspec.structs.replace(
                draft,
                archive=digest,
                size=temporary.stat().st_size,
                modules=content.modules,
                members=content.members,
                unpacked=content.size,
            )
            os.replace(temporary, self._archive(entry))
        return self._describe(entry, key)

    def _describe(self, entry: CacheEntry, key: Path | None) -> CacheEntry:
        made = signature.sign(canonical(entry), key, PACKAGE_NAMESPACE).decode() if key else ""
        with self._temporary(entry.hash) as temporary:
            with temporary.open("wb") as file:
                file.write(canonical(_SignedEntry(entry=entry, signature=made)))
                os.fchmod(file.fileno(), 0o644)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, self._description(entry.hash))  # fails if it exists, while a rename would replace it
            except FileExistsError:
                earlier = self.entry(entry.hash)
                if earlier is not None and earlier.archive != entry.archive:
                    self._archive(entry).unlink(missing_ok=True)
                return earlier or entry
        _flush(self.folder)
        return entry

    @contextlib.contextmanager
    def _temporary(self, hash_: str) -> Iterator[Path]:
        path = self.folder / f".{hash_}.{secrets.token_hex(6)}.part"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _description(self, hash_: str) -> Path:
        if not _HASH.fullmatch(hash_):
            raise BadTask(f"{hash_[:80]!r} is no hash of a package")
        return self.folder / f"{hash_}.json"

    def _archive(self, entry: CacheEntry) -> Path:
        return self.folder / f"{entry.hash}-{entry.archive.removeprefix('sha256:')[:12]}.tar.zst"

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
        if odd := [name for name in entry.modules if name.startswith("/") or {"", ".", ".."} & set(name.split("/"))]:
            return f"has the module file {odd[0][:100]!r}"
        return ""

    def _verify(self, path: Path, signed: _SignedEntry) -> None:
        if not self._signers:
            return
        if not signed.signature:
            raise CacheError(BuildFailure.UNSIGNED, f"{path} has no signature, and the stack names signers of its cache")
        data, armoured = canonical(signed.entry), signed.signature.encode()
        if not signature.verify(data, armoured, SIGNER, self._signers, PACKAGE_NAMESPACE):
            return
        # a signature over these bytes by another key is a question of trust; over other bytes, of tampering
        if maker := signature.key_of(data, armoured, PACKAGE_NAMESPACE):
            raise CacheError(BuildFailure.UNSIGNED, f"{path} is signed with {maker}, which is no signer of the stack's cache")
        raise CacheError(BuildFailure.TAMPERED, f"{path} has a signature that is not over its content")


def remove_leftovers(cache: BuildCache, age: float, current: float) -> int:
    """Remove files that killed writers left, older than `age` seconds at the time `current`; return their number.

    These are half files, and archives without a description.
    """
    removed, described = 0, cache.hashes()
    orphans = (path for path in cache.folder.glob("*.tar.zst") if path.name.partition("-")[0] not in described)
    for path in (*cache.folder.glob(".*.part"), *orphans):
        with contextlib.suppress(FileNotFoundError):
            if current - path.stat().st_mtime > age:
                path.unlink()
                removed += 1
    return removed


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
