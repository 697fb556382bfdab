"""Requirements of a real Kubernetes on this machine; each missing one is reported with its remedy."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from kubelab import box

PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setsid": "util-linux",
    "openssl": "openssl",
    "git": "git",
    "redis-check-rdb": "redis-tools",
    "mksquashfs": "squashfs-tools",
    "bwrap": "bubblewrap",
    "zstd": "zstd",
    "cpio": "cpio",
    "sshd": "openssh-server",
    "dnsmasq": "dnsmasq-base",
}
"""Tools and the Debian package that brings each."""

FILES = {"/usr/lib/cni/bridge": "containernetworking-plugins", "/usr/bin/busybox": "busybox-static"}
GO = (1, 26)
"""The newest toolchain that a part's go.mod asks for."""

CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
INSTALL_SECONDS = 600
PROBE_SECONDS = 20


def install() -> None:
    """Install the lacking packages with apt-get; the package lists are refreshed first. Needs root on Debian."""
    lacking = sorted({package for _, package in _lacking()})
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    commands = [["apt-get", "update"]]
    if lacking:
        commands.append(["apt-get", "install", "--yes", "--no-install-recommends", *lacking])
    for command in commands:
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, timeout=INSTALL_SECONDS)


def missing() -> tuple[str, ...]:
    """Why the tier cannot run here, by name; empty if it can."""
    if not Path("/proc/self/ns/net").exists():
        return ("not Linux: a node is made of namespaces and cgroups",)
    if os.geteuid() != 0:
        return ("not root: run as root",)
    tools = [f"{what} is missing: apt-get install {package}" for what, package in _lacking()]
    if tools:
        return tuple(tools)
    return tuple(reason for reason in (_go(), _cgroups(), _address_translation()) if reason)


def _lacking() -> list[tuple[str, str]]:
    tools = [(tool, package) for tool, package in PACKAGES.items() if shutil.which(tool) is None]
    return tools + [(path, package) for path, package in FILES.items() if not Path(path).exists()]


def _go() -> str:
    """The parts are built from source; a machine that got them by a cache needs Go all the same, which names the cache."""
    if shutil.which("go") is None:
        return f"go is missing: install Go {GO[0]}.{GO[1]} or newer from https://go.dev/dl"
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
    found = re.match(r"go(\d+)\.(\d+)", said)
    if found and (int(found[1]), int(found[2])) >= GO:
        return ""
    return f"go is {said}: install Go {GO[0]}.{GO[1]} or newer from https://go.dev/dl"


def _cgroups() -> str:
    unified = box.CGROUPS / "cgroup.controllers"
    here = set(unified.read_text().split()) if unified.exists() else {path.name for path in box.CGROUPS.iterdir()}
    lacking = sorted(set(CONTROLLERS) - here)
    return f"cgroups: the kubelet needs {', '.join(lacking)}; mount them" if lacking else ""


def _address_translation() -> str:
    command = ["unshare", "--net", "iptables", "-t", "nat", "-L", "-n"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    reason = done.stderr.strip()
    return "" if done.returncode == 0 else f"iptables: no address translation in a network namespace; modprobe nf_nat ({reason})"
