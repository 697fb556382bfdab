"""Machines that come up: BIOS, UEFI, several at once."""

from pathlib import Path

import pytest
from judging import judged

from steps.nodeimage.contract.boot_tests import Firmware
from steps.nodeimage.contract.image_manifest import ROOT

FETCHED = ["script", "kernel", "initrd", "root", "tests", "report"]


@pytest.mark.long
def test_uefi(store: Path) -> None:
    seen, verdict = judged(store, Firmware.UEFI)
    assert verdict.is_pass, verdict.reason
    (boot,) = seen.boots
    assert boot.report is not None
    assert boot.report.firmware == "uefi"
    assert [event.what for event in boot.events] == FETCHED


@pytest.mark.long
def test_two_at_once_by_bios(store: Path) -> None:
    seen, verdict = judged(store, Firmware.BIOS, 2)
    assert verdict.is_pass, verdict.reason
    size = next(store.glob(f"assembled/*/{ROOT}")).stat().st_size
    assert [boot.name for boot in seen.boots] == ["bios1", "bios2"]
    for boot in seen.boots:
        assert boot.report is not None
        assert (boot.report.mac, boot.report.node, boot.report.root) == (boot.mac, boot.name, "overlay")
        assert [event.what for event in boot.events] == FETCHED
        assert [event.size for event in boot.events if event.what == "root"] == [size]
        assert len(boot.report.results) == 5


@pytest.mark.long
@pytest.mark.parametrize("firmware", list(Firmware))
@pytest.mark.parametrize("machines", [1, 3])
def test_again_and_more(store: Path, firmware: Firmware, machines: int) -> None:
    seen, verdict = judged(store, firmware, machines)
    assert verdict.is_pass, "\n".join([verdict.reason, *(line for boot in seen.boots for line in boot.console)])
