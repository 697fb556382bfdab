"""What an RKE2 leaves on a host: processes, mounts, links, addresses, routes, packet filter rules, paths and
units; and how each is taken away.

rke2-killall.sh and rke2-uninstall.sh know the same things (peers §4), but a host that was set up by half may lack both scripts.
"""

from __future__ import annotations

import contextlib
import glob
import ipaddress
import os
import re
import shutil
import signal
import subprocess
import time

from ansible.module_utils.rke2 import guards, mounts, pending, places, settings
from ansible.module_utils.rke2.mounts import DATA

OWN = (
    "/etc/rancher/rke2",
    "/etc/default/rke2-server",
    "/etc/default/rke2-agent",
    "/etc/sysconfig/rke2-server",
    "/etc/sysconfig/rke2-agent",
    DATA,
    "/var/lib/rancher/download",
    pending.PATH,
    "/usr/local/bin/rke2",
    "/usr/local/bin/rke2-killall.sh",
    "/usr/local/bin/rke2-uninstall.sh",
    "/usr/local/share/rke2",
    "/opt/rke2",
    guards.RULES,
)
"""Paths that nobody but RKE2, and we for it, makes."""
PACKAGED = ("/usr/bin/rke2", "/usr/bin/rke2-killall.sh", "/usr/bin/rke2-uninstall.sh")
"""What packages brought: they count, and go with their packages, which RKE2's own script removes."""
SHARED = (
    "/etc/rancher/node",
    "/run/k3s",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/etc/cni",
    "/opt/cni/bin",
    "/run/flannel",
    "/run/calico",
    "/run/cilium",
    "/run/nodeagent",
    "/var/lib/calico",
    "/var/log/calico",
    "/var/log/pods",
    "/var/log/containers",
    "/run/nvidia/validations",
)
"""What another Kubernetes would have too, like most of the mounts, links and rules: RKE2's only where one is, or was when the reset
began."""
UNIT_FOLDERS = ("/usr/local/lib/systemd/system", "/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
UNITS = ("rke2-server.service", "rke2-agent.service")
LINKS = re.compile(r"cni0|flannel[.-].*|kube-ipvs0|kube-bridge|vxlan\.calico|vxlan-v6\.calico|cilium_.*|cali[0-9a-f]+|lxc[0-9a-f]+")
PROGRAMS = (DATA + "/", "/usr/local/bin/rke2", "/usr/bin/rke2", "/opt/rke2/")
RULE = re.compile(r"KUBE-|CNI-|cali[-:]|CILIUM_|FLANNEL-|flannel")
"""What chains and rules of kube-proxy, the CNI plugins, Calico, Cilium and flannel are called, as rke2-killall.sh has it."""
TABLES = re.compile(r"table (\S+) (kube-proxy\S*|flannel-\S+|calico\S*|cni_\S+)")
FILTERS = ("iptables", "ip6tables")
TABLE_NAMES = ("/proc/net/ip_tables_names", "/proc/net/ip6_tables_names")
NF_TABLES = re.compile(r" nf_tables_|\[nf_tables\]")
TRIES = 40


def programs() -> str:
    """Where tools lie that a login shell of root would find."""
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:" + ":".join(glob.glob(DATA + "/data/*/bin/aux"))


def run(command: list, text: str = "") -> tuple:
    """Exit code and standard output; 127 where there is no such tool."""
    tool = shutil.which(command[0], path=programs())
    if tool is None:
        return 127, ""
    done = subprocess.run([tool, *command[1:]], input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def find(force: bool, virtual: str = "", pods: str = "") -> tuple:
    """What is left by kind, and how many things of each kind were looked at; 0 means that nobody could look.

    On a host without anything that is RKE2's alone nothing counts, unless forced: it may be another Kubernetes'. `virtual` is the
    address that servers hold themselves, `pods` the network of pods.
    """
    rules, ways = packet_rules()
    units, unit_count = find_units()
    held, address_count = addresses(virtual)
    dropping, route_count = routes(pods)
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    targets = places.targets()
    links = sorted(os.listdir("/sys/class/net")) if os.path.isdir("/sys/class/net") else []
    kept = [target for target in targets if target in mounts.PLACES] + list(places.links())
    ours = [path for path in OWN + PACKAGED if mounts.holds(path, kept)] + glob.glob("/usr/local/share/rke2-*")
    started = processes(pids)
    known = force or ours or units or os.path.exists(places.MARK) or any(name.startswith(PROGRAMS) for name in started.values())
    left = {
        "processes": ["%d %s" % (pid, name) for pid, name in sorted(started.items())],
        "mounts": sorted(one for one in targets if mounts.of_pods(one) and one not in kept),
        "links": [link for link in links if LINKS.fullmatch(link)],
        "addresses": held,
        "routes": dropping,
        "rules": rules,
        "paths": sorted(ours + [path for path in SHARED if mounts.holds(path, kept)]),
        "units": units,
    }
    looked = {
        "processes": len(pids),
        "mounts": len(targets),
        "links": len(links),
        "addresses": address_count,
        "routes": route_count,
        "rules": ways,
        "paths": len(OWN + PACKAGED + SHARED),
        "units": unit_count,
    }
    return left if known else {kind: [] for kind in left}, looked


def processes(pids: list) -> dict:
    """Pid → program of those that RKE2 started, and of those that run in its pods."""
    found = {}
    for pid in pids:
        try:
            with open("/proc/%d/cgroup" % pid) as source:
                group = source.read()
            program = places.canonical(os.readlink("/proc/%d/exe" % pid).replace(" (deleted)", ""))
        except OSError:
            continue  # a kernel thread, or gone
        if program.startswith(PROGRAMS) or "/kubepods" in group or "/rke2-" in group:
            found[pid] = program
    return found


def packet_rules() -> tuple:
    """Chains, rules and tables of RKE2's parts, and how many ways of asking answered."""
    found, ways = [], 0
    for tool in FILTERS:
        code, said = run([tool + "-save"])
        if code == 0:
            ways += 1
            found += ["%s %s" % (tool, line) for line in said.splitlines() if line[:1] in ":-" and RULE.search(line)]
    code, said = run(["nft", "list", "tables"])
    if code == 0:
        ways += 1
        found += ["nft %s %s" % one for one in TABLES.findall(said)]
    if ways == 0 and has_no_filters():
        ways = 1  # a kernel without packet filters has no rules
    return found, ways


def has_no_filters(root: str = "") -> bool:
    """Whether the running kernel surely has no packet filters: neither tables of the older kind, nor nf_tables, which shows in the
    kernel's symbols alone (proc(5), kallsyms), as a module and built in. A kernel that hides its symbols says nothing."""
    if any(os.path.exists(root + path) for path in TABLE_NAMES):
        return False
    try:
        with open(root + "/proc/kallsyms", errors="replace") as source:
            symbols = [NF_TABLES.search(line) for line in source]
    except OSError:
        return False
    return bool(symbols) and not any(symbols)


def addresses(virtual: str) -> tuple:
    """The virtual address where this host has it, and how many were looked at. A kube-vip that is killed leaves it, and two hosts
    would answer there once a cluster is built anew."""
    if not virtual:
        return [], 1  # there is none to look for
    wanted = str(ipaddress.ip_address(virtual))
    rows = [line.split() for line in run(["ip", "-oneline", "address", "show"])[1].splitlines()]
    held = [row for row in rows if row[3:4] and row[3] in (wanted + "/32", wanted + "/128")]
    return ["%s on %s" % (row[3], row[1].partition("@")[0]) for row in held], len(rows)


def routes(pods: str) -> tuple:
    """Routes that drop what goes to a part of the pods' network, and how many were looked at. flannel of Canal
    (--ip-blackhole-route) and Calico make one for the node's own part; it is on no link, and that part may be another node's once
    a cluster is built anew."""
    if not pods:
        return [], 1  # there are none to look for
    network = ipaddress.IPv4Network(pods)
    code, said = run(["ip", "-oneline", "-4", "route", "show"])[:2]
    rows = [line.split() for line in said.splitlines()]
    dropped = [ipaddress.IPv4Network(row[1]) for row in rows if row[0] == "blackhole" and row[1] != "default"]
    return [str(one) for one in dropped if one != network and one.subnet_of(network)], len(rows) + (code == 0)


def unroute(found: list) -> None:
    """Remove routes as `routes` tells them."""
    for route in found:
        run(["ip", "-4", "route", "delete", "blackhole", route])


def let_go(held: list) -> None:
    """Remove addresses as `addresses` tells them."""
    for one in held:
        address, _, link = one.partition(" on ")
        run(["ip", "address", "delete", address, "dev", link])


def find_units() -> tuple:
    """Unit files of ours, and how many there are at all."""
    count = sum(len(os.listdir(folder)) for folder in UNIT_FOLDERS if os.path.isdir(folder))
    places = [os.path.join(folder, unit) for folder in UNIT_FOLDERS[:2] for unit in UNITS]
    links = [path for unit in UNITS for path in glob.glob("/etc/systemd/system/*.wants/" + unit)]
    return sorted(path for path in places + links if os.path.lexists(path)), count


def remove(left: dict) -> None:
    """Take away what `find` found, in the order in which the one holds the other. What does not go is found again."""
    for unit in left["units"]:
        run(["systemctl", "disable", "--now", os.path.basename(unit)])
    part(left)
    for name in netns():
        run(["ip", "netns", "delete", name])
    for link in left["links"]:
        run(["ip", "link", "delete", link])
    let_go(left["addresses"])
    unroute(left["routes"])
    remove_rules(left["rules"])
    for path in left["units"] + [path for path in left["paths"] if path not in PACKAGED]:
        delete(path)
    if guards.RULES in left["paths"]:
        run(["fagenrules", "--load"])
        run(["systemctl", "try-restart", "fapolicyd"])
    if left["units"]:
        run(["systemctl", "daemon-reload"])
        run(["systemctl", "reset-failed", *UNITS])


def part(left: dict) -> None:
    """End what still runs, and unmount what Kubernetes or the site has mounted, but for the site's disks."""
    run(["systemctl", "stop", *UNITS])
    kill(left["processes"])
    for target in reversed(left["mounts"]):
        unmount(target)


def unmount(target: str) -> None:
    """Unmount; below a driver container's root only what is there. That root holds folders of the host too, and what is unmounted
    in a shared one of them would be unmounted where the host has it."""
    root = mounts.driver_root(target)
    if not root or run(["mount", "--make-rprivate", root])[0] == 0:
        run(["umount", "--lazy", target])


def netns() -> list:
    """Network namespaces of pods."""
    return [os.path.basename(path) for path in glob.glob("/run/netns/cni-*")]


def kill(lines: list) -> None:
    """End processes for good, and wait until they are gone."""
    pids = [int(line.split()[0]) for line in lines]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for _ in range(TRIES):
        if not processes([pid for pid in pids if os.path.exists("/proc/%d" % pid)]):
            return
        time.sleep(0.05)


def remove_rules(rules: list) -> None:
    """Write the tables back without our chains and rules; tables of nft go whole."""
    for tool in FILTERS:
        if any(rule.startswith(tool + " ") for rule in rules):
            _, said = run([tool + "-save"])
            kept = [line for line in said.splitlines() if not (line[:1] in ":-" and RULE.search(line))]
            run([tool + "-restore"], text="\n".join(kept) + "\n")
    for rule in rules:
        if rule.startswith("nft "):
            run(["nft", "delete", "table", *rule.split()[1:3]])


def delete(path: str) -> None:
    """Remove a path, but nothing through a mount that is still there; disks and links of the site stay, and are emptied."""
    mounted = places.targets()
    if not mounts.foreign(path, mounted):
        mounts.clear(path, mounted + list(places.links()))


def joins(config: str = settings.CONFIG) -> str:
    """The address of the server that this host's configuration joins; empty where it joins none."""
    found = re.match(r"https://(?:\[([^\]]+)\]|([^:/\s]+)):\d+", settings.find("server", config))
    return found.group(1) or found.group(2) if found else ""
