"""Writes small ELF files with chosen dynamic links, for all classes and byte orders; nothing can run them."""

import struct
from collections.abc import Iterable

BASE = 0x10000
"""Address at which the whole file is loaded."""
NEEDED, STRINGS, STRINGS_SIZE, SONAME, RPATH, RUNPATH = 1, 5, 10, 14, 15, 29


def elf(
    needed: Iterable[str] = (),
    *,
    rpath: str = "",
    runpath: str = "",
    soname: str = "",
    interpreter: str = "",
    wide: bool = True,
    little: bool = True,
) -> bytes:
    """The bytes of a shared object or program with these links."""
    order, word = "<" if little else ">", "Q" if wide else "I"
    strings, tags = bytearray(b"\0"), list[tuple[int, int]]()
    for tag, text in [*((NEEDED, name) for name in needed), (RPATH, rpath), (RUNPATH, runpath), (SONAME, soname)]:
        if text:
            tags.append((tag, len(strings)))
            strings += text.encode() + b"\0"
    head_size, row_size = (64, 56) if wide else (52, 32)
    loader = interpreter.encode() + b"\0" if interpreter else b""
    start = head_size + 3 * row_size
    strings_at = start + len(loader)
    dynamic_at = (strings_at + len(strings) + 15) // 16 * 16
    tags += [(STRINGS, BASE + strings_at), (STRINGS_SIZE, len(strings)), (0, 0)]
    dynamic = b"".join(struct.pack(f"{order}{word * 2}", *tag) for tag in tags)
    size = dynamic_at + len(dynamic)
    segments = [(1, 0, size), (3, start, len(loader)) if loader else (0, 0, 0), (2, dynamic_at, len(dynamic))]
    rows = b"".join(_row(order, wide, *segment) for segment in segments)
    identification = b"\x7fELF" + bytes([2 if wide else 1, 1 if little else 2, 1]) + bytes(9)
    fields = (3, 62, 1, 0, head_size, 0, 0, head_size, row_size, 3, 0, 0, 0)
    head = identification + struct.pack(f"{order}HHI{word * 3}IHHHHHH", *fields)
    return b"".join([head, rows, loader, strings, bytes(dynamic_at - strings_at - len(strings)), dynamic])


def _row(order: str, wide: bool, kind: int, offset: int, size: int) -> bytes:
    if wide:
        return struct.pack(f"{order}IIQQQQQQ", kind, 4, offset, BASE + offset, 0, size, size, 8)
    return struct.pack(f"{order}IIIIIIII", kind, offset, BASE + offset, 0, size, size, 4, 4)
