"""The items of OS prep that every row of `os_prep.py` settles, once, as data; each peer's list is written from it.

Equal in intent, not byte by byte. Where the lists differ is said in `DIFFERENCES`, which the benchmark prints.
"""

FILES = {
    "/etc/modules-load.d/90-bringup.conf": "# Made by bringup.\noverlay\nbr_netfilter\nnf_conntrack\n",
    "/etc/modprobe.d/90-bringup.conf": "# Made by bringup.\nblacklist nouveau\noptions nouveau modeset=0\n",
    "/etc/sysctl.d/zz-bringup.conf": "# Made by bringup.\n@SYSCTLS@",
    "/etc/security/limits.d/90-bringup.conf": "# Made by bringup.\n"
    + "".join(f"{who} {kind} memlock unlimited\n" for who in ("*", "root") for kind in ("soft", "hard")),
    "/etc/systemd/system.conf.d/90-bringup.conf": "# Made by bringup.\n[Manager]\nDefaultLimitMEMLOCK=infinity\n",
}
"""Path → content. A change of the last one asks for `systemctl daemon-reexec`."""

REEXEC = "/etc/systemd/system.conf.d/90-bringup.conf"

SYSCTLS = {
    "fs.inotify.max_user_instances": "8192",
    "fs.inotify.max_user_watches": "1048576",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "net.bridge.bridge-nf-call-ip6tables": "1",
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.ipv4.ip_forward": "1",
    "vm.max_map_count": "262144",
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
}
"""Values of the running kernel; one that this kernel lacks is passed over by every row."""

DIRECTORIES = ("/etc/rancher/rke2", "/var/lib/rancher")
MODULES = ("overlay", "br_netfilter", "nf_conntrack")
BLACKLIST = ("nouveau",)
STOPPED = ("firewalld.service", "ufw.service", "nm-cloud-setup.service", "nm-cloud-setup.timer")
MASKED = ("swap.target",)
PACKAGES = (
    "apparmor",
    "ca-certificates",
    "chrony",
    "conntrack",
    "curl",
    "ethtool",
    "iproute2",
    "iptables",
    "kmod",
    "pciutils",
    "socat",
)
"""There before the first row: every row asks for them, none installs one."""

TIME_SERVICE = "chrony.service"
DISK = ("/var/lib/rancher", 100)
"""Path and the MiB that must be free."""
DEFAULT_ROUTE = "default route"
"""Looked for and never set: RKE2 needs one."""

DIFFERENCES = (
    "ours reads every item again after a change, and gathers facts for the gate; the peers do neither",
    "ours reports each item's before and after; the peers report a changed or ok for each of their tasks",
    "ours keeps fs.inotify.* and vm.max_map_count where a host has more; the peers set every host to the profile's value",
    "the peers set all sysctls with one command, and look after all kernel modules with one: fewer round trips than item by item",
)

HIDDEN = (
    "hosts and controller share this machine's cores: what hosts do side by side elsewhere (logins, Python, systemd) adds up here; "
    "wall times are sums, their ratios say less than on a cluster, and controller CPU is the figure that carries over"
)
"""Caveat printed with the results: figures that shared cores distort, and the one that carries over to a cluster."""


def files() -> dict[str, str]:
    """Path → content, with the sysctls in their file."""
    lines = "".join(f"{key} = {value}\n" for key, value in SYSCTLS.items())
    return {path: content.replace("@SYSCTLS@", lines) for path, content in FILES.items()}


def names() -> frozenset[str]:
    """The items by the names that our module gives them."""
    return frozenset(
        {f"package {name}" for name in PACKAGES}
        | {f"file {path}" for path in FILES}
        | {f"directory {path}" for path in DIRECTORIES}
        | {f"sysctl {key}" for key in SYSCTLS}
        | {f"module {name}" for name in (*MODULES, *BLACKLIST)}
        | {f"service {name}" for name in (*STOPPED, *MASKED)}
        | {"hostname", "hosts", "swap now", "swap /etc/fstab", "time service", f"disk {DISK[0]}", DEFAULT_ROUTE}
    )
