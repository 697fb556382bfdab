"""Stage os_prep: what a prepared machine shows, and what the gate expects of it.

The node is observed by `playbooks/library/node_profile.py` on itself: after its changes, and again after a reboot.
"""

from enum import StrEnum

from msgspec import Struct

from steps.contract.play import Played


class ItemStatus(StrEnum):
    """State of one item of the profile. `differs`: read only, and not as wanted. `unavailable`: this machine has no such thing."""

    OK = "ok"
    CHANGED = "changed"
    DIFFERS = "differs"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"


class Item(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item of the profile: `name` is its kind and its object, e.g. `sysctl vm.max_map_count`."""

    name: str
    status: ItemStatus
    want: str = ""
    before: str = ""
    after: str = ""
    why: str = ""


class Disk(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Space of the file system that holds `path`, in MiB."""

    path: str
    free_mib: int
    total_mib: int


class Clock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The node's clock: `epoch` is its UTC time when read, `after_seconds` after the module had begun; `offset_seconds` is what its
    time service says, None where it cannot."""

    epoch: float
    after_seconds: float = 0.0
    service: str = ""
    synchronized: bool | None = None
    offset_seconds: float | None = None


class Facts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`init` is `systemd` or `none`; driver and fabric manager are versions, empty where absent (gpu_stack §9 P05).

    `gpu_machine`: the plan counts it among the machines with GPUs, so that it got their part of the profile; None where not told.
    `rebooted_from` is the boot id before the reboot that the play asked for, empty where it asked for none. `reboot_reasons` are
    what a reboot is still waited for, and `rke2_running` whether RKE2 runs there meanwhile, so that it was not rebooted.
    `disks_used`: RKE2 is set up there, and a disk has less free than a first bring-up asks for.
    `fabric_states` are those of the GPUs in the NVLink fabric, each once: `Completed` with the error, where it ended with one.
    `nvidia_driver` is the one that runs, which may be a container's; `driver_installed`: a driver lies on the host itself, loaded
    or not; None where nothing told.
    `nvidia_smi_hangs`: it did not end in time, so that nothing is known of these.
    `nic_firmware` has board and firmware of every RDMA device. `cgroup` is v1 or v2, the version of the kernel's control groups,
    empty where nothing told. `selinux` is its mode, `none` where the machine has no SELinux, and empty where nothing told.
    What a gate relies on has no default where "not told" would read as good.
    """

    os_id: str
    os_version: str
    kernel: str
    architecture: str
    python: str
    clock: Clock
    machine_id: str
    gpus: int
    nvswitches: int
    nouveau_loaded: bool
    init: str = "none"
    hostname: str = ""
    boot_id: str = ""
    rebooted_from: str = ""
    cmdline: str = ""
    product: str = ""
    bios: str = ""
    gpu_machine: bool | None = None
    cpu_model: str = ""
    cpus: int = 0
    memory_mib: int = 0
    swap_mib: int = 0
    memlock: str = ""
    nvidia_driver: str = ""
    driver_installed: bool | None = None
    fabric_manager: str = ""
    fabric_manager_active: bool = False
    fabric_states: tuple[str, ...] = ()
    nvidia_smi_hangs: bool = False
    nic_firmware: tuple[str, ...] = ()
    cgroup: str = ""
    selinux: str = ""
    apparmor: str = ""
    reboot_required: bool = False
    reboot_reasons: tuple[str, ...] = ()
    rke2_running: bool = False
    disks_used: bool = False
    disks: tuple[Disk, ...] = ()


class NodeObservation(Played, frozen=True, kw_only=True, omit_defaults=True):
    """One node after the play: how the play ended there, and what it showed.

    `skew_seconds` is the least difference between its clock and the controller's that explains the reading; None where not known.
    """

    items: tuple[Item, ...] = ()
    facts: Facts | None = None
    skew_seconds: float | None = None


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All nodes that a play returned."""

    nodes: tuple[NodeObservation, ...]


class FleetNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node with what is compared over the whole fleet."""

    node: str
    facts: Facts | None = None


class FleetObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The nodes of all shards."""

    nodes: tuple[FleetNode, ...]


class Expectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the gate wants of every node.

    `nodes` are all that must have a record. `items` are shell patterns, each of which must match at least one observed item;
    `gpu_items` are further ones on machines with GPUs.
    `tolerate` are patterns of items that may be `unavailable`. `systems` are `ID VERSION` patterns (`debian 12`, `ubuntu 2*`);
    empty means any. `kernel` is the start of `uname -r`.
    `selinux` is the mode that the plan counts on, empty where it counts on none that enforces. `clock_synchronized`: the time
    service must say so.
    `cgroup_v2`: kubelets of the plan do not start with version 1 of control groups.
    `driver_on_host` is the opposite of the GPU Operator's `driver.enabled`; None where no GPU Operator is planned.
    `same` are facts that must be equal on all nodes; differing others are noted only. Disk space is in MiB.
    """

    nodes: tuple[str, ...]
    items: tuple[str, ...] = ()
    gpu_items: tuple[str, ...] = ()
    tolerate: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    kernel: str = ""
    python_min: str = "3.9"
    swap_off: bool = True
    clock_offset_seconds: float = 0.5
    clock_synchronized: bool = False
    selinux: str = ""
    cgroup_v2: bool = False
    driver_on_host: bool | None = None
    disk_free_mib: dict[str, int] = {}
    same: tuple[str, ...] = ("architecture",)
