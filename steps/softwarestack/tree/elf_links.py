"""Dynamic links of ELF files: interpreter, needed libraries, and the folders in which the loader looks for them.

Pure: a caller hands in a function that reads bytes at an offset, so a library of 1 GB costs a few kB of reads. Files come from
builds and are hostile until parsed: every offset, count and string is bounded; a malformed file raises ElfError, nothing else.
Layout: System V ABI, chapters 4 and 5 (https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html).
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

Read = Callable[[int, int], bytes]
"""Function that returns up to `size` bytes of a file from an offset."""

MAGIC: Final = b"\x7fELF"
MOST_SEGMENTS: Final = 4096
"""Limit of program headers; a linker writes about a dozen."""
MOST_ENTRIES: Final = 65536
"""Limit of entries in the dynamic section; large programs have some hundred."""
MOST_NEEDED: Final = 4096
LONGEST_TEXT: Final = 65536
"""Limit of one string in bytes: an rpath of some hundred folders is long, but real."""

_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3
_END, _NEEDED, _STRINGS, _STRINGS_SIZE, _SONAME, _RPATH, _RUNPATH = 0, 1, 5, 10, 14, 15, 29


class ElfError(ValueError):
    """Raised for a file that begins as an ELF file and is cut off or malformed."""


class ElfFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Dynamic links of one ELF file. `kind` is its e_type (1 object, 2 program, 3 library or PIE), `machine` its e_machine.

    `is_dynamic` is False for objects and static programs. The loader ignores `rpath` where `runpath` is present.
    """

    bits: int
    little: bool
    kind: int = 0
    machine: int = 0
    is_dynamic: bool = False
    interpreter: str = ""
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders that the file itself adds to the loader's search, in order."""
        return self.runpath or self.rpath


class _Segment(Struct, frozen=True):
    """One program header: what it is, and where its bytes lie in the file and in memory."""

    kind: int
    offset: int
    address: int
    size: int


class _Layout(Struct, frozen=True):
    """Formats of a file's class and byte order, for `struct`."""

    order: str
    wide: bool

    @property
    def word(self) -> str:
        """Return the format of an address."""
        return "Q" if self.wide else "I"


def is_elf(head: bytes) -> bool:
    """Return True if a file that begins with these bytes is meant as an ELF file."""
    return head[:4] == MAGIC


def facts(read: Read) -> ElfFacts:
    """Return the dynamic links of an ELF file. Raises ElfError if it is malformed."""
    layout = _layout(_exactly(read, 0, 16))
    form = f"{layout.order}HHI{layout.word * 3}IHHH"
    head = struct.unpack(form, _exactly(read, 16, struct.calcsize(form)))
    kind, machine, table, size, count = head[0], head[1], head[4], head[8], head[9]
    segments = tuple(_segments(read, layout, table, size, count))
    interpreter = next((segment for segment in segments if segment.kind == _INTERPRETER), None)
    links = ElfFacts(
        bits=64 if layout.wide else 32,
        little=layout.order == "<",
        kind=kind,
        machine=machine,
        interpreter=_text(read, interpreter.offset, interpreter.size) if interpreter is not None else "",
    )
    dynamic = next((segment for segment in segments if segment.kind == _DYNAMIC and segment.size), None)
    return _with_dynamic(links, read, layout, segments, dynamic) if dynamic is not None else links


def _layout(identification: bytes) -> _Layout:
    if not is_elf(identification):
        raise ElfError("it does not begin as an ELF file")
    order = {1: "<", 2: ">"}.get(identification[5])
    if identification[4] not in (1, 2) or order is None:
        raise ElfError("its class or byte order is unknown")
    return _Layout(order, identification[4] == 2)


def _segments(read: Read, layout: _Layout, table: int, size: int, count: int) -> Iterator[_Segment]:
    form = layout.order + ("IIQQQQQQ" if layout.wide else "IIIIIIII")
    if not count:
        return
    if count > MOST_SEGMENTS or size < struct.calcsize(form):
        raise ElfError(f"it has {count} program headers of {size} bytes")
    data = _exactly(read, table, size * count)
    for place in range(count):
        row = struct.unpack_from(form, data, place * size)
        kind, offset, address, length = (row[0], row[2], row[3], row[5]) if layout.wide else (row[0], row[1], row[2], row[4])
        yield _Segment(kind, offset, address, length)


def _with_dynamic(links: ElfFacts, read: Read, layout: _Layout, segments: tuple[_Segment, ...], dynamic: _Segment) -> ElfFacts:
    entries = list(_entries(read, layout, dynamic))
    values = dict(reversed(entries))  # the first entry of a tag counts
    strings = _in_file(segments, values.get(_STRINGS, 0)) if _STRINGS in values else 0
    limit = values.get(_STRINGS_SIZE, 0)
    needed = [value for tag, value in entries if tag == _NEEDED]
    if len(needed) > MOST_NEEDED:
        raise ElfError(f"it needs {len(needed)} libraries")

    def text(value: int) -> str:
        if value >= limit:
            raise ElfError("a name lies outside of its string table")
        return _text(read, strings + value, limit - value)

    def folders(tag: int) -> tuple[str, ...]:
        return tuple(filter(None, text(values[tag]).split(":"))) if tag in values else ()

    return msgspec.structs.replace(
        links,
        is_dynamic=True,
        soname=text(values[_SONAME]) if _SONAME in values else "",
        needed=tuple(map(text, needed)),
        rpath=folders(_RPATH),
        runpath=folders(_RUNPATH),
    )


def _entries(read: Read, layout: _Layout, dynamic: _Segment) -> Iterator[tuple[int, int]]:
    form = f"{layout.order}{layout.word * 2}"
    size = struct.calcsize(form)
    count = dynamic.size // size
    if count > MOST_ENTRIES:
        raise ElfError(f"its dynamic section has {count} entries")
    for tag, value in struct.iter_unpack(form, _exactly(read, dynamic.offset, count * size)):
        if tag == _END:
            return
        yield tag, value


def _in_file(segments: tuple[_Segment, ...], address: int) -> int:
    """Return the offset in the file of an address in memory."""
    for segment in segments:
        if segment.kind == _LOAD and segment.address <= address < segment.address + segment.size:
            return segment.offset + address - segment.address
    raise ElfError("an address lies in no loaded segment")


def _exactly(read: Read, offset: int, size: int) -> bytes:
    data = read(offset, size) if offset < 1 << 62 else b""
    if len(data) != size:
        raise ElfError("it is cut off")
    return data


def _text(read: Read, offset: int, limit: int) -> str:
    """Return a string that a zero byte ends within the limit."""
    if offset >= 1 << 62:
        raise ElfError("it is cut off")
    # most names are short: a long read only where the short one has no end
    for size in (256, LONGEST_TEXT):
        data = read(offset, min(limit, size))
        end = data.find(b"\0")
        if end >= 0:
            return data[:end].decode(errors="backslashreplace")
    raise ElfError("a name has no end")
