"""Dynamic links of ELF files: all classes and byte orders, hostile bytes, and the libraries of this very process."""

import os
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steps.softwarestack.tree import elf_links
from steps.softwarestack.tree.elf_links import ElfError, ElfFacts
from tests.unit.softwarestack import elf_writer


def parsed(data: bytes) -> ElfFacts:
    return elf_links.facts(lambda offset, size: data[offset : offset + size])


@pytest.mark.parametrize("wide", [True, False], ids=["64", "32"])
@pytest.mark.parametrize("little", [True, False], ids=["little", "big"])
def test_all_links_of_a_library(wide: bool, little: bool) -> None:
    made = elf_writer.elf(
        ["libz.so.1", "libc.so.6"],
        rpath="/a/lib:/b/lib",
        runpath="$ORIGIN/../lib",
        soname="libx.so.2",
        interpreter="/lib64/ld-linux-x86-64.so.2",
        wide=wide,
        little=little,
    )
    links = parsed(made)
    assert (links.bits, links.little, links.is_dynamic) == (64 if wide else 32, little, True)
    assert links.needed == ("libz.so.1", "libc.so.6")
    assert links.rpath == ("/a/lib", "/b/lib")
    assert links.runpath == links.folders == ("$ORIGIN/../lib",)
    assert (links.soname, links.interpreter) == ("libx.so.2", "/lib64/ld-linux-x86-64.so.2")


def test_an_rpath_counts_without_a_runpath() -> None:
    assert parsed(elf_writer.elf(rpath="/a::/b")).folders == ("/a", "/b")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cut off"),
        (b"\x7fELF", "cut off"),
        (b"#!/bin/sh\nexit 0\n", "does not begin"),
        (b"\x7fELF\x03\x01" + bytes(58), "class or byte order"),
        (elf_writer.elf(["libz.so.1"])[:200], "cut off"),
        (elf_writer.elf(["libz.so.1"])[:-20], "cut off"),
    ],
)
def test_malformed_files_are_named(data: bytes, reason: str) -> None:
    with pytest.raises(ElfError, match=reason):
        parsed(data)


def test_counts_are_bounded() -> None:
    many = bytearray(elf_writer.elf())
    struct.pack_into("<H", many, 56, 0xFFFF)  # e_phnum
    with pytest.raises(ElfError, match="65535 program headers"):
        parsed(bytes(many))
    with pytest.raises(ElfError, match="needs 5000 libraries"):
        parsed(elf_writer.elf([f"lib{number}.so" for number in range(5000)]))


def test_hostile_bytes_never_crash() -> None:
    """Each change of a good file gives links or ElfError, and reads no more than the file's size allows."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sources = [elf_writer.elf(["liba.so", "libb.so"], runpath="/x", wide=wide, little=wide) for wide in (True, False)]
    for _ in range(4000):
        data = bytearray(chance.choice(sources))
        for _ in range(chance.randint(1, 6)):
            place, width = chance.randrange(len(data)), chance.choice((1, 2, 4, 8))
            data[place : place + width] = chance.choice((bytes(width), b"\xff" * width, chance.randbytes(width)))
        data = data[: chance.randint(0, len(data) + 40)]
        try:
            links = parsed(bytes(data))
        except ElfError:
            continue
        assert all("\0" not in name for name in (*links.needed, *links.folders))


def mapped_libraries() -> Iterator[Path]:
    """Libraries that this process has loaded."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(None, 5)[5] for line in lines if line.count("/")}
    yield from (Path(path) for path in sorted(paths) if ".so" in path and Path(path).is_file())


def test_what_the_loader_has_loaded_is_what_files_need() -> None:
    """The loader of this process is the other reader: it has mapped every library that the mapped ones need."""
    mapped = list(mapped_libraries())
    sonames, needed = set[str](), set[str]()
    for path in (*mapped, Path(os.path.realpath(sys.executable))):
        with path.open("rb") as file:
            links = elf_links.facts(lambda offset, size, file=file: os.pread(file.fileno(), size, offset))  # type: ignore[misc]
        sonames |= {links.soname, path.name}
        needed |= set(links.needed)
    assert len(needed) >= 3
    assert needed <= sonames
