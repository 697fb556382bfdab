"""The build cache: entries are complete or absent, verified at every read, and never replaced, whoever writes at once."""

import hashlib
import json
import os
import random
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest

from steps.errors import BadTask
from steps.softwarestack.cache.build_cache import BuildCache
from steps.softwarestack.cache.build_cache_storage import LARGEST_ENTRY, CacheEntry, CacheError
from steps.softwarestack.cache.package_packing import PackedContent
from steps.softwarestack.cache.unpacked_packages import UnpackedPackages
from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import BuildCacheLocation
from tests.unit.softwarestack.packed_packages import (
    MODULE,
    PLACE,
    PREFIX_FOLDER,
    ROOT,
    archive_of,
    install,
    member,
    module_file,
    packed,
)

HASH = "0123456789abcdefghijklmnopqrstuv"


def cache_of(folder: Path, signers: tuple[str, ...] = ()) -> BuildCache:
    return BuildCache(BuildCacheLocation(folder=str(folder), signers=signers), ROOT)


def draft(hash_: str = HASH) -> CacheEntry:
    return CacheEntry(hash=hash_, title="zlib@1.3", root=ROOT, archive="", size=0, modules=(), members=0, unpacked=0)


def writer(data: bytes, modules: tuple[str, ...] = (MODULE,), members: int = 1) -> Callable[[IO[bytes]], PackedContent]:
    def write(file: IO[bytes]) -> PackedContent:
        file.write(data)
        return PackedContent(modules=modules, members=members, size=10_000)

    return write


def put(cache: BuildCache, data: bytes, hash_: str = HASH, key: Path | None = None) -> CacheEntry:
    return cache.put(draft(hash_), writer(data), key)


def content(cache: BuildCache, hash_: str = HASH) -> bytes:
    entry = cache.entry(hash_)
    assert entry is not None
    with cache.open_archive(entry) as file:
        return file.read()


def refusal(act: Callable[[], object]) -> tuple[BuildFailure, str]:
    with pytest.raises(CacheError) as caught:
        act()
    return caught.value.failure, str(caught.value)


def key_pair(folder: Path, name: str) -> tuple[Path, str]:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
    return folder / name, (folder / f"{name}.pub").read_text()


def test_what_is_put_is_there(tmp_path: Path) -> None:
    cache = cache_of(tmp_path)
    assert cache.entry(HASH) is None
    assert cache.hashes() == frozenset()
    entry = put(cache, b"archive")
    assert (entry.size, entry.modules) == (7, (MODULE,))
    assert content(cache) == b"archive"
    assert cache.hashes() == {HASH}
    assert sorted(path.name for path in (tmp_path / PREFIX_FOLDER).iterdir()) == [
        f"{HASH}-{hashlib.sha256(b'archive').hexdigest()[:12]}.tar.zst",
        f"{HASH}.json",
    ]


def test_another_root_has_a_cache_of_its_own(tmp_path: Path) -> None:
    put(cache_of(tmp_path), b"archive")
    other = BuildCache(BuildCacheLocation(folder=str(tmp_path)), "/apps/other")
    assert other.entry(HASH) is None
    (tmp_path / PREFIX_FOLDER).rename(other.folder)
    assert refusal(lambda: other.entry(HASH))[0] is BuildFailure.TAMPERED


def test_the_first_entry_stays(tmp_path: Path) -> None:
    cache = cache_of(tmp_path)
    first = put(cache, b"first")
    assert put(cache, b"second") == first
    assert content(cache) == b"first"


@pytest.mark.parametrize("seed", range(8))
def test_writers_of_one_hash_agree_on_one_entry(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    archives = [chance.randbytes(chance.choice([10, 5000])) for _ in range(6)]
    start = threading.Barrier(len(archives))

    def build(data: bytes) -> CacheEntry:
        def write(file: IO[bytes]) -> PackedContent:
            start.wait(20)  # all have seen that there is no entry
            return writer(data)(file)

        return cache_of(tmp_path).put(draft(), write)

    with ThreadPoolExecutor(len(archives)) as beside:
        entries = list(beside.map(build, archives))
    assert len({entry.archive for entry in entries}) == 1
    assert content(cache_of(tmp_path)) in archives
    names = sorted(path.name for path in (tmp_path / PREFIX_FOLDER).iterdir())
    assert len(names) == 2, names


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def write(file: IO[bytes]) -> PackedContent:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        cache_of(tmp_path).put(draft(), write)
    assert list((tmp_path / PREFIX_FOLDER).iterdir()) == []


def test_an_archive_without_description_is_no_entry(tmp_path: Path) -> None:
    """A writer that was killed between its two files leaves the archive, which the next one may replace."""
    cache = cache_of(tmp_path)
    entry = put(cache, b"archive")
    (cache.folder / f"{HASH}.json").unlink()
    assert cache.entry(HASH) is None
    assert put(cache, b"archive").archive == entry.archive


def test_leftovers_of_killed_writers_are_removed_by_age(tmp_path: Path) -> None:
    cache = cache_of(tmp_path)
    put(cache, b"archive")
    part = cache.folder / f".{HASH}.abc.part"
    part.write_bytes(b"half")
    (cache.folder / f"{'e' * 32}-0123456789ab.tar.zst").write_bytes(b"without description")
    written = part.stat().st_mtime
    assert cache.remove_leftovers(3600, written + 10) == 0
    assert cache.remove_leftovers(3600, written + 4000) == 2
    assert content(cache) == b"archive"


TAMPERED: dict[str, Callable[[Path, Path], object]] = {
    "changed archive": lambda archive, _: archive.write_bytes(b"ARCHIVE"),
    "shorter archive": lambda archive, _: archive.write_bytes(b"arch"),
    "no archive": lambda archive, _: archive.unlink(),
    "no JSON": lambda _, entry: entry.write_bytes(b"{"),
    "no text": lambda _, entry: entry.write_bytes(b"\xff\xfe"),
    "deep JSON": lambda _, entry: entry.write_bytes(b"[" * 100_000),
    "too large": lambda _, entry: entry.write_bytes(b" " * (LARGEST_ENTRY + 2)),
    "empty": lambda _, entry: entry.write_bytes(b""),
}
FIELDS: tuple[tuple[str, object], ...] = (
    ("hash", "z" * 32),
    ("root", "/elsewhere"),
    ("archive", "../../../etc/passwd"),
    ("size", -1),
    ("size", 10**15),
    ("size", 200_000),  # too much for one member of 10,000 bytes
    ("schema", 2),
    ("modules", ["../../x"]),
    ("members", -1),
    ("unpacked", 1 << 60),
)


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_entries_are_told_apart_and_stay(name: str, tmp_path: Path) -> None:
    cache = cache_of(tmp_path)
    put(cache, b"archive")
    description = cache.folder / f"{HASH}.json"
    TAMPERED[name](next(cache.folder.glob("*.tar.zst")), description)
    left = description.read_bytes()
    failure, message = refusal(lambda: content(cache))
    assert failure is BuildFailure.TAMPERED
    assert HASH in message
    assert description.read_bytes() == left


@pytest.mark.parametrize(("field", "value"), FIELDS)
def test_an_entry_with_impossible_fields_is_tampered(field: str, value: object, tmp_path: Path) -> None:
    cache = cache_of(tmp_path)
    put(cache, b"archive")
    description = cache.folder / f"{HASH}.json"
    signed = json.loads(description.read_bytes())
    signed["entry"][field] = value
    description.write_text(json.dumps(signed))
    assert refusal(lambda: cache.entry(HASH))[0] is BuildFailure.TAMPERED
    assert refusal(lambda: put(cache, b"other"))[0] is BuildFailure.TAMPERED


def test_signatures_are_required_where_signers_are_named(tmp_path: Path) -> None:
    key, public = key_pair(tmp_path, "ours")
    other, _ = key_pair(tmp_path, "other")
    trusting = cache_of(tmp_path / "cache", (public,))
    put(cache_of(tmp_path / "cache"), b"archive")
    failure, message = refusal(lambda: trusting.entry(HASH))
    assert (failure, "has no signature" in message) == (BuildFailure.UNSIGNED, True)
    second, third = "b" * 32, "c" * 32
    put(trusting, b"archive", second, key)
    assert content(trusting, second) == b"archive"
    put(cache_of(tmp_path / "cache"), b"archive", third, other)
    failure, message = refusal(lambda: trusting.entry(third))
    assert (failure, "which is no signer" in message) == (BuildFailure.UNSIGNED, True)


def test_a_signature_over_another_entry_is_tampering(tmp_path: Path) -> None:
    key, public = key_pair(tmp_path, "ours")
    trusting = cache_of(tmp_path / "cache", (public,))
    put(trusting, b"archive", key=key)
    description = trusting.folder / f"{HASH}.json"
    signed = json.loads(description.read_bytes())
    signed["entry"]["title"] = "zlib@1.2"
    description.write_text(json.dumps(signed))
    failure, message = refusal(lambda: trusting.entry(HASH))
    assert failure is BuildFailure.TAMPERED
    assert "not over its content" in message


def test_a_key_that_cannot_sign_leaves_no_entry(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key\n")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(BadTask, match="cannot sign"):
        put(cache_of(tmp_path / "cache"), b"archive", key=tmp_path / "key")
    assert cache_of(tmp_path / "cache").entry(HASH) is None


@pytest.mark.parametrize("hash_", ["", "../x", "A" * 32, "short", "a" * 65])
def test_only_hashes_become_names_of_files(hash_: str, tmp_path: Path) -> None:
    with pytest.raises(BadTask, match="is no hash of a package"):
        cache_of(tmp_path).entry(hash_)


def test_a_package_is_unpacked_once_and_checked(tmp_path: Path) -> None:
    cache = cache_of(tmp_path / "cache")
    archive = packed(install(tmp_path / "prefix", {"lib/a": "a"}), module_file(tmp_path / "modules"))
    entry = cache.put(draft(), writer(archive, members=4))
    unpacked = UnpackedPackages(tmp_path / "scratch", cache, ROOT)
    folder = unpacked.folder(entry, PLACE)
    assert (folder / "prefix/lib/a").read_text() == "a"
    next(cache.folder.glob("*.tar.zst")).unlink()
    assert unpacked.folder(entry, PLACE) == folder


def test_unpacked_packages_go_when_nobody_has_used_them_for_long(tmp_path: Path) -> None:
    cache = cache_of(tmp_path / "cache")
    entries = [cache.put(draft(name * 32), writer(packed(None, module_file(tmp_path / "modules")))) for name in "ab"]
    unpacked = UnpackedPackages(tmp_path / "scratch", cache, ROOT)
    old, used = (unpacked.folder(entry, PLACE) for entry in entries)
    earlier_start = old.parent.parent.with_name("0ldb007")
    earlier_start.mkdir()
    os.utime(old, (1, 1))
    os.utime(used, (1, 1))
    assert unpacked.folder(entries[1], PLACE) == used
    unpacked.remove_old(used.stat().st_mtime + 60)
    assert [folder.exists() for folder in (old, used, earlier_start)] == [False, True, False]


def test_an_archive_that_is_not_as_its_entry_says_is_not_unpacked(tmp_path: Path) -> None:
    cache = cache_of(tmp_path / "cache")
    hostile = archive_of(member("../x", data=b"x"))
    entry = cache.put(draft(), writer(hostile))
    scratch = tmp_path / "scratch"
    assert refusal(lambda: UnpackedPackages(scratch, cache, ROOT).folder(entry, PLACE))[0] is BuildFailure.TAMPERED
    other = cache.put(draft("d" * 32), writer(packed(None, module_file(tmp_path / "modules")), modules=("all/other.lua",)))
    failure, message = refusal(lambda: UnpackedPackages(scratch, cache, ROOT).folder(other, PLACE))
    assert (failure, "other files than its entry says" in message) == (BuildFailure.TAMPERED, True)
    assert [path for path in scratch.rglob("*") if path.is_file()] == []
