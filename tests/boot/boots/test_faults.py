"""Every fault of a boot ends with its own cause, its machine and its next step, as soon as it is known."""

import re
import shutil
from pathlib import Path

import pytest
import quick_image
from judging import judged

from steps.contract.verdict import FailureClass, Status, Verdict
from steps.nodeimage.contract import build_keys, image_manifest
from steps.nodeimage.contract.boot_tests import BootFault, Firmware
from steps.nodeimage.contract.image_manifest import KERNEL

CASES = {
    BootFault.TRUNCATED_ROOT: (r"its squashfs is truncated: the server has [\d.]+ MiB, the manifest says", FailureClass.INPUT),
    BootFault.WRONG_KERNEL: ("what the server gave it for a kernel is no kernel", FailureClass.INPUT),
    BootFault.NO_NETWORK_DRIVER: ("its initrd has no driver for the network card", FailureClass.DEPENDENCY),
    BootFault.SERVER_GONE: ("the HTTP server was gone in the middle of its root", FailureClass.DEPENDENCY),
    BootFault.WRONG_MAC: ("its boot script is for another machine", FailureClass.COMPARISON),
    BootFault.TMPFS_FULL: ("its root has room for 0 MiB; expected 64 MiB", FailureClass.RUNTIME),
    BootFault.WRONG_CLOCK: (r"its clock is off by \+\d+ s", FailureClass.RUNTIME),
    BootFault.ROOT_NOT_OVERLAY: ("its root is squashfs; expected an overlay", FailureClass.RUNTIME),
}
REPORTING = {BootFault.TMPFS_FULL, BootFault.WRONG_CLOCK, BootFault.ROOT_NOT_OVERLAY}
"""Faults with which a machine still boots and reports what is wrong."""


def names_the_cause(verdict: Verdict, machine: str, sentence: str, failure_class: FailureClass) -> None:
    assert verdict.status is Status.FAIL, verdict.reason
    assert re.search(rf"{machine}: {sentence}", verdict.reason), verdict.reason
    assert verdict.failure_class is failure_class, verdict.reason
    assert verdict.next_step


SLOW = {BootFault.TMPFS_FULL, BootFault.WRONG_CLOCK}
"""Faults that need a complete boot, so that their tests are `long`; ROOT_NOT_OVERLAY, which boots too, stays in the short run."""


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=pytest.mark.long) if fault in SLOW else fault for fault in BootFault])
def test_fault(store: Path, fault: BootFault) -> None:
    seen, verdict = judged(store, Firmware.BIOS, fault=fault)
    sentence, failure_class = CASES[fault]
    names_the_cause(verdict, "bios1", sentence, failure_class)
    (boot,) = seen.boots
    assert boot.ended in ({"report"} if fault in REPORTING else {"exit", "console"}), boot


@pytest.mark.long
@pytest.mark.parametrize("fault", list(BootFault))
def test_fault_by_uefi(store: Path, fault: BootFault) -> None:
    _, verdict = judged(store, Firmware.UEFI, fault=fault)
    names_the_cause(verdict, "uefi1", *CASES[fault])


def test_kernel_of_another_version(store: Path, tmp_path: Path) -> None:
    """A real kernel, one version off: its initrd has no module that it takes."""
    packed = store / "assembled" / build_keys.image(quick_image.recipe())
    mixed = tmp_path / "assembled" / packed.name
    shutil.copytree(packed, mixed)
    release = image_manifest.decode((mixed / image_manifest.MANIFEST).read_bytes()).kernel
    shutil.copyfile(quick_image.other_kernel(release), mixed / KERNEL)
    _, verdict = judged(tmp_path)
    sentence = rf"kernel \S+ was started, initrd and root have the modules of {release}"
    names_the_cause(verdict, "bios1", sentence, FailureClass.COMPARISON)


@pytest.mark.parametrize("memory", [128, pytest.param(192, marks=pytest.mark.long)])
def test_memory_too_small(store: Path, tmp_path: Path, memory: int) -> None:
    """For the initrd already, and for the root."""
    _, verdict = judged(quick_image.whole(store, tmp_path), memory=memory)
    names_the_cause(verdict, "bios1", "its memory is full", FailureClass.RUNTIME)
