"""Requirements of SSH hosts on this machine; each missing one is reported with its remedy."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PACKAGES = {
    "mmdebstrap": "mmdebstrap",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "setsid": "util-linux",
    "dpkg-deb": "dpkg",
    "rpmbuild": "rpm",
    "createrepo_c": "createrepo-c",
    "tinyproxy": "tinyproxy-bin",
    "haproxy": "haproxy",
    "busybox": "busybox-static",
    "dnsmasq": "dnsmasq-base",
    "qemu-system-x86_64": "qemu-system-x86",
}
"""Tools and the Debian package that brings each."""
FUSE = Path("/usr/lib/x86_64-linux-gnu/libfuse3.so.3")

INSTALL = "`python tests/hosts/hosts.py install` installs what is missing"
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
        return ("not Linux: the hosts are network namespaces",)
    # all at once: who becomes root first must not learn only then that packages are missing, too
    lacking = tuple(f"{what} is missing: apt-get install {package}" for what, package in _lacking())
    if os.geteuid() != 0:
        return ("not root: run as root", *lacking)
    if lacking:
        return (*lacking, INSTALL)
    return tuple(reason for reason in (_namespaces(), _overlay()) if reason)


def _lacking() -> list[tuple[str, str]]:
    """Return missing programs and files, each with the package that brings it."""
    search = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # PATH of an ordinary user lacks the folders of system programs
    tools = [(tool, package) for tool, package in PACKAGES.items() if shutil.which(tool, path=search) is None]
    return tools if FUSE.exists() else [*tools, (str(FUSE), "libfuse3-3")]


def _namespaces() -> str:
    command = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork", "ip", "link", "add", "type", "veth"]
    return _tried(
        command, "namespaces: this root may not make network namespaces and veth pairs; run on a machine or VM of your own"
    )


def _overlay() -> str:
    with tempfile.TemporaryDirectory() as folder:
        script = (
            'mount -t tmpfs tmpfs "$1" && cd "$1" && mkdir l u w m && mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w m'
        )
        return _tried(
            ["unshare", "--mount", "sh", "-c", script, "sh", folder],
            "overlayfs: the kernel cannot mount it; modprobe overlay",
        )


def _tried(command: list[str], lack: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    return "" if done.returncode == 0 else f"{lack} ({done.stderr.strip()})"
