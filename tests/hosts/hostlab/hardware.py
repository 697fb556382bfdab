"""Stand-ins for hardware and its driver: files before those in which this kernel shows its own machine, programs, and a service.

They go with the host's next boot. What reads them is real.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from hostlab.host import Host

GPU, SWITCH = "0x030200", "0x068000"
NVIDIA = "0x10de"
PLACE = "/run/machine"
SHOW = f"""set -e
for tree in class module; do
    mkdir -p {PLACE}/$tree
    mount -t overlay overlay -o ro,lowerdir={PLACE}/$tree:/sys/$tree /sys/$tree
done
mkdir -p {PLACE}/pci {PLACE}/driver
mount --bind {PLACE}/pci /sys/bus/pci/devices
mount -t tmpfs tmpfs /proc/driver
cp -r {PLACE}/driver/. /proc/driver
chmod 755 /usr/local/bin/*
systemctl daemon-reload
"""
MANAGER = "/etc/systemd/system/nvidia-fabricmanager.service"
OLD_KERNEL = "/usr/local/bin/on-an-older-kernel"
"""A Python to which the kernel says of itself that it is of series 2.6, as it can (`personality(2)`, UNAME26)."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Hardware that a machine shows: `nics` are RDMA devices with their firmware, `driver` is NVIDIA's on the host (none if empty),
    `manager` the version of its fabric manager, and `fabric` the state of the GPUs in the NVLink fabric.

    nvidia-smi ends with `code` after `complaint`. `rails` are RDMA devices on the PCI bus with the link layer of their port, and
    `signed_only` says that the kernel takes signed modules only.
    """

    bios: str = "2.1"
    nics: Mapping[str, str]
    gpus: int
    switches: int = 0
    driver: str = ""
    manager: str = ""
    manager_runs: bool = True
    fabric: str = "Completed"
    modules: tuple[str, ...] = ()
    code: int = 0
    complaint: str = ""
    rails: Mapping[str, str] = field(default_factory=dict)
    signed_only: bool = False


def show(host: Host, hardware: Hardware) -> None:
    """Let the host show this hardware, until its next boot."""
    lines = [f"mkdir -p {Path(path).parent}; printf %s {quote(text)} > {path}" for path, text in _files(hardware).items()]
    host.run("sh", "-s", text="\n".join([*lines, SHOW]))
    if hardware.driver and hardware.manager_runs:
        host.run("systemctl", "start", "nvidia-fabricmanager.service")


def _files(hardware: Hardware) -> dict[str, str]:
    """Path → content."""
    dmi, pci = f"{PLACE}/class/dmi/id", f"{PLACE}/pci"
    files = {f"{dmi}/bios_vendor": "Vendor", f"{dmi}/bios_version": hardware.bios, f"{dmi}/product_name": "HGX"}
    files |= {f"{PLACE}/class/infiniband/{name}/fw_ver": version for name, version in hardware.nics.items()}
    files |= {f"{PLACE}/class/infiniband/{name}/board_id": "MT_0000000838" for name in hardware.nics}
    files |= {f"{PLACE}/module/module/parameters/sig_enforce": "Y"} if hardware.signed_only else {}
    for number, (name, layer) in enumerate(hardware.rails.items()):
        nic = f"{pci}/0000:{0xA0 + number:02x}:00.0"
        files |= {f"{nic}/class": "0x020700", f"{nic}/vendor": "0x15b3", f"{nic}/device": "0x1021"}
        files[f"{nic}/infiniband/{name}/ports/1/link_layer"] = layer
    files |= {f"{PLACE}/module/{name}/refcnt": "0" for name in hardware.modules}
    for number, kind in enumerate([GPU] * hardware.gpus + [SWITCH] * hardware.switches):
        files |= {f"{pci}/0000:{number:02x}:00.0/class": kind, f"{pci}/0000:{number:02x}:00.0/vendor": NVIDIA}
    if hardware.driver:
        said = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {hardware.driver}  Thu Nov 20 10:00:00 UTC 2025"
        files[f"{PLACE}/driver/nvidia/version"] = said
        row = f"\n    Fabric\n        State                             : {hardware.fabric}"
        row += "\n        Status                            : Success" if hardware.fabric == "Completed" else ""
        lines = [f"Attached GPUs : {hardware.gpus}", row * hardware.gpus, hardware.complaint]
        files["/usr/local/bin/nvidia-smi"] = f"#!/bin/sh\ncat <<'END'\n{chr(10).join(lines)}\nEND\nexit {hardware.code}\n"
        files["/usr/local/bin/nv-fabricmanager"] = f"#!/bin/sh\necho 'Fabric Manager version is : {hardware.manager}'\n"
        files[MANAGER] = "[Service]\nExecStart=/usr/bin/sleep infinity\n"
    files[OLD_KERNEL] = '#!/bin/sh\nexec setarch "$(uname -m)" --uname-2.6 /usr/bin/python3 "$@"\n'
    return files
