"""The ACS control word in PCI configuration space, whatever a device claims to have there."""

import random
import struct
from pathlib import Path

import pytest
from ansible.module_utils.nodeprofile import pcie_acs
from ansible.module_utils.nodeprofile.item import CannotChange, Unavailable

from steps.stages.os_prep import gate as os_prep
from tests.unit.playbooks.machine import Machine

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
    assert pcie_acs.control(bytes(found)) == 0x1D


def test_no_capability_a_short_space_and_a_circle_end() -> None:
    assert pcie_acs.control(space([(0x100, 0x0001, 0)])) is None
    assert pcie_acs.control(b"\0" * 256) is None
    assert pcie_acs.control(b"") is None
    assert pcie_acs.control(space([(0x100, 0x0001, 0x140), (0x140, 0x0002, 0x100)])) is None
    assert pcie_acs.control(b"\xff" * 4096) is None


def conventional(*kinds: int) -> bytes:
    """The first 256 bytes of a device with these capabilities."""
    made = bytearray(256)
    made[0x06], made[0x34] = 0x10, 0x40
    for number, kind in enumerate(kinds):
        made[0x40 + 8 * number], made[0x41 + 8 * number] = kind, 0x48 + 8 * number if number + 1 < len(kinds) else 0
    return bytes(made)


@pytest.mark.parametrize(
    "shown", [b"", b"\0" * 64, b"\xff" * 4096, conventional(0x01, 0x10), conventional(0x10), conventional(0x10, 0x05)]
)
def test_a_bridge_that_does_not_show_whether_it_has_acs_is_not_taken_for_one_without(shown: bytes) -> None:
    with pytest.raises(Unavailable, match=r"extended configuration space of 0000:00:01\.0 cannot be read"):
        pcie_acs.control_words({"0000:00:00.0": space([(0x100, 0x0001, 0)]), "0000:00:01.0": shown})


def test_a_bridge_of_plain_pci_has_no_acs() -> None:
    circle = bytearray(conventional(0x01, 0x05))
    circle[0x49] = 0x40
    for shown in (bytes(256), conventional(0x01, 0x0D), bytes(circle)):
        assert pcie_acs.control_words({"0000:00:01.0": shown}) == {}


def test_any_bytes_give_a_word_or_nothing() -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for _ in range(200):
        shown = chance.randbytes(chance.choice((0, 64, 256, 260, 4096)))
        assert pcie_acs.is_truncated(shown) in (True, False)
        word = pcie_acs.control(shown)
        assert word is None or 0 <= word <= 0xFFFF


@pytest.mark.parametrize("said", ["none [integrity] confidentiality\n", "none integrity [confidentiality]\n"])
def test_a_kernel_that_is_locked_down_is_told_before_anything_is_tried(tmp_path: Path, said: str) -> None:
    (tmp_path / "lockdown").write_text(said)
    machine = Machine({"setpci": lambda _: (0, "", ""), pcie_acs.SCRIPT: lambda _: (0, "", "")})
    with pytest.raises(CannotChange, match=r"locked down \(Secure Boot\).*os\.peer_to_peer: false") as told:
        pcie_acs.turn_off(machine, str(tmp_path / "lockdown"))
    assert (machine.said, machine.written) == ([], {})
    assert os_prep.LOCKED in str(told.value), "the gate knows it by these words"


@pytest.mark.parametrize("said", ["[none] integrity confidentiality\n", ""])
def test_a_kernel_that_is_not_has_acs_turned_off(tmp_path: Path, said: str) -> None:
    if said:
        (tmp_path / "lockdown").write_text(said)
    machine = Machine({"setpci": lambda _: (0, "", ""), pcie_acs.SCRIPT: lambda _: (0, "", "")})
    pcie_acs.turn_off(machine, str(tmp_path / "lockdown"))
    assert machine.said[-1] == (pcie_acs.SCRIPT,)
