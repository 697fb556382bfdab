"""Initrds as the kernel takes them: archives one behind the other, plain or compressed."""

import gzip
import hashlib
from pathlib import Path

import pytest

from steps.clients.image.files import cpio, readback
from steps.errors import BadTask


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
    found = {one.path: one for one in cpio.read(tmp_path / "initrd")}
    assert list(found) == ["kernel/x86/microcode.bin", "init", "bin", "usr"]
    assert found["init"] == cpio.Member("init", 0o100755, 1, 1, 2, 99, 10, hashlib.sha256(b"#!/bin/sh\n").hexdigest())
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
        cpio.read(tmp_path / "initrd")


def test_a_kernel_says_its_version(tmp_path: Path) -> None:
    kernel = bytearray(b"\0" * 0x300 + b"\0" * 0x40 + b"6.1.0-35-cloud-amd64 (debian) #1 SMP\0")
    kernel[0x202:0x206] = b"HdrS"
    kernel[0x20E:0x210] = (0x140).to_bytes(2, "little")
    (tmp_path / "vmlinuz").write_bytes(kernel)
    assert readback.kernel_version(tmp_path / "vmlinuz") == "6.1.0-35-cloud-amd64"
    (tmp_path / "Image").write_bytes(b"\0\0Linux version 6.1.0-35-arm64 (debian)\0")
    assert readback.kernel_version(tmp_path / "Image") == "6.1.0-35-arm64"
    (tmp_path / "none").write_bytes(b"text")
    assert readback.kernel_version(tmp_path / "none") == ""
    assert readback.kernel_version(tmp_path / "missing") == ""
