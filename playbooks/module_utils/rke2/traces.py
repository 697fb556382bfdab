"""Search for what RKE2 leaves on a host, and its removal: processes, mounts, links, addresses, routes, packet rules, paths, units.

RKE2's own scripts rke2-killall.sh and rke2-uninstall.sh know the same traces, but a half-installed host may lack both scripts.
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

from ansible.module_utils.rke2 import restart_mark, rke2_mounts, rke2_settings, security_rules, site_paths
from ansible.module_utils.rke2.rke2_mounts import DATA

OWN = (
    "/etc/rancher/rke2",
    "/etc/default/rke2-server",
    "/etc/default/rke2-agent",
    "/etc/sysconfig/rke2-server",
    "/etc/sysconfig/rke2-agent",
    DATA,
    "/var/lib/rancher/download",
    restart_mark.PATH,
    "/usr/local/bin/rke2",
    "/usr/local/bin/rke2-killall.sh",
    "/usr/local/bin/rke2-uninstall.sh",
    "/usr/local/share/rke2",
    "/opt/rke2",
    security_rules.RULES,
)
"""Paths that only RKE2 creates, or bringup for RKE2."""
PACKAGED = ("/usr/bin/rke2", "/usr/bin/rke2-killall.sh", "/usr/bin/rke2-uninstall.sh")
"""Files of packages. They count as traces; RKE2's script removes them with their packages."""
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
"""Paths that any Kubernetes may have. They count as RKE2's only if RKE2 is on the host, or was when the reset began."""
UNIT_FOLDERS = ("/usr/local/lib/systemd/system", "/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
UNITS = ("rke2-server.service", "rke2-agent.service")
LINKS = re.compile(r"cni0|flannel[.-].*|kube-ipvs0|kube-bridge|vxlan\.calico|vxlan-v6\.calico|cilium_.*|cali[0-9a-f]+|lxc[0-9a-f]+")
PROGRAMS = (DATA + "/", "/usr/local/bin/rke2", "/usr/bin/rke2", "/opt/rke2/")
RULE = re.compile(r"KUBE-|CNI-|cali[-:]|CILIUM_|FLANNEL-|flannel")
"""Names of chains and rules of kube-proxy, the CNI plugins, Calico, Cilium and flannel, as in rke2-killall.sh."""
TABLES = re.compile(r"table (\S+) (kube-proxy\S*|flannel-\S+|calico\S*|cni_\S+)")
FILTERS = ("iptables", "ip6tables")
TABLE_NAMES = ("/proc/net/ip_tables_names", "/proc/net/ip6_tables_names")
NF_TABLES = re.compile(r" nf_tables_|\[nf_tables\]")
TRIES = 40


def programs() -> str:
    """Return the search path for tools: that of a root login, and the folders with tools that RKE2 brings."""
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:" + ":".join(glob.glob(DATA + "/data/*/bin/aux"))


def run(command: list, text: str = "") -> tuple:
    """Return exit code and standard output of a command; 127 if the tool is missing."""
    tool = shutil.which(command[0], path=programs())
    if tool is None:
        return 127, ""
    done = subprocess.run([tool, *command[1:]], input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def find(force: bool, virtual: str = "", pods: str = "") -> tuple:
    """Return kind → RKE2's traces of that kind, and kind → how many things were examined; 0: the kind could not be examined.

    On a host with nothing that is RKE2's alone, no trace counts unless `force` is set, because it may be another Kubernetes'.
    `virtual` is the cluster's virtual IP address on servers, `pods` the pod network.
    """
    rules, ways = packet_rules()
    units, unit_count = find_units()
    present, address_count = addresses(virtual)
    dropping, route_count = routes(pods)
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    targets = site_paths.targets()
    links = sorted(os.listdir("/sys/class/net")) if os.path.isdir("/sys/class/net") else []
    kept = [target for target in targets if target in rke2_mounts.SITE_DISKS] + list(site_paths.links())
    ours = [path for path in OWN + PACKAGED if rke2_mounts.has_content(path, kept)] + glob.glob("/usr/local/share/rke2-*")
    started = processes(pids)
    known = force or ours or units or os.path.exists(site_paths.MARK) or any(name.startswith(PROGRAMS) for name in started.values())
    left = {
        "processes": ["%d %s" % (pid, name) for pid, name in sorted(started.items())],
        "mounts": sorted(target for target in targets if rke2_mounts.is_of_pods(target) and target not in kept),
        "links": [link for link in links if LINKS.fullmatch(link)],
        "addresses": present,
        "routes": dropping,
        "rules": rules,
        "paths": sorted(ours + [path for path in SHARED if rke2_mounts.has_content(path, kept)]),
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
    """Return pid → program for those pids that are RKE2's own processes or run in its pods."""
    programs_by_pid = {}
    for pid in pids:
        try:
            with open("/proc/%d/cgroup" % pid) as source:
                group = source.read()
            # the kernel adds " (deleted)" if the program's file was replaced or removed (proc(5))
            program = site_paths.canonical(os.readlink("/proc/%d/exe" % pid).replace(" (deleted)", ""))
        except OSError:
            continue  # a kernel thread, or gone
        if program.startswith(PROGRAMS) or "/kubepods" in group or "/rke2-" in group:
            programs_by_pid[pid] = program
    return programs_by_pid


def packet_rules() -> tuple:
    """Return the iptables and nft rules of kube-proxy and network plugins, and how many of three tools could list rules."""
    rules, ways = [], 0
    for tool in FILTERS:
        code, output = run([tool + "-save"])
        if code == 0:
            ways += 1
            rules += ["%s %s" % (tool, line) for line in output.splitlines() if line[:1] in ":-" and RULE.search(line)]
    code, output = run(["nft", "list", "tables"])
    if code == 0:
        ways += 1
        rules += ["nft %s %s" % table for table in TABLES.findall(output)]
    if ways == 0 and has_no_filters():
        ways = 1  # a kernel without packet filters has no rules
    return rules, ways


def has_no_filters(root: str = "") -> bool:
    """Return True if the running kernel certainly has no packet filters; False also if the kernel hides its symbols.

    Without them it has neither iptables' older tables nor nf_tables, whose symbols show in kallsyms (proc(5)) both as a module and
    built in.
    """
    if any(os.path.exists(root + path) for path in TABLE_NAMES):
        return False
    try:
        with open(root + "/proc/kallsyms", errors="replace") as source:
            symbols = [NF_TABLES.search(line) for line in source]
    except OSError:
        return False
    return bool(symbols) and not any(symbols)


def addresses(virtual: str) -> tuple:
    """Return the cluster's virtual address, as `ADDRESS on INTERFACE`, if this host has it, and how many addresses were examined.

    A killed kube-vip leaves the address. Without a `virtual` address the result is an empty list and 1.
    """
    if not virtual:
        return [], 1  # there is none to look for
    wanted = str(ipaddress.ip_address(virtual))
    rows = [line.split() for line in run(["ip", "-oneline", "address", "show"])[1].splitlines()]
    matching = [row for row in rows if row[3:4] and row[3] in (wanted + "/32", wanted + "/128")]
    return ["%s on %s" % (row[3], row[1].partition("@")[0]) for row in matching], len(rows)


def routes(pods: str) -> tuple:
    """Return the networks of blackhole routes to parts of the pod network, and how many routes were examined.

    Canal's flannel (--ip-blackhole-route) and Calico make one for the node's own part. It is on no link, and that part may be
    another node's after a new bring-up.
    """
    if not pods:
        return [], 1  # there are none to look for
    network = ipaddress.IPv4Network(pods)
    code, output = run(["ip", "-oneline", "-4", "route", "show"])[:2]
    rows = [line.split() for line in output.splitlines()]
    dropped = [ipaddress.IPv4Network(row[1]) for row in rows if row[0] == "blackhole" and row[1] != "default"]
    return [str(part) for part in dropped if part != network and part.subnet_of(network)], len(rows) + (code == 0)


def remove_routes(blackholes: list) -> None:
    """Delete the blackhole routes that `routes` returned."""
    for route in blackholes:
        run(["ip", "-4", "route", "delete", "blackhole", route])


def remove_addresses(entries: list) -> None:
    """Delete the addresses that `addresses` returned from their interfaces."""
    for entry in entries:
        address, _, link = entry.partition(" on ")
        run(["ip", "address", "delete", address, "dev", link])


def find_units() -> tuple:
    """Return the paths of RKE2's unit files and links to them, and how many unit files were examined."""
    number = sum(len(os.listdir(folder)) for folder in UNIT_FOLDERS if os.path.isdir(folder))
    # the other folders belong to packages, which RKE2's script removes
    places = [os.path.join(folder, unit) for folder in UNIT_FOLDERS[:2] for unit in UNITS]
    links = [path for unit in UNITS for path in glob.glob("/etc/systemd/system/*.wants/" + unit)]
    return sorted(path for path in places + links if os.path.lexists(path)), number


def remove(left: dict) -> None:
    """Remove the traces that `find` returned, dependents first. Failures are ignored, because a new `find` shows what remains."""
    for unit in left["units"]:
        run(["systemctl", "disable", "--now", os.path.basename(unit)])
    stop_and_unmount(left)
    for path in glob.glob("/run/netns/cni-*"):
        run(["ip", "netns", "delete", os.path.basename(path)])
    for link in left["links"]:
        run(["ip", "link", "delete", link])
    remove_addresses(left["addresses"])
    remove_routes(left["routes"])
    remove_rules(left["rules"])
    for path in left["units"] + [path for path in left["paths"] if path not in PACKAGED]:
        delete(path)
    if security_rules.RULES in left["paths"]:
        run(["fagenrules", "--load"])
        run(["systemctl", "try-restart", "fapolicyd"])
    if left["units"]:
        run(["systemctl", "daemon-reload"])
        run(["systemctl", "reset-failed", *UNITS])


def stop_and_unmount(left: dict) -> None:
    """Stop RKE2's units, kill its processes, and unmount the mounts that `find` returned."""
    run(["systemctl", "stop", *UNITS])
    kill(left["processes"])
    for target in reversed(left["mounts"]):  # inner ones first
        unmount(target)


def unmount(target: str) -> None:
    """Unmount a mount point lazily; mounts that a driver container shares with the host are made private first."""
    # below a driver container's root shared folders are the host's, which would be unmounted too unless the root is made private
    root = rke2_mounts.driver_root(target)
    if not root or run(["mount", "--make-rprivate", root])[0] == 0:
        run(["umount", "--lazy", target])


def kill(lines: list) -> None:
    """Kill the processes that `find` returned and wait up to 2 s until they are gone."""
    pids = [int(line.split()[0]) for line in lines]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for _ in range(TRIES):
        if not processes([pid for pid in pids if os.path.exists("/proc/%d" % pid)]):
            return
        time.sleep(0.05)


def remove_rules(rules: list) -> None:
    """Remove RKE2's chains and rules: iptables' tables are restored without them, nft tables are deleted whole."""
    for tool in FILTERS:
        if any(rule.startswith(tool + " ") for rule in rules):
            _, output = run([tool + "-save"])
            kept = [line for line in output.splitlines() if not (line[:1] in ":-" and RULE.search(line))]
            # like rke2-killall.sh: a chain cannot be deleted while a rule of another one jumps to it
            run([tool + "-restore"], text="\n".join(kept) + "\n")
    for rule in rules:
        if rule.startswith("nft "):
            run(["nft", "delete", "table", *rule.split()[1:3]])


def delete(path: str) -> None:
    """Remove a path unless a mount other than RKE2's disks lies below it. Disks and links of the site stay and are emptied."""
    mounted = site_paths.targets()
    if not rke2_mounts.foreign_mounts(path, mounted):
        rke2_mounts.remove_content(path, mounted + list(site_paths.links()))


def joined_server(config: str = rke2_settings.CONFIG) -> str:
    """Return the host of the URL in RKE2's setting `server`, which this host joins; empty if it joins none."""
    match = re.match(r"https://(?:\[([^\]]+)\]|([^:/\s]+)):\d+", rke2_settings.effective_value("server", config))
    return match.group(1) or match.group(2) if match else ""


CILIUM_PINS = ("/sys/fs/bpf/cilium/*", "/sys/fs/bpf/tc/globals/cilium_*", "/run/cilium/bpffs/*/*")
"""Pins of Cilium's programs and their shared maps: since 1.14, in all versions, and where /sys/fs/bpf is no BPF file system."""


def has_cilium_programs(root: str = "") -> bool:
    """Return True if BPF programs of a removed Cilium are still in the kernel, by their pins.

    Removing the pins is not enough: programs that older kernels attach without a link stay, and redirect traffic for Services of
    the old cluster (cilium/cilium#17292). A reboot ends all of them.
    """
    return any(glob.glob(root + pattern) for pattern in CILIUM_PINS)
