"""Machines of one kind that are not alike, by the command line: one with another kernel, firmware or driver is set aside, other
differences are named in the report; drivers where none may be, or none where one must be, are named host by host. Hardware and
driver are stand-ins."""

import platform
from pathlib import Path
from typing import Any

import pytest
import yaml
from bringup_command import Command
from hostlab.hardware import OLD_KERNEL, Hardware, show
from hostlab.lab import Init, Lab

pytestmark = pytest.mark.sampled("preparing hosts")

GOOD, ODD = "580.95.05", "570.86.15"
NICS = {"mlx5_0": "28.43.1014", "mlx5_1": "28.43.1014"}
WHOLE: dict[str, Any] = {"nics": NICS, "gpus": 8, "switches": 4, "driver": GOOD, "manager": GOOD}
LOST = "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost. Reboot the system to recover this GPU"
MACHINES = {
    "n000": Hardware(nics={}, gpus=0),
    "n001": Hardware(**WHOLE),
    "n002": Hardware(**WHOLE | {"bios": "1.9", "nics": NICS | {"mlx5_1": "28.39.3004"}, "gpus": 7, "driver": ODD, "manager": ODD}),
    "n003": Hardware(**WHOLE | {"driver": ""}),
    "n004": Hardware(**WHOLE | {"modules": ("nouveau",)}),
    "n005": Hardware(**WHOLE | {"manager_runs": False}),
    "n006": Hardware(**WHOLE | {"manager": ODD}),
    "n007": Hardware(**WHOLE | {"fabric": "In Progress", "code": 15, "complaint": LOST}),
}
"""A server, a whole machine with GPUs, one that is odd in all that is compared, and one for each thing that P05 asks for."""
NOTES = (
    "bios is Vendor 2.1 on 6 of 7 GPU machines, but not on n002 Vendor 1.9",
    "gpus is 8 on 6 of 7 GPU machines, but not on n002 7",
    "nic firmware is 2 x MT_0000000838 28.43.1014 on 6 of 7 GPU machines, "
    "but not on n002 1 x MT_0000000838 28.39.3004, 1 x MT_0000000838 28.43.1014",
)
ODD_ONE = (
    "kernel is 2.6.",
    f"expected {platform.release()} as on 6 of 7 nodes",
    "NIC firmware is MT_0000000838 28.39.3004 and 28.43.1014",
    f"driver version is {ODD}",
)
"""Parts of the reason for which n002 is set aside."""
WRONG = {
    "n003": "8 GPUs and no NVIDIA driver on the host",
    "n004": "(and 1 more: nouveau is loaded)",
    "n005": "4 NVSwitches and no active fabric manager",
    "n006": f"fabric manager {ODD}",
    "n007": f"nvidia-smi ended with 15, a GPU is no longer accessible: {LOST}",
}


def spec(lab: Lab, folder: Path, driver: str) -> None:
    """Write the spec of the machines, with the driver on the host or by the GPU Operator."""
    document = {
        "apiVersion": "bringup/v1",
        "kind": "Cluster",
        "name": "fleet",
        "owner": "tests@example.org",
        "revision": "1",
        "stages": ["os_prep"],
        "hosts": {
            "control": {"role": "server", "ranges": "n000", "addresses": {"start": "10.77.0.1"}},
            "gpu": {
                "role": "agent",
                "gpu": True,
                "ranges": "n[001-007]",
                "addresses": {"start": "10.77.0.2"},
                "overrides": {"n002": {"python": OLD_KERNEL, "gpus": 7}},
            },
        },
        "ssh": {"key": {"file": str(lab.key)}, "known_hosts": str(lab.known_hosts)},
        "os": {
            "distribution": "debian",
            "version": "12",
            "reboot": False,
            "free_disk_gib": {"/var/lib/rancher": 1},
            "tolerate": ["time service", "PCIe ACS", "kernel parameter *", "kernel headers"],
        },
        "accelerator": {"product": "H200", "per_node": 8, "driver": driver}
        | ({"driver_version": GOOD} if driver == "host" else {}),
        "quorum": {"default": "1/7"},
    }
    (folder / "cluster.yaml").write_text(yaml.safe_dump(document))


def named(bringup: Command) -> dict[str, str]:
    """Run; what each host that was set aside is said to be."""
    bringup.call("run", "cluster.yaml", "--only", "os_prep", check=True)
    return {entry["node"]: entry["reason"] for entry in bringup.report()["quarantine"]}


def test_an_odd_machine_is_named_with_its_value_and_drivers_where_they_are_wrong(up: Any, tmp_path: Path) -> None:
    lab = up(len(MACHINES), Init.SYSTEMD, prepared=True)
    for host in lab.hosts:
        show(host, MACHINES[host.name])
    bringup = Command(tmp_path, tmp_path / "home")

    spec(lab, tmp_path, "host")
    aside = named(bringup)
    assert {node: WRONG[node] in aside.get(node, "") for node in WRONG} == dict.fromkeys(WRONG, True), aside
    assert set(aside) == {*WRONG, "n002"}
    assert [part for part in ODD_ONE if part not in aside["n002"]] == [], aside["n002"]
    told = bringup.call("report", check=True).stdout
    assert [note for note in NOTES if f"note on os_prep: {note}" not in told] == [], told
    assert bringup.call("verify", tmp_path / "home/store/runs" / bringup.report()["run"]).returncode == 0

    spec(lab, tmp_path, "operator")
    aside = named(bringup)
    drivers = {name: machine.driver for name, machine in MACHINES.items() if machine.driver and not machine.modules}
    said = {
        node: f"NVIDIA driver {driver} on the host; expected none, as driver.enabled is true" for node, driver in drivers.items()
    }
    assert {node: text in aside.get(node, "") for node, text in said.items()} == dict.fromkeys(said, True), aside
    assert set(aside) == {*said, "n004"}, "a machine without a driver gets one from the operator"
