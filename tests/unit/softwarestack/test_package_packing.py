"""Archives of packages: equal bytes for equal content, the content comes back, and hostile archives are refused."""

import contextlib
import io
import os
import py_compile
import random
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest

from steps.softwarestack.cache import package_packing
from steps.softwarestack.cache.package_packing import MTIME, PLACEHOLDER, PackingError
from tests.unit.softwarestack.packed_packages import (
    MODULE,
    MODULES_ROOT,
    PLACE,
    ROOT,
    archive_of,
    install,
    listing,
    member,
    module_file,
    packed,
    random_files,
)

PREFIX = member("prefix", tarfile.DIRTYPE)


def unpacked(archive: bytes, folder: Path, most: int = package_packing.MOST_BYTES) -> package_packing.PackedContent:
    folder.mkdir()
    with open(os.memfd_create("archive"), "w+b") as file:
        file.write(archive)
        file.seek(0)
        return package_packing.unpack(file, folder, place=PLACE, most=most)


@pytest.mark.parametrize("seed", range(25))
def test_content_comes_back_and_packs_to_the_same_bytes(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    files = random_files(random.Random(seed))
    prefix, modules = install(tmp_path / "prefix", files), module_file(tmp_path / "modules")
    archive = packed(prefix, modules)
    content = unpacked(archive, tmp_path / "back")
    assert content.modules == (MODULE,)
    assert len(archive) <= package_packing.largest_archive(content.members, content.size)
    for path in [prefix, *prefix.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert listing(tmp_path / "back" / "prefix") == listing(prefix)
    package_packing.install_modules(tmp_path / "back", content.modules, tmp_path / "again", MODULES_ROOT)
    assert packed(tmp_path / "back" / "prefix", tmp_path / "again") == archive


@pytest.mark.parametrize("letter", ["a", "ü", "\udcff"])
def test_the_longest_paths_are_within_the_bound_of_an_archive(letter: str) -> None:
    longest = letter * (4095 // len(os.fsencode(letter)))  # PATH_MAX
    link, _ = member(f"prefix/{longest}", tarfile.SYMTYPE, link=longest)
    headers = link.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
    assert len(headers) <= package_packing.largest_archive(1, 0) - package_packing.largest_archive(0, 0)


def test_times_order_modes_and_umask_do_not_matter(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"bin/run": b"#!/bin/sh\n", "lib/a": b"a", "lib/b": b"b"}
    modules = module_file(tmp_path / "modules")
    first = install(tmp_path / "first", files)
    before = os.umask(0o077)
    try:
        second = install(tmp_path / "second", dict(reversed(files.items())))
    finally:
        os.umask(before)
    (first / "bin/run").chmod(0o755)
    (second / "bin/run").chmod(0o4711)
    os.utime(second / "lib/a", (1, 1))
    assert packed(first, modules) == packed(second, modules)
    unpacked(packed(second, modules), tmp_path / "back")
    assert (tmp_path / "back/prefix/bin/run").stat().st_mode & 0o7777 == 0o755


def test_hard_links_stay_one_file(tmp_path: Path) -> None:
    prefix = install(tmp_path / "prefix", {"bin/git": b"x" * 100_000})
    os.link(prefix / "bin/git", prefix / "bin/git-add")
    content = unpacked(packed(prefix, module_file(tmp_path / "modules")), tmp_path / "back")
    names = [tmp_path / "back/prefix/bin" / name for name in ("git", "git-add")]
    assert names[0].stat().st_ino == names[1].stat().st_ino
    assert content.size < 150_000


def test_module_files_name_the_folder_of_the_stack_that_reads_them(tmp_path: Path) -> None:
    archive = packed(None, module_file(tmp_path / "modules"))
    content = unpacked(archive, tmp_path / "back")
    assert PLACEHOLDER in (tmp_path / "back/modules" / MODULE).read_bytes()
    package_packing.install_modules(tmp_path / "back", content.modules, tmp_path / "other", "/apps/night/current/modules")
    assert (tmp_path / "other" / MODULE).read_text() == 'prepend_path("MODULEPATH", "/apps/night/current/modules/all/Compiler")\n'
    assert not (tmp_path / "back/prefix").exists()


def test_bytecode_stays_valid_when_sources_get_their_time(tmp_path: Path) -> None:
    prefix = install(tmp_path / "prefix", {"lib/a.py": "x = 1\n", "lib/short.pyc": b"no bytecode"})
    compiled = Path(py_compile.compile(str(prefix / "lib/a.py"), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP))
    checked = Path(
        py_compile.compile(
            str(prefix / "lib/a.py"),
            cfile=str(prefix / "lib/b.pyc"),
            invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH,
        )
    )
    hashed = checked.read_bytes()
    package_packing.settle_bytecode(prefix)
    assert struct.unpack("<I", compiled.read_bytes()[8:12]) == (MTIME,)
    assert checked.read_bytes() == hashed
    assert (prefix / "lib/short.pyc").read_bytes() == b"no bytecode"
    unpacked(packed(prefix, module_file(tmp_path / "modules")), tmp_path / "back")
    assert int((tmp_path / "back/prefix/lib/a.py").stat().st_mtime) == MTIME


@pytest.mark.parametrize(
    "target",
    ["/etc/passwd", "../../../etc/passwd", "../../outside", f"{ROOT}/packages/../x", f"{ROOT}/other", "/software/labs/packages/x"],
)
def test_links_out_of_the_package_do_not_travel(target: str, tmp_path: Path) -> None:
    prefix = install(tmp_path / "prefix", {"bin/link": f"-> {target}"})
    with pytest.raises(PackingError, match="bin/link links to"):
        packed(prefix, module_file(tmp_path / "modules"))
    hostile = archive_of(PREFIX, member("prefix/bin", tarfile.DIRTYPE), member("prefix/bin/link", tarfile.SYMTYPE, target))
    with pytest.raises(PackingError, match="links to"):
        unpacked(hostile, tmp_path / "back")


def test_pipes_do_not_travel(tmp_path: Path) -> None:
    prefix = install(tmp_path / "prefix", {"bin/": ""})
    os.mkfifo(prefix / "bin/pipe")
    with pytest.raises(PackingError, match="bin/pipe is no file, folder or symbolic link"):
        packed(prefix, module_file(tmp_path / "modules"))


def test_a_module_file_with_the_placeholder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackingError, match="stands for the folder of modules"):
        packed(None, module_file(tmp_path / "modules", PLACEHOLDER.decode()))


INSIDE = member("prefix/link", tarfile.SYMTYPE, "lib")
HOSTILE = {
    "absolute path": ((member("/etc/passwd", data=b"x"),), "is no path in"),
    "parent path": ((PREFIX, member("prefix/../../x", data=b"x")), "is no path in"),
    "other folder": ((member("etc/passwd", data=b"x"),), "is no path in"),
    "empty part": ((PREFIX, member("prefix//x", data=b"x")), "is no path in"),
    "file for the prefix": ((member("prefix", data=b"x"),), "is no folder"),
    "link for the prefix": ((member("prefix", tarfile.SYMTYPE, "/etc"),), "is no folder"),
    "through a link": (
        (PREFIX, member("prefix/lib", tarfile.DIRTYPE), INSIDE, member("prefix/link/x", data=b"x")),
        "before its folder",
    ),
    "no folder before": ((PREFIX, member("prefix/lib/x", data=b"x")), "before its folder"),
    "twice": ((PREFIX, member("prefix/x", data=b"x"), member("prefix/x", data=b"y")), "comes twice"),
    "device": ((PREFIX, member("prefix/x", tarfile.CHRTYPE)), "is no file, folder or link"),
    "pipe": ((PREFIX, member("prefix/x", tarfile.FIFOTYPE)), "is no file, folder or link"),
    "hard link out": ((PREFIX, member("prefix/x", tarfile.LNKTYPE, "/etc/passwd")), "which is no file before it"),
    "hard link to a link": ((PREFIX, INSIDE, member("prefix/x", tarfile.LNKTYPE, "prefix/link")), "which is no file before it"),
    "module that is a link": ((member("modules/x", tarfile.SYMTYPE, "y"),), "is no file, or has more"),
    "module that is too large": ((member("modules/x", data=bytes(5 << 20)),), "is no file, or has more"),
    "module for the folder": ((member("modules", data=b"x"),), "is no file, or has more"),
    "module that is a file and a folder": ((member("modules/x", data=b"1"), member("modules/x/y", data=b"2")), "file and a folder"),
    "too much": ((PREFIX, member("prefix/x", data=bytes(2000))), "more than 1000 bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused(name: str, tmp_path: Path) -> None:
    members, reason = HOSTILE[name]
    with pytest.raises(PackingError, match=reason):
        unpacked(archive_of(*members), tmp_path / "back", most=1000 if name == "too much" else package_packing.MOST_BYTES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back"]


@pytest.mark.parametrize("seed", range(40))
def test_damaged_archives_are_errors_of_packing(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    prefix = install(tmp_path / "prefix", random_files(chance))
    archive = bytearray(packed(prefix, module_file(tmp_path / "modules")))
    if seed % 2:
        archive = archive[: chance.randrange(len(archive))]
    else:
        for _ in range(chance.randint(1, 5)):
            archive[chance.randrange(len(archive))] ^= 1 << chance.randrange(8)
    with contextlib.suppress(PackingError):  # any other error fails the test
        unpacked(bytes(archive), tmp_path / "back")
    assert {path.name for path in tmp_path.iterdir()} == {"prefix", "modules", "back"}


def test_a_member_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        archive.addfile(PREFIX[0])
        archive.addfile(*((entry := member("prefix/x", data=bytes(5000)))[0], io.BytesIO(entry[1])))
    cut = subprocess.run(["zstd", "-q", "-c"], input=plain.getvalue()[:2000], capture_output=True, check=True).stdout
    with pytest.raises(PackingError):
        unpacked(cut, tmp_path / "back")
