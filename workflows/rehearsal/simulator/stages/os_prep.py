"""Stage os_prep: the effect of its playbook on a simulated machine, and the settings and facts that the machine then reports."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.host_play import PlayHost, PlayRequest
from workflows.rehearsal.simulator.playbook_runs import TaskOutcome, TaskStatus, failed, play, unreachable
from workflows.rehearsal.simulator.stages.gpu_operator.gpu_operator_nodes import driver_of_operator
from workflows.rehearsal.simulator.world import World

CHANGE, REBOOT, READ, ASSERT = (
    "os_prep : Bring the node to its profile",
    "os_prep : Reboot the node",
    "os_prep : Read the profile and the facts again",
    "os_prep : Fail the node whose items could not be changed",
)
MODULE = "node_profile"
CONFIGURED = {"dns": "DNS", "selinux": "SELinux", "apparmor": "AppArmor"}
"""Host settings that a machine already has as the profile wants, with their displayed names, by the profile's key."""
KEPT = {
    "modules": "/etc/modules-load.d/90-bringup.conf",
    "blacklist": "/etc/modprobe.d/90-bringup.conf",
    "sysctls": "/etc/sysctl.d/zz-bringup.conf",
    "memlock": "/etc/security/limits.d/90-bringup.conf",
}
"""Path of the file that restores a part of the profile at boot, by the profile's key for that part."""
CHANGE_SECONDS, READ_SECONDS, REBOOT_SECONDS = 45.0, 4.0, 420.0
AWAY = "Timed out waiting for last boot time check (timeout=1380)"
SKEW = 37.0
NOT_LOADED = (
    "package rke2-selinux is there, and its policy module is not loaded: semodule -i ended with 1: Failed to resolve "
    "typeattributeset statement at /var/lib/selinux/targeted/tmp/modules/400/rke2/cil:64"
)
FREE_MIB, SMALL_MIB = 1_600_000, 9_000
OTHER_MTU = "1500"
LINK_CODES = {"InfiniBand": 1, "Ethernet": 2}
"""Link layer → value of LINK_TYPE_P1 in an adapter's firmware settings."""
STUB = "127.0.0.53"
NO_EXEC = (
    "/var is mounted with noexec, so that nothing below /var/lib/rancher starts (`Permission denied`): take it out of /etc/fstab, "
    "and remount"
)
TEMPLATE = "/var/lib/rancher/rke2/agent/etc/containerd/config.toml.tmpl"
LOST = "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost. Reboot the system to recover this GPU"
OLDER_FIRMWARE, OLDER_KERNEL = "28.39.1002", "6.8.0-41-generic"

Item = dict[str, str]


class PreparedHost(Struct, frozen=True, kw_only=True):
    """One host during one run of the playbook: the profile that it shall have in `want`, and how far it is.

    `fresh`: no earlier run has changed it. `booted`: it needs no reboot for its kernel parameters any more. `gpu`: it has the GPU
    part of the profile.
    """

    world: World
    host: PlayHost
    want: dict[str, Any]
    gpu: bool
    fresh: bool
    booted: bool = False

    @property
    def name(self) -> str:
        """The name of the host."""
        return self.host.name

    def suffers(self, fault: str) -> bool:
        """Return True if the named fault hits the host."""
        return self.world.fault(fault, self.name) is not None

    @property
    def pending_parameters(self) -> list[str]:
        """Kernel parameters in the profile that need a reboot to take effect; empty after one."""
        return [] if self.booted else list(self.want.get("kernel_parameters", ()))


@play("os_prep")
def os_prep(world: World, request: PlayRequest) -> Iterable[TaskOutcome]:
    """Play the playbook os_prep: bring hosts to their profile, and reboot those that need it, if the variables allow it.

    Yields the results of its tasks. As in the real role, rebooted hosts are read again, and a host with a failed setting fails.
    """
    machines = [_machine(world, host, request) for host in request.hosts if host.name in world.fleet]
    reached = [machine for machine in machines if not machine.suffers("hosts_unreachable")]
    changes = [_changed(machine) for machine in reached]
    for machine in machines:
        if machine.suffers("hosts_unreachable"):
            yield unreachable(machine.host, CHANGE, MODULE)
    yield from changes
    may_reboot = request.variables.get("os_prep_reboot") and not request.check
    rebooted = [machine for machine in reached if machine.pending_parameters and may_reboot]
    reboots = [_rebooted(machine) for machine in rebooted]
    yield from reboots
    later = sum(max((outcome.seconds for outcome in outcomes), default=0.0) for outcomes in (changes, reboots))
    awake = (machine for machine in rebooted if not machine.suffers("reboot_hangs"))
    back = {machine.name: msgspec.structs.replace(machine, fresh=False, booted=True) for machine in awake}
    for machine in back.values():
        yield TaskOutcome(host=machine.name, task=READ, seconds=READ_SECONDS, action=MODULE, result=_shown(machine, later))
    for machine in reached:
        yield from _failing(back.get(machine.name, machine))
    if not request.check:
        for machine in reached:
            kept = world.hosts[machine.name].get("os_prep", {"since": world.now})
            world.hosts[machine.name]["os_prep"] = kept | {"booted": machine.booted or machine.name in back}
        world.wake()


def _machine(world: World, host: PlayHost, request: PlayRequest) -> PreparedHost:
    profile = request.variables["os_prep_profile"]
    gpu = bool(set(host.groups) & set(profile.get("gpu_groups", ())))
    want = {key: value for key, value in profile.items() if key not in ("gpu", "gpu_groups")}
    for key, value in (profile.get("gpu", {}) if gpu else {}).items():
        want[key] = want.get(key, type(value)()) | value if isinstance(value, dict) else value
    state = world.hosts[host.name].get("os_prep")
    booted = bool(state and state["booted"]) or not want.get("kernel_parameters")
    return PreparedHost(world=world, host=host, want=want, gpu=gpu, fresh=state is None, booted=booted)


def _changed(machine: PreparedHost) -> TaskOutcome:
    seconds = CHANGE_SECONDS if machine.fresh else READ_SECONDS
    status = TaskStatus.CHANGED if machine.fresh else TaskStatus.OK
    result = _shown(machine, seconds - READ_SECONDS)
    return TaskOutcome(host=machine.name, task=CHANGE, status=status, seconds=seconds, action=MODULE, result=result)


def _rebooted(machine: PreparedHost) -> TaskOutcome:
    hangs = machine.suffers("reboot_hangs")
    return TaskOutcome(
        host=machine.name,
        task=REBOOT,
        status=TaskStatus.FAILED if hangs else TaskStatus.CHANGED,
        seconds=1380 if hangs else REBOOT_SECONDS,
        action="ansible.builtin.reboot",
        result={"msg": AWAY, "rebooted": True} if hangs else {},
    )


def _failing(machine: PreparedHost) -> Iterator[TaskOutcome]:
    failing = [f"{item['name']}: {item['why']}" for item in _items(machine) if item["status"] == "failed"]
    if failing:
        yield failed(machine.name, ASSERT, "; ".join(failing), seconds=1.0)


def _shown(machine: PreparedHost, after: float) -> dict[str, Any]:
    """Return the result of the module `node_profile`: settings and facts of the host `after` seconds from now.

    The clock in the facts is that of the middle of the reading.
    """
    skew = SKEW if machine.suffers("clock_skew") else 0.0
    facts = _facts(machine, machine.world.now + after + READ_SECONDS / 2 + skew)
    return {"observation": {"items": _items(machine), "facts": facts}}


def _items(machine: PreparedHost) -> list[Item]:
    """Return a result for every setting in the host's profile. Those that a bare machine lacks are `changed` in the first run."""
    want, new = machine.want, "changed" if machine.fresh else "ok"
    links = want.get("links", {})
    lines = [
        ("root", "uid 0", "ok"),
        ("hostname", machine.name, "ok"),
        ("hosts", f"{machine.host.address} {machine.name}", new),
        *((f"repository of {name}", "there", new) for name in want.get("repositories", {})),
        *((f"package {name}", "present", new) for name in want.get("packages", ())),
        *((f"module {name}", "loaded", new) for name in want.get("modules", ())),
        *((f"module {name}", "not loaded", "ok") for name in want.get("blacklist", ())),
        *((f"sysctl {key}", str(value), new) for key, value in sorted(want.get("sysctls", {}).items())),
        *((f"kernel parameter {name}", "on the command line", "ok") for name in want.get("kernel_parameters", ())),
        *((f"hugepages {size}", str(count), new) for size, count in want.get("hugepages", {}).items()),
        *((f"file {path}", "as a whole", new) for key, path in KEPT.items() if want.get(key)),
        *((f"file {file['path']}", "as a whole", new) for file in want.get("files", ()) if not file.get("needs")),
        *([("memlock", _memlock(want["memlock"]), new)] if want.get("memlock") else []),
        ("swap now", "off", new),
        ("swap /etc/fstab", "not listed", new),
        *((f"directory {path}", mode, new) for path, mode in want.get("directories", {}).items()),
        *((f"mount {path}", "mounted", "ok") for path in want.get("mounts", {})),
        *((f"exec {path}", "programs run there", "ok") for path in want.get("executable", ())),
        *((f"system user {name}", "user and group", new) for name in want.get("system_users", {})),
        *((f"user {entry['name']}", "present", new) for entry in want.get("users", ())),
        *((f"route {entry['to']}", entry.get("via") or entry["device"], "ok") for entry in want.get("routes", ())),
        *((f"name of {address}", name, new) for name, address in want.get("interface_names", {}).items()),
        *((f"link {name}", "present", "ok") for name in links.get("names", ())),
        *([("containerd templates", "none", "ok")] if want.get("containerd_templates") else []),
        *([("DNS of pods", "name servers that pods can reach", "ok")] if want.get("pod_resolv_conf") else []),
        *(
            [("kernel headers", f"linux-headers-{_kernel(machine)} installed or offered", "ok")]
            if want.get("kernel_headers")
            else []
        ),
        *([("other work on the machine", "none", "ok")] if want.get("background") else []),
        *((f"MTU of {name}", str(links["mtu"]), new) for name in links.get("names", ["ibs1"]) if links.get("mtu")),
        *((name, str(want[key]), "ok") for key, name in CONFIGURED.items() if want.get(key)),
        *([("SELinux module rke2", "loaded", "ok")] if _has_policy(want) else []),
        *([("default route", "present", "ok")] if want.get("default_route") else []),
        *([("firewall", "lets in what the cluster needs", new)] if want.get("firewall") else []),
        *([("PCIe ACS", "off", new)] if want.get("pcie_acs") else []),
        *((f"service {name}", state, new) for name, state in want.get("services", {}).items()),
        ("time service", "active", "ok"),
    ]
    items = [{"name": name, "want": wanted, "after": wanted, "status": status} for name, wanted, status in lines]
    items += [*_ports(machine, want["link_types"])] if want.get("link_types") else []
    items += [_disk(machine, path, least) for path, least in want.get("disks", {}).items()]
    return [_disturbed(machine, item) for item in items]


def _ports(machine: PreparedHost, wanted: dict[str, Any]) -> Iterator[Item]:
    """Yield the link type of each RDMA port that the machine has; like the real module, compare it with the wanted one.

    A machine without NICs, or with NICs of other device ids, gives the result of the real module for that.
    """
    hardware = machine.world.hardware(machine.name)
    if not hardware.nics or not any(device.endswith(f":{hardware.pci_nic}") for device in wanted["devices"]):
        item = {"name": "link types", "want": f"RDMA devices of {', '.join(wanted['devices'])}"}
        yield _failed(item, "no such device", "no RDMA device belongs to them: is the driver of the NICs loaded?")
        return
    for number in range(hardware.nics):
        item = {"name": f"link type of mlx5_{number}", "want": wanted["layer"]}
        if number == 0 and machine.suffers("link_type_wrong"):
            other = next(layer for layer in LINK_CODES if layer != wanted["layer"])
            word = "IB" if wanted["layer"] == "InfiniBand" else "ETH"
            why = f"the firmware's LINK_TYPE_P1 is not {word} ({LINK_CODES[wanted['layer']]})"
            yield _failed(item, other, why)
        else:
            yield item | {"after": wanted["layer"], "status": "ok"}


def _kernel(machine: PreparedHost) -> str:
    """Return the release of the kernel that runs on the machine."""
    return OLDER_KERNEL if machine.suffers("kernel_differs") else machine.world.hardware(machine.name).kernel


def _has_policy(want: dict[str, Any]) -> bool:
    """Return True if the profile has RKE2's SELinux policy and enforces SELinux, so that its module is looked for."""
    return want.get("selinux") == "enforcing" and "rke2-selinux" in want.get("packages", ())


def _memlock(limit: str) -> str:
    """Return a limit in KiB as systemd shows it: in bytes, or `infinity` for `unlimited`."""
    return str(int(limit) * 1024) if limit.isdigit() else "infinity"


def _disk(machine: PreparedHost, path: str, least: int) -> Item:
    free = SMALL_MIB if machine.suffers("disk_full") else FREE_MIB
    item = {"name": f"disk {path}", "want": f">= {least} MiB free", "after": f"{free} MiB free"}
    if free >= least:
        return item | {"status": "ok"}
    return item | {"status": "failed", "before": item["after"], "why": "No space left for what is to come"}


def _disturbed(machine: PreparedHost, item: Item) -> Item:
    name = item["name"]
    if name == "module nouveau" and machine.suffers("nouveau_loaded"):
        return _failed(item, "loaded", "modprobe --remove: module is in use")
    if name == "SELinux module rke2" and machine.suffers("selinux_module_absent"):
        return _failed(item, "not loaded", NOT_LOADED)
    if name == "DNS of pods" and machine.suffers("dns_loopback_only"):
        return _failed(item, STUB, f"/etc/resolv.conf has {STUB}: no pod reaches {STUB}, and RKE2 gives pods 8.8.8.8 instead")
    if name == "exec /var/lib/rancher" and machine.suffers("noexec_data_folder"):
        return _failed(item, "noexec at /var", NO_EXEC)
    if name == "containerd templates" and machine.suffers("containerd_template_left"):
        return _failed(
            item, TEMPLATE, "RKE2 writes containerd's configuration from it, and leaves out runtimes and registries of the plan"
        )
    if name == "kernel headers" and machine.suffers("kernel_headers_gone"):
        return _unavailable(item, f"no package repository of this machine offers linux-headers-{_kernel(machine)}")
    if name == "other work on the machine" and machine.suffers("upgrade_runs"):
        return _unavailable(item, "apt-daily-upgrade.service still at work after 300 s, and may change what the play sets")
    if name == "PCIe ACS" and machine.suffers("acs_on"):
        return _failed(item, "on: 0000:3a:00.0 0x1d", "changed, but it reads the same as before or another value")
    if name.startswith("MTU of ") and machine.suffers("fabric_mtu"):
        return _failed(item, OTHER_MTU, "ip link ended with 2: RTNETLINK answers: Invalid argument")
    if name.startswith("kernel parameter "):
        if not machine.booted:
            return item | {"status": "differs", "after": "kept for the next boot", "why": "the next boot brings it"}
        if machine.suffers("kernel_parameter_lost"):
            return _failed(item, "absent", "the reboot did not bring it: the machine boots with another menu than the one we wrote")
    return item


def _failed(item: Item, state: str, why: str) -> Item:
    return item | {"status": "failed", "before": state, "after": state, "why": why}


def _unavailable(item: Item, why: str) -> Item:
    return {key: value for key, value in item.items() if key != "after"} | {"status": "unavailable", "why": why}


def _facts(machine: PreparedHost, epoch: float) -> dict[str, Any]:
    """Return the host's facts in the form of `steps.stages.os_prep.contract.Facts`. `epoch` is the time on its clock."""
    name, world = machine.name, machine.world
    host, hardware = world.host(name), world.hardware(name)
    digest = hashlib.sha256(name.encode()).hexdigest()
    kernel = _kernel(machine)
    firmware = OLDER_FIRMWARE if machine.suffers("nic_firmware_differs") else hardware.nic_firmware
    rest = f"-{digest[8:12]}-4{digest[12:15]}-8{digest[15:18]}-{digest[18:30]}"
    parameters = machine.want.get("kernel_parameters", ())
    applied = parameters if machine.booted and not machine.suffers("kernel_parameter_lost") else ()
    free = SMALL_MIB if machine.suffers("disk_full") else FREE_MIB
    gpus = [hardware.pci_gpu] * (host.gpus - machine.suffers("gpu_not_on_the_bus"))
    facts: dict[str, Any] = {
        "os_id": hardware.os_id,
        "os_version": hardware.os_version,
        "kernel": kernel,
        "cmdline": " ".join([f"BOOT_IMAGE=/boot/vmlinuz-{kernel} ro", *applied]),
        "architecture": "x86_64",
        "python": "3.12.3",
        "init": "systemd",
        "hostname": name,
        "machine_id": digest[:32],
        "boot_id": (digest[-8:] if machine.booted and parameters else digest[:8]) + rest,
        "gpu_machine": machine.gpu,
        "product": hardware.machine,
        "bios": "Simulated BIOS 1.0",
        "cpu_model": "Simulated CPU",
        "nic_firmware": [f"{hardware.pci_nic} {firmware}"] * hardware.nics,
        "cgroup": "v2",
        "selinux": machine.want.get("selinux", "none"),
        "apparmor": machine.want.get("apparmor", "enabled"),
        "cpus": hardware.cpus,
        "memory_mib": hardware.memory_gib * 1024,
        "memlock": "unlimited",
        "gpus": len(gpus),
        "gpu_devices": gpus,
        "nvswitches": hardware.nvswitches if host.gpus else 0,
        "nouveau_loaded": machine.suffers("nouveau_loaded"),
        "secure_boot": machine.suffers("secure_boot_on"),
        "signed_modules_only": machine.suffers("secure_boot_on"),
        "clock": {"epoch": epoch, "service": "chrony.service", "synchronized": True, "offset_seconds": 0.0003},
        "disks": [{"path": "/var/lib/rancher", "free_mib": free, "total_mib": 1_800_000}],
    }
    if machine.pending_parameters:
        facts["reboot_reasons"] = [f"kernel parameter {parameter}" for parameter in machine.pending_parameters]
    own = bool(host.gpus) and (hardware.driver_on_host or machine.suffers("host_driver_conflict"))
    if not own:
        # The operator's driver leaves no tools on the host: they are in its container.
        return facts | {"nvidia_driver": driver_of_operator(world, name), "driver_installed": False}
    answer = {"exit_code": 15, "gpus": len(gpus) - 1, "text": LOST} if machine.suffers("gpu_off_the_bus") else {}
    return facts | _own_driver(hardware.driver, facts["nvswitches"], {"exit_code": 0, "gpus": len(gpus)} | answer)


def _own_driver(version: str, nvswitches: int, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about a GPU driver that the host itself has: nvidia-smi's answer, and the fabric manager with NVSwitches."""
    manager = {"fabric_manager": version, "fabric_manager_active": True, "fabric_states": ["Completed"]} if nvswitches else {}
    return {"nvidia_driver": version, "driver_installed": True, "nvidia_smi": answer, **manager}
