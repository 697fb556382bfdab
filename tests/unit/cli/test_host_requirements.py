"""Requirements of real hosts: `bringup doctor` and the host tier's own check ask for the same programs."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from steps.errors import BadTask
from steps.nodeimage.contract.boot_tests import Firmware
from steps.nodeimage.netboot import qemu_machine
from workflows.app import requirements

NEEDS = Path(__file__).parents[2] / "hosts/hostlab/needs.py"


@pytest.fixture(scope="module")
def needs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("host_needs", NEEDS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_doctor_asks_for_the_programs_of_the_host_tier(needs: ModuleType) -> None:
    rows = {row.need: row.install for row in requirements.every({}) if row.use == requirements.HOSTS}
    of_tier = {program: f"apt-get install {package}" for program, package in needs.PACKAGES.items()}
    assert {need: install for need, install in rows.items() if need not in ("root", "overlayfs", "libfuse3")} == of_tier
    assert rows["libfuse3"] == "apt-get install libfuse3-3"


def test_both_find_the_same_programs_missing(needs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = {"PATH": str(tmp_path)}
    rows = {row.need for row in requirements.every(path) if row.use == requirements.HOSTS and not row.there}
    missing = {line.partition(" ")[0] for line in needs.missing() if " is missing: apt-get install " in line}
    assert missing - {str(needs.FUSE)} == rows - {"root", "overlayfs", "libfuse3"}
    assert "mmdebstrap" in missing or Path("/usr/sbin/mmdebstrap").exists()


def test_uefi_firmware_is_looked_for_before_anything_is_built(tmp_path: Path) -> None:
    if not Path("/usr/bin/qemu-system-x86_64").exists():
        pytest.skip("QEMU is not installed")
    qemu_machine.require([Firmware.BIOS], tmp_path)
    with pytest.raises(BadTask, match="has no UEFI firmware") as refusal:
        qemu_machine.require([Firmware.BIOS, Firmware.UEFI], tmp_path)
    assert "ovmf" in refusal.value.hint
    (tmp_path / "OVMF_CODE.fd").touch()
    qemu_machine.require([Firmware.UEFI], tmp_path)


def test_without_qemu_nothing_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadTask, match="is not installed"):
        qemu_machine.require([Firmware.BIOS])
