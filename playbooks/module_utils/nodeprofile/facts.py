"""Facts about the machine for gate os_prep, read without a change. Unknown facts are left out or empty, never guessed."""

from __future__ import annotations

import glob
import os
import platform
import re
import resource
import shutil
import socket

from ansible.module_utils import nvidia_driver
from ansible.module_utils.nodeprofile import clock_state, confinement, nvidia_smi, signed_modules, systemd_services
from ansible.module_utils.nodeprofile.item import NodeAccess, read_text
from ansible.module_utils.nodeprofile.kernel_settings import is_loaded
from ansible.module_utils.nodeprofile.storage import MIB, nearest_existing

DMI = "/sys/class/dmi/id/"
NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")  # PCI classes of VGA and 3D controllers
BRIDGE_CLASS = "0x0680"  # "other bridge", which NVSwitches are


def os_release() -> dict:
    """Return the keys and unquoted values of /etc/os-release."""
    pairs = [line.partition("=") for line in read_text("/etc/os-release").splitlines() if "=" in line]
    return {key: value.strip("\"'") for key, _, value in pairs}


def gather(node: NodeAccess, paths: list, began: float, clock_seconds: float) -> dict:
    """Return the facts of the os_prep contract about hardware, kernel, distribution, clock and the disks at `paths`.

    `clock_state.read` explains `began` and `clock_seconds`.
    """
    release = os_release()
    memory = re.search(r"^MemTotal:\s+(\d+)", read_text("/proc/meminfo"), re.MULTILINE)
    memlock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    gpus, switches = nvidia_devices()
    unknown_or_not = {
        "driver_installed": nvidia_driver.is_installed(),
        "secure_boot": signed_modules.secure_boot(),
        "signed_modules_only": signed_modules.are_required(),
    }
    return {
        "os_id": release.get("ID", ""),
        "os_version": release.get("VERSION_ID", ""),
        "kernel": platform.release(),
        "cmdline": read_text("/proc/cmdline").strip(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "init": "systemd" if systemd_services.has_systemd() else "none",
        "hostname": socket.gethostname(),
        "machine_id": read_text("/etc/machine-id").strip(),
        "boot_id": read_text("/proc/sys/kernel/random/boot_id").strip(),
        "product": read_text(DMI + "product_name").strip(),
        "bios": " ".join(read_text(DMI + part).strip() for part in ("bios_vendor", "bios_version")).strip(),
        "cpu_model": _cpu_model(),
        "cpus": os.cpu_count() or 0,
        "memory_mib": int(memory.group(1)) // 1024 if memory else 0,
        "swap_mib": sum(int(line.split()[2]) for line in read_text("/proc/swaps").splitlines()[1:]) // 1024,
        "memlock": "unlimited" if memlock == resource.RLIM_INFINITY else str(memlock),
        "gpus": len(gpus),
        "gpu_devices": gpus,
        "nvswitches": switches,
        "nic_firmware": nic_firmware(),
        "cgroup": cgroup(),
        "selinux": confinement.selinux_mode() or "none",
        "apparmor": confinement.apparmor_mode(),
        "nouveau_loaded": is_loaded("nouveau"),
        "clock": clock_state.read(node, began, clock_seconds),
        "disks": [_disk(path) for path in paths],
        **driver(node),
        **{name: value for name, value in unknown_or_not.items() if value is not None},
    }


def _cpu_model() -> str:
    """Return the CPU's model name; on ARM, whose kernels give no name, the numbers of implementer and part."""
    text = read_text("/proc/cpuinfo")
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    if named:
        return named.group(1).strip()
    parts = [re.search(r"^CPU %s\s*:\s*(\S+)" % part, text, re.MULTILINE) for part in ("implementer", "part")]
    return " ".join(part.group(1) for part in parts if part)


def nic_firmware(root: str = "") -> list:
    """Return `BOARD FIRMWARE` of every RDMA device, sorted, without device names: machines of one model give equal lists."""
    folders = glob.glob(root + "/sys/class/infiniband/*")
    return sorted("%s %s" % (read_text(path + "/board_id").strip(), read_text(path + "/fw_ver").strip()) for path in folders)


def cgroup(root: str = "") -> str:
    """Return `v2` if the machine has the unified cgroup hierarchy, else `v1`, which includes systemd's hybrid layout."""
    return "v2" if os.path.exists(root + "/sys/fs/cgroup/cgroup.controllers") else "v1"


def _disk(path: str) -> dict:
    usage = shutil.disk_usage(nearest_existing(path))
    return {"path": path, "free_mib": usage.free // MIB, "total_mib": usage.total // MIB}


def nvidia_devices(root: str = "") -> tuple:
    """Return the PCI device ids of all GPUs on the bus, sorted, and the number of NVSwitches, with or without a driver.

    The virtual functions that a GPU has on a host of virtual machines are no GPUs of their own.
    """
    devices = [
        (read_text(folder + "/class").strip()[:6], read_text(folder + "/device").strip()[2:])
        for folder in glob.glob(root + "/sys/bus/pci/devices/*")
        if read_text(folder + "/vendor").strip() == NVIDIA and not os.path.exists(folder + "/physfn")
    ]
    gpus = sorted(device for kind, device in devices if kind in GPU_CLASSES)
    return gpus, sum(kind == BRIDGE_CLASS for kind, _ in devices)


def driver(node: NodeAccess, root: str = "", seconds: float = nvidia_smi.ANSWER_SECONDS) -> dict:
    """Return facts of the loaded NVIDIA driver and of its Fabric Manager, whose versions must be equal; empty without a driver.

    Source: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
    """
    # NVIDIA's open module names the architecture before its version
    running = read_text(root + nvidia_driver.RUNNING)
    match = re.search(r"Module(?: for \S+)?\s+(\d[\d.]+)", running)
    if not match:
        return {}
    manager = re.search(r"(\d[\d.]+)", node.run("nv-fabricmanager", "--version")[1])
    output, answer = nvidia_smi.ask(node, seconds)
    units = systemd_services.units(node, ["nvidia-fabricmanager"]) if systemd_services.has_systemd(root) else {}
    return {
        "nvidia_driver": match.group(1),
        "driver_flavour": "open" if "Open Kernel Module" in running else "proprietary",
        "fabric_manager": manager.group(1) if manager else "",
        "fabric_manager_active": any(unit["ActiveState"] == "active" for unit in units.values()),
        "fabric_states": _fabric_states(output),
        **answer,
    }


def _fabric_states(output: str) -> list:
    """Return the distinct NVLink fabric states of the GPUs in nvidia-smi's output, sorted.

    A GPU whose state is Completed may still have failed; its status is then appended.
    """
    rows = re.findall(r"^\s+Fabric\s*\n\s+State\s*:\s*(.+?)\s*\n(?:\s+Status\s*:\s*(.+?)\s*$)?", output, re.MULTILINE)
    return sorted({"%s: %s" % row if row[0] == "Completed" and row[1] not in ("", "Success") else row[0] for row in rows})
