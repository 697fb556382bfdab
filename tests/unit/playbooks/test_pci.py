"""The ACS control word in PCI configuration space, whatever a device claims to have there."""

import random
import struct

from ansible.module_utils.nodeprofile import pci

SEED = 20261122


def space(capabilities: list[tuple[int, int, int]], size: int = 4096) -> bytes:
    """A configuration space with extended capabilities: offset, id, next."""
    made = bytearray(size)
    for at, kind, following in capabilities:
        struct.pack_into("<I", made, at, kind | 1 << 16 | following << 20)
    return bytes(made)


def test_the_word_is_found_behind_other_capabilities() -> None:
    found = bytearray(space([(0x100, 0x0001, 0x148), (0x148, 0x000D, 0x200), (0x200, 0x0019, 0)]))
    struct.pack_into("<H", found, 0x148 + 6, 0x1D)
    assert pci.control(bytes(found)) == 0x1D


def test_no_capability_a_short_space_and_a_circle_end() -> None:
    assert pci.control(space([(0x100, 0x0001, 0)])) is None
    assert pci.control(b"\0" * 256) is None
    assert pci.control(b"") is None
    assert pci.control(space([(0x100, 0x0001, 0x140), (0x140, 0x0002, 0x100)])) is None
    assert pci.control(b"\xff" * 4096) is None


def test_any_bytes_give_a_word_or_nothing() -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for _ in range(200):
        word = pci.control(chance.randbytes(chance.choice((0, 64, 256, 260, 4096))))
        assert word is None or 0 <= word <= 0xFFFF
