"""The check that nothing leads into a factory: chains of links, interpreters of scripts, and files that are packed."""

import bz2
import gzip
import io
import lzma
import random
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.factories.conftest import STARTER
from workflows.app.factories import factory_detachment
from workflows.app.factories.factory_detachment import FactoryDetachment
from workflows.spec import FactorySpec, load_factory

FSTAB = b"factory02:/srv/share /shared nfs ro 0 0\n"
"""A line that leads to a machine of the starter spec of factories."""
PLAIN = b"nothing of interest\n"


@pytest.fixture(scope="module")
def spec() -> FactorySpec:
    return load_factory(STARTER)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    (tmp_path / "factory/share/app").mkdir(parents=True)
    (tmp_path / "published/bin").mkdir(parents=True)
    return tmp_path / "published"


def check(spec: FactorySpec, published: Path) -> FactoryDetachment:
    return factory_detachment.check(spec, [published], [str(published.parent / "factory")])


@pytest.mark.parametrize(
    "links",
    [
        {"app": "../factory/share/app"},
        {"bin/app": "../../factory/share/app"},
        {"app": "other", "other": "third", "third": "../factory/share/app"},
        {"bin/lib": "../../elsewhere/lib", "../elsewhere": "factory/share"},
        {"app": "../factory/../published/bin"},
        {"app": "../factory/share/gone"},
    ],
    ids=["relative", "deeper", "chain", "on_the_way", "through", "dangling"],
)
def test_links_into_the_factory_are_followed(spec: FactorySpec, published: Path, links: dict[str, str]) -> None:
    for name, target in links.items():
        (published / name).symlink_to(target)
    ways = check(spec, published).links
    inside = [name for name in links if not name.startswith("..")]
    assert sorted(way.place for way in ways) == sorted(str(published / name) for name in inside)
    assert {way.why for way in ways} == {"a folder of the factory"}


def test_other_links_lead_nowhere(spec: FactorySpec, published: Path) -> None:
    for name, target in {"a": "bin", "b": "a/../b", "c": "../factory2", "d": "/usr/lib", "e": "../../../../../../etc"}.items():
        (published / name).symlink_to(target)
    assert check(spec, published).links == ()


def test_a_place_that_is_a_link_itself_is_followed(spec: FactorySpec, published: Path) -> None:
    place = published.parent / "current"
    place.symlink_to("factory/share")
    (way,) = factory_detachment.check(spec, [place], [str(published.parent / "factory")]).links
    assert way.place == str(place)


@pytest.mark.parametrize(
    ("text", "leads"),
    [("#!{}/bin/python3\npass\n", True), ("#!/bin/sh\n# see {}\n", False), ("# {}\n", False), ("#!/bin/sh\nexec {}/x\n", True)],
)
def test_interpreters_are_no_comments(spec: FactorySpec, published: Path, text: str, leads: bool) -> None:
    (published / "bin/tool").write_text(text.format(published.parent / "factory"))
    assert bool(check(spec, published).links) == leads


def test_a_name_at_the_edge_of_a_piece_is_seen(spec: FactorySpec, published: Path) -> None:
    piece = factory_detachment._PIECE
    for number, padding in enumerate((b"x" * 99 + b"\n", b"x" * 99 + b" ")):
        text = padding * (piece // 100 + 1)
        (published / f"{number}").write_bytes(text[len(text) - piece + 4 :] + FSTAB + text)
    assert len(check(spec, published).links) == 2


def tar(content: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("etc/fstab")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("etc/fstab", content)
    return stream.getvalue()


def newc(content: bytes) -> bytes:
    """An uncompressed archive of one file, in the format of initrds."""
    archive = b""
    for name, data in ((b"etc/fstab\0", content), (b"TRAILER!!!\0", b"")):
        fields = (1, 0o100644, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
        archive += head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
    return archive


def zstd(content: bytes) -> bytes:
    return subprocess.run(["zstd", "-cq"], input=content, capture_output=True, check=True).stdout


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "tar.gz": lambda content: gzip.compress(tar(content)),
    "tar of gzip": lambda content: tar(gzip.compress(content)),
    "zip": zipped,
    "zstd": zstd,
    "initrd": newc,
    "packed initrd": lambda content: newc(PLAIN) + bytes(512) + zstd(newc(content)),
    "two archives": lambda content: newc(PLAIN) + newc(content),
    "packed member": lambda content: zstd(newc(gzip.compress(content))),
    "packed initrd in tar": lambda content: tar(newc(PLAIN) + lzma.compress(newc(content))),
    "archive with checksums": lambda content: newc(content).replace(b"070701", b"070702"),
    "two xz streams": lambda content: lzma.compress(PLAIN) + bytes(8) + lzma.compress(content),
}


@pytest.mark.parametrize("packer", PACKERS)
def test_packed_files_are_unpacked(spec: FactorySpec, published: Path, packer: str) -> None:
    for content, leads in ((FSTAB, ["factory02"]), (PLAIN, [])):
        (published / "file").write_bytes(PACKERS[packer](content))
        result = check(spec, published)
        assert ([way.leads_to for way in result.links], result.unread) == (leads, ())


def test_the_settings_of_a_packed_root_are_read(spec: FactorySpec, published: Path, tmp_path: Path) -> None:
    assert shutil.which("mksquashfs")
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "root/etc/fstab").write_bytes(FSTAB)
    words = ["mksquashfs", "root", str(published / "root.squashfs"), "-quiet", "-no-progress", "-noI", "-noD"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    result = check(spec, published)
    assert [(way.place, way.leads_to) for way in result.links] == [(f"{published}/root.squashfs:/etc/fstab", "factory02")]


def encrypted(content: bytes) -> bytes:
    """An archive of a member that says it is encrypted, before one that is not."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("secret", PLAIN)
        archive.writestr("etc/fstab", content)
    data = bytearray(stream.getvalue())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def deflate64(content: bytes) -> bytes:
    """An archive with a member of method 9, which Python does not unpack, before one that it does."""
    data = bytearray(encrypted(content))
    directory = data.index(b"PK\x01\x02")
    data[6] &= ~1
    data[directory + 8] &= ~1
    data[8] = data[directory + 10] = 9
    return bytes(data)


NOISE = bytes(random.Random(7).randbytes(1 << 14))
RPM = b"\xed\xab\xee\xdb\3\0" + PLAIN
UNREAD: dict[str, tuple[bytes, str]] = {
    "lz4": (b"\x04\x22\x4d\x18" + PLAIN, "packed by lz4"),
    "squashfs": (b"hsqs" + bytes(2000), "cannot be read"),
    "erofs": (bytes(1024) + b"\xe2\xe1\xf5\xe0", "packed by EROFS"),
    "sif": (b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0", "packed by Singularity"),
    "short initrd": (newc(PLAIN)[:150], "cut off"),
    "damaged initrd": (b"070701" + b"z" * 200, "behind a damaged header"),
    "initrd and lz4": (newc(PLAIN) + b"\x02\x21\x4c\x18" + PLAIN, "1 part in it is packed by lz4"),
    "initrd and lzma": (newc(PLAIN) + b"\x5d\0\0\x80\0" + NOISE, "1 part in it is packed by lzma"),
    "initrd and LZO": (newc(PLAIN) + bytes(4) + b"\x89LZO\0" + NOISE, "1 part in it is packed by lzop"),
    "initrd and short gzip": (newc(PLAIN) + gzip.compress(newc(NOISE))[:-99], "damaged or cut off"),
    "initrd and short zstd": (newc(PLAIN) + zstd(newc(NOISE))[:-99], "damaged or cut off"),
    "initrd and short xz": (newc(PLAIN) + lzma.compress(newc(NOISE))[:-99], "damaged or cut off"),
    "initrd and a magic number of gzip": (newc(PLAIN) + b"\x1f\x8b\x08" + NOISE, "damaged or cut off"),
    "initrd and damaged archive": (newc(PLAIN) + newc(PLAIN).replace(b"00000000", b"0000000z", 1), "behind a damaged header"),
    "initrd and unknown archive": (newc(PLAIN) + newc(PLAIN).replace(b"070701", b"070707"), "neither an archive nor packed"),
    "microcode and garbage": (newc(PLAIN) + bytes(512) + NOISE, "1 part in it is neither an archive nor packed in a known way"),
    "garbage behind xz": (newc(PLAIN) + lzma.compress(newc(PLAIN)) + NOISE, "1 part in it is damaged or cut off"),
    "garbage in an archive": (newc(PLAIN)[:-124] + NOISE, "behind a damaged header"),
    "short member of a packed initrd": (zstd(newc(gzip.compress(NOISE)[:-99])), "1 part in it is damaged or cut off"),
    "closed member of an initrd": (newc(RPM), "1 part in it is packed by RPM"),
    "packed initrd without an end": (gzip.compress(newc(PLAIN)[:-124]), "1 part in it is damaged or cut off"),
    "name longer than any": (newc(PLAIN)[:94] + b"FFFFFFFF" + newc(PLAIN)[102:], "behind a damaged header"),
    "garbage behind bzip2": (bz2.compress(PLAIN) + NOISE, "1 part in it is damaged or cut off"),
    "short gzip": (gzip.compress(NOISE)[:-99], "1 part in it is damaged or cut off"),
    "damaged gzip": (gzip.compress(NOISE)[:-8] + bytes(8), "1 part in it is damaged or cut off"),
    "short tar.xz": (lzma.compress(tar(NOISE))[:-999], "damaged or cut off"),
    "short tar": (tar(NOISE)[:9000], "damaged or cut off"),
    "damaged tar": (tar(PLAIN)[:1024] + NOISE, "damaged or cut off"),
    "short zstd": (zstd(NOISE)[:-99], "1 part in it is damaged or cut off"),
    "damaged zip": (zipped(NOISE)[:-30], "1 part in it is damaged or cut off"),
    "encrypted": (encrypted(PLAIN), "1 part in it is encrypted"),
    "deflate64": (deflate64(PLAIN), "1 part in it is compressed by a method that is not supported"),
    "rpm in tar": (tar(RPM), "1 part in it is packed by RPM"),
    "rpm in zip in gzip": (gzip.compress(zipped(RPM)), "1 part in it is packed by RPM"),
    "deb in tar.gz": (gzip.compress(tar(b"!<arch>\ndebian-binary")), "1 part in it is packed by Debian"),
    "squashfs in tar": (tar(b"hsqs" + bytes(2000)), "1 part in it is packed by squashfs"),
    "erofs in zstd": (zstd(bytes(1024) + b"\xe2\xe1\xf5\xe0"), "1 part in it is packed by EROFS"),
    "sif in tar": (tar(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0"), "1 part in it is packed by Singularity"),
}


@pytest.mark.parametrize(("content", "why"), UNREAD.values(), ids=UNREAD)
def test_what_cannot_be_unpacked_is_not_read(spec: FactorySpec, published: Path, content: bytes, why: str) -> None:
    (published / "file").write_bytes(content)
    (reason,) = check(spec, published).unread
    assert why in reason


def efi(*sections: bytes, stub: int = 64) -> bytes:
    """The start of an EFI program with a boot stub of some length before its headers and its table of sections."""
    dos = b"MZ" + bytes(58) + stub.to_bytes(4, "little") + bytes(stub - 64)
    optional = b"\x0b\x02" + bytes(238)
    header = b"PE\0\0\x64\x86" + len(sections).to_bytes(2, "little") + bytes(12) + len(optional).to_bytes(2, "little") + bytes(2)
    return dos + header + optional + b"".join(name.ljust(8, b"\0") + bytes(32) for name in sections)


@pytest.mark.parametrize(
    ("name", "content", "unread"),
    [
        ("initrd.img-6.1", b"\x7f\0\1" + NOISE, ["neither an archive nor packed"]),
        ("initramfs.conf", b"MODULES=most\n", []),
        ("linux.efi", efi(b".text", b".initrd"), ["unified kernel image"]),
        ("stub.efi", efi(b".text", b".initrd", stub=4000), ["unified kernel image"]),
        ("long.efi", efi(*(b".pad%d" % number for number in range(80)), b".initrd"), ["unified kernel image"]),
        ("vmlinuz", efi(b".text", b".data"), []),
        ("cut.efi", efi(b".initrd")[:70], []),
        ("nowhere.efi", b"MZ" + b"\xff" * 100, []),
        ("stub.com", b"MZ" + bytes(100) + b".initrd\0", []),
    ],
)
def test_initrds_of_unknown_form_are_not_read(
    spec: FactorySpec, published: Path, name: str, content: bytes, unread: list[str]
) -> None:
    (published / name).write_bytes(content + b"\n" + FSTAB)
    result = check(spec, published)
    assert [way.leads_to for way in result.links] == ["factory02"]
    assert [why in line for why, line in zip(unread, result.unread, strict=True)] == [True] * len(unread)


@pytest.mark.parametrize("packer", [encrypted, deflate64, lambda content: gzip.compress(NOISE + b"\n" + content)[:-4]])
def test_parts_beside_those_that_are_not_unpacked_are_read(
    spec: FactorySpec, published: Path, packer: Callable[[bytes], bytes]
) -> None:
    (published / "file").write_bytes(packer(FSTAB))
    result = check(spec, published)
    assert ([way.leads_to for way in result.links], len(result.unread)) == (["factory02"], 1)


def test_what_lies_behind_the_end_of_an_archive_is_read(spec: FactorySpec, published: Path) -> None:
    (published / "file").write_bytes(tar(PLAIN) + FSTAB)
    assert [way.leads_to for way in check(spec, published).links] == ["factory02"]
