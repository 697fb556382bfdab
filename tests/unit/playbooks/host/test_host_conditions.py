"""Conditions of a machine that the play only reads: mounts, templates, name servers, link types, headers, signatures."""

import os
from pathlib import Path

import pytest
from ansible.module_utils.nodeprofile import (
    background_work,
    containerd_templates,
    kernel_headers,
    link_types,
    pod_interfaces,
    pod_resolver,
    signed_modules,
    storage,
)

from tests.unit.playbooks.machine import Answer, Machine

WHOLE = "/dev/vda1 / ext4 rw,relatime 0 0\n"
NIC = "15b3:1021"


def written(root: Path, path: str, text: str = "") -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("lines", "status", "seen"),
    [
        ("", "ok", "programs run there"),
        ("/dev/vdb1 /var xfs rw,nosuid,noexec 0 0\n", "failed", "noexec at /var"),
        ("/dev/vdb1 /var xfs rw,noexec 0 0\n/dev/vdb1 /var xfs rw 0 0\n", "ok", "programs run there"),
        ("/dev/vdb1 /var/log xfs rw,noexec 0 0\n", "ok", "programs run there"),
    ],
)
def test_programs_run_where_the_file_system_lets_them(tmp_path: Path, lines: str, status: str, seen: str) -> None:
    written(tmp_path, "proc/self/mounts", WHOLE + lines)
    (row,) = storage.executable(["/var/bringup-no-such-folder"], str(tmp_path))
    assert (row["name"], row["status"], row["after"]) == ("exec /var/bringup-no-such-folder", status, seen)


TEMPLATES = ["/agent/config.toml.tmpl", "/agent/config-v3.toml.tmpl"]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (None, "ok"),
        ('version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n', "failed"),
        ('{{ template "base" . }}\n\n[plugins]\n', "ok"),
        ('{{- template "base" . -}}\n', "ok"),
        ("", "failed"),
    ],
)
def test_a_template_that_replaces_the_configuration_of_rke2_is_named(tmp_path: Path, text: str | None, status: str) -> None:
    if text is not None:
        written(tmp_path, TEMPLATES[1], text)
    (row,) = containerd_templates.templates(TEMPLATES, str(tmp_path))
    assert row["status"] == status
    assert (TEMPLATES[1] in row.get("before", "") + row.get("why", "")) is (text is not None)
    assert containerd_templates.templates([], str(tmp_path)) == []


FILES = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"]


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        ("nameserver 10.0.0.53\n", None, "ok"),
        ("nameserver 127.0.0.53\n", "nameserver 10.0.0.53\n", "ok"),
        ("nameserver 127.0.0.53\n", None, "failed"),
        ("nameserver 127.0.0.1\nnameserver 10.0.0.53\n", None, "failed"),
        ("nameserver 169.254.169.253\n", None, "failed"),
        ("nameserver fe80::1%eth0\n", None, "failed"),
        ("nameserver ::1\n", "", "failed"),
        ("nameserver 2001:db8::53\n", None, "ok"),
        ("search example.org\n", None, "ok"),
        (None, None, "ok"),
    ],
)
def test_pods_get_name_servers_that_they_can_reach(tmp_path: Path, first: str | None, second: str | None, status: str) -> None:
    for path, text in zip(FILES, (first, second), strict=True):
        if text is not None:
            written(tmp_path, path, text)
    (row,) = pod_resolver.dns_of_pods(FILES, str(tmp_path))
    assert row["status"] == status
    assert ("8.8.8.8" in row.get("why", "")) is (status == "failed" or "nameserver" not in f"{first}{second}")


def port(root: Path, slot: str, device: str, layer: str, pair: str = NIC) -> None:
    """A NIC on the bus with an RDMA device of one port; without a device where no driver has it."""
    folder = f"sys/bus/pci/devices/{slot}"
    for part, value in zip(("vendor", "device"), pair.split(":"), strict=True):
        written(root, f"{folder}/{part}", f"0x{value}\n")
    if device:
        written(root, f"{folder}/infiniband/{device}/ports/1/link_layer", layer + "\n")


def types(root: Path, *, rails: tuple[str, ...] = (), count: int = 2) -> dict[str, tuple[str, str]]:
    wanted = {"layer": "InfiniBand", "devices": [NIC], "rails": rails, "count": count}
    rows = link_types.link_types(wanted, pod_interfaces.PodInterfaces(Machine({}), [], [], {}), str(root))
    return {row["name"]: (row["status"], row.get("after") or row["before"]) for row in rows}


@pytest.mark.parametrize(("mode", "seen"), [("Y", {}), ("N", {"RDMA namespaces": ("unavailable", "exclusive")})])
def test_pods_see_rdma_devices_only_if_namespaces_share_them(tmp_path: Path, mode: str, seen: dict[str, tuple[str, str]]) -> None:
    port(tmp_path, "0000:18:00.0", "mlx5_0", "InfiniBand")
    written(tmp_path, "sys/module/ib_core/parameters/netns_mode", f"{mode}\n")
    assert types(tmp_path, count=1) == {"link type of mlx5_0": ("ok", "InfiniBand"), **seen}


def test_a_port_of_the_other_type_is_named_where_the_fabric_lacks_one(tmp_path: Path) -> None:
    port(tmp_path, "0000:18:00.0", "mlx5_0", "InfiniBand")
    port(tmp_path, "0000:3b:00.0", "mlx5_1", "Ethernet")
    port(tmp_path, "0000:5e:00.0", "mlx5_2", "Ethernet", "15b3:1017")
    good = {"link type of mlx5_0": ("ok", "InfiniBand")}
    assert types(tmp_path) == {**good, "link type of mlx5_1": ("failed", "Ethernet")}
    assert types(tmp_path, count=1) == good, "the other one may be of the storage network"
    assert types(tmp_path, rails=("mlx5_0",)) == good
    assert types(tmp_path, rails=("mlx5_1",)) == {"link type of mlx5_1": ("failed", "Ethernet")}
    assert types(tmp_path, rails=("mlx5_0", "mlx5_7"))["link types"] == ("failed", "0000:18:00.0, 0000:3b:00.0")


def test_nics_without_a_driver_and_none_at_all_are_no_pass(tmp_path: Path) -> None:
    assert types(tmp_path) == {"link types": ("failed", "no such device")}
    port(tmp_path, "0000:18:00.0", "", "")
    assert types(tmp_path) == {"link types": ("failed", "0000:18:00.0")}
    assert link_types.link_types({}, pod_interfaces.PodInterfaces(Machine({}), [], [], {}), str(tmp_path)) == []


RELEASE = os.uname().release
POLICY = "linux-headers:\n  Installed: (none)\n  Candidate: {}\n  Version table:\n"
HEADERS: dict[str, tuple[str, dict[str, Answer], str, str]] = {
    "offered by apt": ("apt", {"apt-cache": lambda _: (0, POLICY.format("6.8.0-60.63"), "")}, "ok", ""),
    "not offered by apt": (
        "apt",
        {"apt-cache": lambda _: (0, POLICY.format("(none)"), "")},
        "unavailable",
        "offers linux-headers-",
    ),
    "unknown to apt": ("apt", {"apt-cache": lambda _: (0, "", "")}, "unavailable", "offers linux-headers-"),
    "offered by dnf": ("dnf", {"dnf": lambda _: (0, "Available Packages\nkernel-devel.x86_64 5.14.0\n", "")}, "ok", ""),
    "not offered by dnf": ("dnf", {"dnf": lambda _: (1, "", "Error: No matching Packages to list")}, "unavailable", "No matching"),
    "not offered by zypper": (
        "zypper",
        {"zypper": lambda _: (104, "No matching items found.", "")},
        "unavailable",
        "-devel of version",
    ),
    "offered by zypper": ("zypper", {"zypper": lambda _: (0, f"v | kernel | {RELEASE}.1", "")}, "ok", ""),
    "no package manager": ("", {}, "unavailable", "no package manager"),
}


@pytest.mark.parametrize(("manager", "tools", "status", "why"), HEADERS.values(), ids=HEADERS)
def test_headers_of_the_running_kernel(tmp_path: Path, manager: str, tools: dict[str, Answer], status: str, why: str) -> None:
    written(tmp_path, "var/lib/apt/lists/mirror_dists_stable_main_Packages")
    (row,) = kernel_headers.headers(Machine(tools), True, manager, str(tmp_path))
    assert row["status"] == status, row
    assert why in row.get("why", "")
    assert kernel_headers.headers(Machine(tools), False, manager, str(tmp_path)) == []
    (tmp_path / "lib/modules" / RELEASE / "build").mkdir(parents=True)
    (row,) = kernel_headers.headers(Machine({}), True, manager, str(tmp_path))
    assert (row["status"], row["after"]) == ("ok", "installed")


def test_without_lists_of_packages_nothing_is_known_of_headers(tmp_path: Path) -> None:
    (row,) = kernel_headers.headers(Machine({"apt-cache": lambda _: (0, "", "")}), True, "apt", str(tmp_path))
    assert (row["status"], "apt-get update" in row["why"]) == ("unavailable", True)


@pytest.mark.parametrize(
    ("variable", "enforced", "lockdown", "secure_boot", "required"),
    [
        (b"\6\0\0\0\1", "N", "none [integrity] confidentiality", True, True),
        (b"\6\0\0\0\0", "N", "[none] integrity confidentiality", False, False),
        (b"\6\0\0\0\1", "N", "[none] integrity confidentiality", True, False),
        (b"\6\0\0\0\1", "Y", None, True, True),
        (None, "N", None, False, False),
        (None, None, None, False, False),
        (b"\6\0\0\0\1", None, None, True, None),
        (b"", None, None, None, None),
    ],
)
def test_a_kernel_that_is_locked_down_takes_signed_modules_only(
    tmp_path: Path,
    variable: bytes | None,
    enforced: str | None,
    lockdown: str | None,
    secure_boot: bool | None,
    required: bool | None,
) -> None:
    if variable is not None:
        written(tmp_path, signed_modules.SECURE_BOOT).write_bytes(variable)
    if enforced is not None:
        written(tmp_path, signed_modules.ENFORCED, enforced + "\n")
    if lockdown is not None:
        written(tmp_path, signed_modules.LOCKDOWN, lockdown + "\n")
    assert (signed_modules.secure_boot(str(tmp_path)), signed_modules.are_required(str(tmp_path))) == (secure_boot, required)


def at_work(root: Path, states: dict[str, list[str]], *, check_mode: bool = False, system: str = "starting") -> Machine:
    """A machine whose units have these states, one after another at each question; others are inactive."""
    (root / "run/systemd/system").mkdir(parents=True, exist_ok=True)

    def show(command: tuple[str, ...]) -> tuple[int, str, str]:
        if "is-system-running" in command:
            return 1, system + "\n", ""
        units = [name for name in command if name.endswith(".service")]
        blocks = []
        for name in units:
            left = states.get(name, ["inactive"])
            blocks.append(f"Id={name}\nLoadState=loaded\nActiveState={left.pop(0) if len(left) > 1 else left[0]}\n")
        return 0, "\n".join(blocks), ""

    return Machine({"systemctl": show}, check_mode=check_mode)


WANTED = {"seconds": 0.2, "units": ["apt-daily.service"]}


def test_an_upgrade_is_waited_for_once_and_no_longer_than_allowed(tmp_path: Path) -> None:
    ends = at_work(tmp_path, {"apt-daily.service": ["activating", "activating", "inactive"]})
    assert background_work.wait(ends, WANTED, False, str(tmp_path), 0.01)[0]["status"] == "ok"
    assert len(ends.said) == 3

    (row,) = background_work.wait(at_work(tmp_path, {"apt-daily.service": ["activating"]}), WANTED, False, str(tmp_path), 0.01)
    assert (row["status"], row["after"]) == ("unavailable", "apt-daily.service")
    assert "apt-daily.service still at work" in row["why"]


def test_who_only_reads_does_not_wait_and_after_a_reboot_upgrades_do_not_count(tmp_path: Path) -> None:
    busy = at_work(tmp_path, {"apt-daily.service": ["activating"]}, check_mode=True)
    assert background_work.wait(busy, WANTED, False, str(tmp_path))[0]["status"] == "ok"
    assert busy.said == []
    assert background_work.wait(busy, WANTED, True, str(tmp_path))[0]["status"] == "ok"
    assert background_work.wait(busy, {}, False, str(tmp_path)) == []


def test_cloud_init_is_at_work_until_its_last_unit_has_ended(tmp_path: Path) -> None:
    written(tmp_path, background_work.ENABLED)
    between = at_work(tmp_path, {"cloud-config.service": ["active"], "cloud-final.service": ["inactive"]})
    assert background_work.at_work(between, [], str(tmp_path)) == ["cloud-init"]
    ended = at_work(tmp_path, {"cloud-final.service": ["inactive"]}, system="degraded")
    assert background_work.at_work(ended, [], str(tmp_path)) == [], "the boot has ended without it"
    last = at_work(tmp_path, {"cloud-final.service": ["activating"]})
    assert background_work.at_work(last, [], str(tmp_path)) == ["cloud-init"]
    failed = at_work(tmp_path, {"cloud-final.service": ["failed"]})
    assert background_work.at_work(failed, [], str(tmp_path)) == [], "nobody is at work any more"
    written(tmp_path, background_work.RESULT, "{}")
    assert background_work.at_work(between, [], str(tmp_path)) == []


def test_without_systemd_nobody_is_known_to_be_at_work(tmp_path: Path) -> None:
    assert background_work.at_work(Machine({}), ["apt-daily.service"], str(tmp_path)) == []
