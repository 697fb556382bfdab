"""Facts out of what tools and the kernel say: NVIDIA's driver and fabric, devices on the bus, NIC firmware."""

import os
import time
from pathlib import Path

import pytest
from ansible.module_utils import nvidia_driver
from ansible.module_utils.nodeprofile import facts, nvidia_smi
from ansible.module_utils.nodeprofile.item import NodeAccess

from tests.unit.playbooks.machine import Machine, Module

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[5] / "shared")
RECORDED = DATA / "samples/gpu_host"
needs_records = pytest.mark.skipif(not RECORDED.is_dir(), reason=f"recorded outputs are not at {DATA} (BRINGUP_TEST_DATA)")

# the line of /proc/driver/nvidia/version of the two kinds of kernel modules that NVIDIA has, as their users quote it
CLOSED = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Fri Mar  1 22:02:17 UTC 2024\nGCC version:  gcc version 11.4.0\n"
)
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build  (dvs-builder@U16)  Tue May 20 2025\n"
GRACE = OPEN.replace("x86_64", "aarch64").replace("575.57.08", "580.65.06")


@pytest.mark.parametrize(("text", "version"), [(CLOSED, "535.161.08"), (OPEN, "575.57.08"), (GRACE, "580.65.06")])
def test_the_drivers_version_is_read_of_either_kind(tmp_path: Path, text: str, version: str) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(text)
    assert facts.driver(Machine({}), str(tmp_path)) == {
        "nvidia_driver": version,
        "driver_flavour": "proprietary" if text == CLOSED else "open",
        "fabric_manager": "",
        "fabric_manager_active": False,
        "fabric_states": [],
        "nvidia_smi_hangs": False,
    }


def stand_in(folder: Path, lines: str) -> str:
    """A tool that does this, by its path."""
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


def test_a_tool_that_does_not_end_is_left_and_its_child_holds_nobody(tmp_path: Path) -> None:
    began = time.monotonic()
    assert NodeAccess(Module()).run_bounded(0.2, stand_in(tmp_path, "echo begun\nsleep 60")) is None
    assert time.monotonic() - began < 30, "its child has what the tool prints to, and is not waited for"


def test_what_a_tool_prints_is_had_whole_whatever_it_ends_with(tmp_path: Path) -> None:
    node = NodeAccess(Module())
    assert node.run_bounded(30, stand_in(tmp_path, "echo one\necho two >&2\nexit 3")) == (3, "one\ntwo\n")
    code, output = node.run_bounded(30, stand_in(tmp_path, "head -c 300000 /dev/zero | tr '\\0' x"))
    assert (code, len(output)) == (0, 300000)
    assert node.run_bounded(30, str(tmp_path / "none"))[0] == 127


def test_a_driver_whose_tool_hangs_is_told_and_all_else_too(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(OPEN)

    class Hung(Machine):
        def run_bounded(self, seconds: float, *command: str) -> tuple[int, str] | None:
            return None

    found = facts.driver(Hung({}), str(tmp_path))
    assert (found["nvidia_driver"], found["fabric_states"], found["nvidia_smi_hangs"]) == ("575.57.08", [], True)


@needs_records
def test_the_fabrics_state_is_read_of_a_recorded_machine_with_nvswitches(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(CLOSED)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    recorded = (RECORDED / "nvidia_smi_q_8xh100_hw_power_brake.txt").read_text()
    tools = {
        "nv-fabricmanager": lambda _: (0, "\n\n\tFabric Manager version is : 535.161.08\n\n", ""),
        "systemctl": lambda _: (0, "Id=nvidia-fabricmanager.service\nActiveState=active\n", ""),
        "nvidia-smi": lambda _: (0, recorded, ""),
    }
    found = facts.driver(Machine(tools), str(tmp_path))
    assert (found["fabric_manager"], found["fabric_manager_active"]) == ("535.161.08", True)
    assert found["fabric_states"] == ["Completed"]

    at_work = recorded.replace(": Completed", ": In Progress", 1)
    assert facts.driver(Machine({**tools, "nvidia-smi": lambda _: (0, at_work, "")}), str(tmp_path))["fabric_states"] == [
        "Completed",
        "In Progress",
    ]


@needs_records
def test_a_gpu_that_completed_with_an_error_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(OPEN)
    recorded = (RECORDED / "nvidia_smi_q_8xh100_hw_power_brake.txt").read_text()
    failed = recorded.replace(": Success", ": Insufficient Resources", 1)
    found = facts.driver(Machine({"nvidia-smi": lambda _: (0, failed, "")}), str(tmp_path))
    assert found["fabric_states"] == ["Completed", "Completed: Insufficient Resources"]
    none = (RECORDED / "nvidia_smi_q_a10_remapped_rows_4.txt").read_text()
    assert facts.driver(Machine({"nvidia-smi": lambda _: (0, none, "")}), str(tmp_path))["fabric_states"] == ["N/A"]


LOST = "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)
ROM = "Attached GPUs                             : 8\nGPU 00000000:0F:00.0\n"


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        ((0, ROM, ""), {"exit_code": 0, "gpus": 8, "text": ""}),
        ((15, LOST + "\n", ""), {"exit_code": 15, "text": " ".join(LOST.split())}),
        ((18, MISMATCH + "\nNVML library version: 580.65\n", ""), {"exit_code": 18, "text": MISMATCH}),
        ((9, NO_DRIVER + "\n\n", ""), {"exit_code": 9, "text": NO_DRIVER}),
        ((14, ROM, "WARNING: infoROM is corrupted at gpu 0000:0F:00.0\n"), {
            "exit_code": 14, "gpus": 8, "text": "WARNING: infoROM is corrupted at gpu 0000:0F:00.0"}),
        ((255, "\nInternal trouble\n", ""), {"exit_code": 255, "text": "Internal trouble"}),
        ((0, ROM.replace("8", "7"), LOST + "\n"), {"exit_code": 0, "gpus": 7, "text": " ".join(LOST.split())}),
    ],
)  # fmt: skip
def test_what_nvidia_smi_ends_with_and_says_is_a_fact(answer: tuple[int, str, str], fact: dict[str, object]) -> None:
    output, facts_of_it = nvidia_smi.ask(Machine({"nvidia-smi": lambda _: answer}))
    assert (output, facts_of_it) == (answer[1] + answer[2], {"nvidia_smi_hangs": False, "nvidia_smi": fact})


def test_a_host_without_nvidia_smi_has_no_answer_of_it() -> None:
    assert nvidia_smi.ask(Machine({})) == ("", {"nvidia_smi_hangs": False})


@needs_records
def test_a_recorded_machine_has_nothing_to_complain_of() -> None:
    recorded = (RECORDED / "nvidia_smi_q_8xh100_hw_power_brake.txt").read_text()
    fact = nvidia_smi.ask(Machine({"nvidia-smi": lambda _: (0, recorded, "")}))[1]["nvidia_smi"]
    assert fact == {"exit_code": 0, "gpus": 8, "text": ""}


def test_no_driver_is_no_fact(tmp_path: Path) -> None:
    machine = Machine({"nvidia-smi": lambda _: (0, "", "")})
    assert facts.driver(machine, str(tmp_path)) == {}
    assert machine.said == []


UVM = "updates/dkms/nvidia-uvm.ko: updates/dkms/nvidia.ko\n"
IN_TREE = "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko.xz: kernel/lib/x.ko.xz\nkernel/drivers/i2c/busses/i2c-nvidia-gpu.ko:\n"
# where each lies, as depmod lists it
LISTS = {
    "DKMS of NVIDIA's packages": ("updates/dkms/nvidia.ko.zst:\n", True),
    "DKMS of Debian's packages": ("updates/dkms/nvidia-current.ko.xz: kernel/drivers/acpi/video.ko.xz\n", True),
    "an older branch of Debian": ("updates/dkms/nvidia-tesla-470.ko:\n", True),
    "built in advance, Ubuntu": ("kernel/nvidia-580srv/nvidia.ko:\n", True),
    "built in advance, RHEL": ("extra/drivers/video/nvidia/nvidia.ko.xz:\n", True),
    "built in advance, SUSE": ("weak-updates/updates/nvidia.ko:\n", True),
    "NVIDIA's own installer": ("kernel/drivers/video/nvidia.ko:\n", True),
    "none, as with a container's": ("", False),
    "a part of it alone": (UVM, False),
}


@pytest.mark.parametrize(("line", "there"), LISTS.values(), ids=LISTS)
def test_a_driver_is_the_hosts_where_its_module_lies_there_loaded_or_not(tmp_path: Path, line: str, there: bool) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(OPEN)
    modules = tmp_path / "lib/modules" / os.uname().release
    modules.mkdir(parents=True)
    (modules / "modules.dep").write_text(IN_TREE + line + "kernel/drivers/acpi/video.ko.xz:\n")
    assert nvidia_driver.is_installed(str(tmp_path)) is there
    assert nvidia_driver.is_of_container(str(tmp_path)) is not there
    assert facts.driver(Machine({}), str(tmp_path))["nvidia_driver"] == "575.57.08", "the one that runs is told all the same"


def test_whose_driver_it_is_stays_open_where_nothing_lists_modules(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(OPEN)
    assert nvidia_driver.is_installed(str(tmp_path)) is None
    assert not nvidia_driver.is_of_container(str(tmp_path))


@needs_records
def test_gpus_and_switches_are_counted_on_the_bus_of_a_recorded_machine(tmp_path: Path) -> None:
    rows = (RECORDED / "lspci_nn_8xa100_6nvswitch.txt").read_text().splitlines()
    for row in (*rows, "ffff:00:00.0 Non-Volatile memory controller [0108]: A disk [144d:a80a]"):
        address, rest = row.split(" ", 1)
        kind, vendor = rest.partition("[")[2][:4], rest.rpartition("[")[2][:4]
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "class").write_text(f"0x{kind}00\n")
        (folder / "vendor").write_text(f"0x{vendor}\n")
        (folder / "device").write_text(f"0x{rest.rpartition(':')[2][:4]}\n")
    virtual = tmp_path / "sys/bus/pci/devices/ffff:01:00.4"
    virtual.mkdir()
    for name, value in {"class": "0x030200", "vendor": "0x10de", "device": "0x20b2"}.items():
        (virtual / name).write_text(f"{value}\n")
    (virtual / "physfn").symlink_to(folder)
    assert facts.nvidia_devices(str(tmp_path)) == (["20b2"] * 8, 6)
    assert facts.nvidia_devices(str(tmp_path / "none")) == ([], 0)


def test_control_groups_are_of_version_2_where_all_are(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/cgroup/unified").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/unified/cgroup.controllers").touch()
    assert facts.cgroup(str(tmp_path)) == "v1", "of both, kubelets count the old one"
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").touch()
    assert facts.cgroup(str(tmp_path)) == "v2"


def test_nic_firmware_is_alike_on_machines_that_name_their_devices_otherwise(tmp_path: Path) -> None:
    for node, names in (("n1", ("mlx5_0", "mlx5_1")), ("n2", ("ibp24s0", "ibp12s0"))):
        for name, firmware in zip(names, ("28.39.1002", "28.39.2048"), strict=True):
            folder = tmp_path / node / "sys/class/infiniband" / name
            folder.mkdir(parents=True)
            (folder / "board_id").write_text("MT_0000000838\n")
            (folder / "fw_ver").write_text(f"{firmware}\n")
    first, second = (facts.nic_firmware(str(tmp_path / node)) for node in ("n1", "n2"))
    assert first == second == ["MT_0000000838 28.39.1002", "MT_0000000838 28.39.2048"]
