"""Types of stage os_prep: the observation of a prepared machine, and the expectation of its gates.

The Ansible module `playbooks/library/node_profile.py` reads the machine on which it runs: after its changes, and again after a
reboot.
"""

from enum import StrEnum

from msgspec import Struct

from steps.contract.host_play import Played


class ItemStatus(StrEnum):
    """Result of one host setting of the OS profile.

    `differs`: not as wanted, in a run that only reads. `unavailable`: the machine does not have the thing that is set.
    """

    OK = "ok"
    CHANGED = "changed"
    DIFFERS = "differs"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"


class Item(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of one host setting, as node_profile reports it. `name` is its kind and its object: `sysctl vm.max_map_count`."""

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


class NodeClock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The node's clock. `epoch` is its UTC time in seconds, read `after_seconds` after the Ansible module began.

    `offset_seconds` is the offset that its time service reports; None if it reports none.
    """

    epoch: float
    after_seconds: float = 0.0
    service: str = ""
    synchronized: bool | None = None
    offset_seconds: float | None = None


class NvidiaSmi(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer of the host's `nvidia-smi -q`: its exit code, and the GPUs that it lists (None if it does not say).

    `text` are its complaints on either stream; an exit code of 0 does not rule them out.
    """

    exit_code: int
    gpus: int | None = None
    text: str = ""


class Facts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts of one machine, read by the Ansible module node_profile at the end of the play.

    `init` is `systemd` or `none`. Driver and fabric manager are versions, empty if absent. `gpu_machine`: the plan counts the
    machine among those with GPUs, so it got their part of the profile; None if unknown. `rebooted_from` is the boot id before the
    reboot that the play asked for; empty if it asked for none. `reboot_reasons` are pending reasons for a reboot, and
    `rke2_running` says that RKE2 runs, so that the node was not rebooted. `disks_used`: RKE2 is set up there, and a disk has less
    free space than a first bring-up asks for. `fabric_states` are the states of the GPUs in the NVLink fabric, each once;
    `Completed` is followed by the error if there was one. `nvidia_driver` is the running driver, which may be a container's.
    `driver_flavour` is that of its kernel module, `open` or `proprietary`. `driver_installed`: a driver is installed on the host
    itself, loaded or not; None if unknown. `nvidia_smi_hangs`: nvidia-smi did not end in time, so facts about GPUs are missing.
    `nvidia_smi` is its answer; None if no driver is loaded, or if the host lacks nvidia-smi. `secure_boot` is UEFI's setting, and
    `signed_modules_only` says that the kernel loads no module without a signature that it knows; both are None if unknown.
    `gpus` is the number of GPUs on the PCI bus, where bridges such as NVSwitches are none, and `gpu_devices` has the device id of
    each. `nic_firmware` has board and firmware of every RDMA device. `cgroup` is v1 or v2, the version of the kernel's control
    groups; empty if unknown. `selinux` is its mode, `none` without SELinux, empty if unknown. Fields without a default are those
    whose absence would read as good.
    """

    os_id: str
    os_version: str
    kernel: str
    architecture: str
    python: str
    clock: NodeClock
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
    gpu_devices: tuple[str, ...] = ()
    cpu_model: str = ""
    cpus: int = 0
    memory_mib: int = 0
    swap_mib: int = 0
    memlock: str = ""
    nvidia_driver: str = ""
    driver_flavour: str = ""
    driver_installed: bool | None = None
    fabric_manager: str = ""
    fabric_manager_active: bool = False
    fabric_states: tuple[str, ...] = ()
    nvidia_smi_hangs: bool = False
    nvidia_smi: NvidiaSmi | None = None
    secure_boot: bool | None = None
    signed_modules_only: bool | None = None
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
    """Observation of one node after a play of os_prep: how the play ended there, its host settings (`items`) and its facts.

    `skew_seconds` is the least difference between its clock and the controller's that explains the reading; None if unknown.
    """

    items: tuple[Item, ...] = ()
    facts: Facts | None = None
    skew_seconds: float | None = None


class NodesObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate os_prep/nodes: one entry for each host of the play."""

    nodes: tuple[NodeObservation, ...]


class FleetNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node with its facts, one entry of an observation of gate os_prep/fleet."""

    node: str
    facts: Facts | None = None


class FleetObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate os_prep/fleet: the nodes of all shards, so that machines can be compared with each other."""

    nodes: tuple[FleetNode, ...]


class PlannedGpus(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """GPUs that the machines of some host groups have in the plan: their number, and that of single machines in `others`.

    `product` is their name in the spec; empty if the spec has a label of its own for them, so that their name says little.
    """

    groups: tuple[str, ...]
    gpus: int
    others: dict[str, int] = {}
    product: str = ""


class NodesExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expectation of the gates os_prep/nodes and os_prep/fleet. Items are host settings of the OS profile.

    `nodes` are all that must have a record. `items` are shell patterns, each of which must match at least one observed item;
    `gpu_items` are further ones for machines with GPUs. `tolerate` are patterns of items that may be `unavailable`. `systems` are
    `ID VERSION` patterns (`debian 12`, `ubuntu 2*`); empty means any. `kernel` is the beginning of `uname -r`. `selinux` is the
    mode that the plan names; empty if it names none that enforces. `clock_synchronized`: the time service must report that it is
    synchronized. `cgroup_v2`: kubelets of the plan do not start with version 1 of control groups. `driver_on_host` is the opposite
    of the GPU Operator's `driver.enabled`; None without a GPU Operator. `built_drivers` are the drivers that
    operators build on GPU machines, as words of a sentence. `same` are facts that must be equal on all nodes.
    `may_differ` are facts of `steps.contract.node_tests.fleet_facts` that may differ between machines of one kind, with the reason;
    other differences are only noted. `pools` are the GPUs of the plan by host group, and `group_of` maps each node to its group.
    `nics_on_host`: the hosts bring the driver of their NICs, so that all show their firmware. Disk
    space is in MiB.
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
    built_drivers: tuple[str, ...] = ()
    disk_free_mib: dict[str, int] = {}
    same: tuple[str, ...] = ("architecture",)
    may_differ: dict[str, str] = {}
    pools: tuple[PlannedGpus, ...] = ()
    group_of: dict[str, str] = {}
    nics_on_host: bool = True
