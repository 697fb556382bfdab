"""Initrds as the kernel takes them: archives one behind the other, plain or compressed."""

import gzip
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from steps.errors import BadTask
from steps.nodeimage.files import initrd_archive, initrds, readback


def member(path: str, data: bytes, mode: int = 0o100644) -> bytes:
    name = path.encode() + b"\0"
    fields = (7, mode, 1, 2, 1, 99, len(data), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return padded(padded(head) + data)


def padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def archive(*members: bytes) -> bytes:
    return b"".join(members) + member("TRAILER!!!", b"")


def test_members_of_all_archives_are_read(tmp_path: Path) -> None:
    early = archive(member("kernel/x86/microcode.bin", b"code"))
    main = archive(member("init", b"#!/bin/sh\n", 0o100755), member("bin", b"usr/bin", 0o120777), member("usr", b"", 0o040755))
    (tmp_path / "initrd").write_bytes(early + b"\0" * 300 + gzip.compress(main))
    found = {one.path: one for one in initrd_archive.read(tmp_path / "initrd")}
    assert list(found) == ["kernel/x86/microcode.bin", "init", "bin", "usr"]
    assert found["init"] == initrd_archive.ArchiveMember(
        "init", 0o100755, 1, 1, 2, 99, 10, hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    )
    assert found["bin"].digest == "usr/bin"
    assert found["usr"].digest == ""


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"not an initrd", "initrd is no initrd: neither a newc archive"),
        (archive(member("init", b"x" * 100))[:150], "initrd is cut off"),
        (gzip.compress(archive(member("init", b"x" * 100)), mtime=0)[:-10], "initrd is damaged or cut off: gzip ended with 1"),
        (member("init", b""), "initrd is cut off"),
    ],
    ids=["no initrd", "cut off", "damaged", "without an end"],
)
def test_what_is_no_whole_initrd_is_told(data: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "initrd").write_bytes(data)
    with pytest.raises(BadTask, match=sentence):
        initrd_archive.read(tmp_path / "initrd")


PACKERS = [words for words in ("cat", "gzip -cn", "zstd -cq", "xz -c --check=crc32", "lz4 -lc") if shutil.which(words.split()[0])]
"""Commands on this machine that pack an initrd in a form that the kernel accepts."""


@pytest.mark.parametrize("words", PACKERS)
def test_files_are_taken_out_and_the_rest_stays(words: str, tmp_path: Path) -> None:
    early = archive(member("kernel/x86/microcode.bin", b"code")) + b"\0" * 300
    init, driver = member("init", b"#!/bin/sh\n", 0o100755), member("lib/x.ko.xz", b"driver")
    main = subprocess.run(words.split(), input=archive(init, driver), capture_output=True, check=True).stdout
    (tmp_path / "initrd").write_bytes(early + main)
    left = initrd_archive.without(tmp_path / "initrd", r".*/x\.ko(\.\w+)?")
    assert left[: len(early) + 4] == (early + main)[: len(early) + 4], "packed as before"
    (tmp_path / "left").write_bytes(left)
    assert [one.path for one in initrd_archive.read(tmp_path / "left")] == ["kernel/x86/microcode.bin", "init"]
    with pytest.raises(BadTask, match="left has nothing like"):
        initrd_archive.without(tmp_path / "left", r".*/x\.ko(\.\w+)?")


def test_a_kernel_says_its_version(tmp_path: Path) -> None:
    kernel = bytearray(b"\0" * 0x300 + b"\0" * 0x40 + b"6.1.0-35-cloud-amd64 (debian) #1 SMP\0")
    kernel[0x202:0x206] = b"HdrS"
    kernel[0x20E:0x210] = (0x140).to_bytes(2, "little")
    (tmp_path / "vmlinuz").write_bytes(kernel)
    assert readback.kernel_version(tmp_path / "vmlinuz") == "6.1.0-35-cloud-amd64"
    (tmp_path / "Image").write_bytes(b"\0\0Linux version 6.1.0-35-arm64 (debian)\0")
    assert readback.kernel_version(tmp_path / "Image") == "6.1.0-35-arm64"
    (tmp_path / "zipped").write_bytes(gzip.compress(b"MZ\0\0Linux version 6.8.0-1-generic (buildd@bos)\0"))
    assert readback.kernel_version(tmp_path / "zipped") == "6.8.0-1-generic"
    (tmp_path / "cut").write_bytes((tmp_path / "zipped").read_bytes()[:-12])
    assert readback.kernel_version(tmp_path / "cut") == ""
    (tmp_path / "none").write_bytes(b"text")
    assert readback.kernel_version(tmp_path / "none") == ""
    assert readback.kernel_version(tmp_path / "missing") == ""


def test_an_initrd_says_whether_a_racked_machine_would_find_its_network() -> None:
    assert set(readback.RACKED) <= set(initrds.DRIVERS)
    cards = "usr/lib/modules/6.1.0-35-amd64/kernel/drivers/net"
    assert readback.missing_network_drivers(["init", f"{cards}/virtio_net.ko.zst"]) == readback.RACKED
    assert readback.missing_network_drivers([f"{cards}/virtio_net.ko", f"{cards}/ethernet/broadcom/bnxt/bnxt_en.ko.xz"]) == ()
    assert readback.missing_network_drivers([]) == (), "there is no initrd"
