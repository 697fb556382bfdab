"""Checks of `bringup doctor`: what each kind of use (rehearsal, real hosts, node images, tests) needs on this machine."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from steps.errors import BadTask
from steps.nodeimage.containment import id_ranges
from workflows.engines.folders import NoStateFolder, StateFolder
from workflows.rehearsal import loopback

REHEARSAL, RUN, IMAGES, HOSTS, CLUSTER = "rehearsal", "run on real hosts", "node images", "host tests", "cluster tests"
_OLDEST_PYTHON = (3, 11)
_PACKAGES = ("hera", "kubernetes", "ansible_runner", "yaml", "tenacity", "aiohttp")
_PROGRAMS = {
    RUN: {"ssh": "apt-get install openssh-client", "ssh-keygen": "apt-get install openssh-client"},
    IMAGES: {
        "apt-get": "build on Debian or Ubuntu",
        "mksquashfs": "apt-get install squashfs-tools",
        "bwrap": "apt-get install bubblewrap",
        "qemu-system-x86_64": "apt-get install qemu-system-x86 ovmf ipxe-qemu",
        "zstd": "apt-get install zstd",
        "cpio": "apt-get install cpio",
    },
    # those of `tests/hosts/hostlab/needs.py`, which `tests/hosts/hosts.py install` installs
    HOSTS: {
        "mmdebstrap": "apt-get install mmdebstrap",
        "ssh": "apt-get install openssh-client",
        "ssh-keygen": "apt-get install openssh-client",
        "ip": "apt-get install iproute2",
        "unshare": "apt-get install util-linux",
        "nsenter": "apt-get install util-linux",
        "setpriv": "apt-get install util-linux",
        "setsid": "apt-get install util-linux",
        "dpkg-deb": "apt-get install dpkg",
        "rpmbuild": "apt-get install rpm",
        "createrepo_c": "apt-get install createrepo-c",
        "tinyproxy": "apt-get install tinyproxy-bin",
        "haproxy": "apt-get install haproxy",
        "busybox": "apt-get install busybox-static",
        "dnsmasq": "apt-get install dnsmasq-base",
        "qemu-system-x86_64": "apt-get install qemu-system-x86",
    },
    CLUSTER: {
        "containerd": "apt-get install containerd",
        "runc": "apt-get install runc",
        "iptables": "apt-get install iptables",
        "openssl": "apt-get install openssl",
        "busybox": "apt-get install busybox-static",
        "go": "install the newest Go: Kubernetes' parts are built from their modules",
    },
}
_FUSE = "/usr/lib/x86_64-linux-gnu/libfuse3.so.3"
_FILES = {
    "Debian's key, for locks of the shipped recipes": (
        ("/usr/share/keyrings/debian-archive-keyring.gpg",),
        "apt-get install debian-archive-keyring",
    ),
    "UEFI firmware for test machines": (
        ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_CODE.fd"),
        "apt-get install ovmf",
    ),
    "iPXE's ROM for test machines": (
        ("/usr/lib/ipxe/qemu/pxe-virtio.rom", "/usr/share/qemu/pxe-virtio.rom"),
        "apt-get install ipxe-qemu",
    ),
}
"""Files for making locks and booting test machines: for each, the paths of which one must exist, and how to install it."""


@dataclass(frozen=True)
class Need:
    """A row of `bringup doctor`: `need` is required for `use`, `there` says if it is present, `install` how to get it."""

    use: str
    need: str
    there: bool
    install: str = ""


def every(environ: Mapping[str, str]) -> list[Need]:
    """Check all requirements and return one row for each, the rehearsal's first."""
    files = [Need(IMAGES, need, any(map(os.path.exists, places)), install) for need, (places, install) in _FILES.items()]
    return [*_rehearsal(environ), *_programs(environ), *files, _rights(), *_kernel()]


def _rehearsal(environ: Mapping[str, str]) -> Iterator[Need]:
    oldest = ".".join(map(str, _OLDEST_PYTHON))
    yield Need(REHEARSAL, f"Python {oldest} or newer", sys.version_info[:2] >= _OLDEST_PYTHON, "uv python install 3.11")
    yield Need(REHEARSAL, "Linux with pidfd (5.3 or newer)", hasattr(os, "pidfd_open"), "run on Linux, or in a Linux machine")
    for package in _PACKAGES:
        yield Need(REHEARSAL, f"Python package {package}", util.find_spec(package) is not None, "uv sync")
    yield _home(environ)
    yield Need(REHEARSAL, "a loopback interface", loopback.loopback_works(), loopback.REMEDY)


def _home(environ: Mapping[str, str]) -> Need:
    """Return doctor's row about the folder for runs: it or, while it does not exist, its nearest parent must be writable."""
    remedy = "set BRINGUP_HOME to a folder on a local disk"
    try:
        home = StateFolder.of_environment(environ).root
    except NoStateFolder as error:
        return Need(REHEARSAL, "a folder for runs", False, f"{error}: {remedy}")
    nearest = next(path for path in (home, *home.parents) if path.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    return Need(REHEARSAL, f"{home} is writable", writable, remedy)


def _programs(environ: Mapping[str, str]) -> Iterator[Need]:
    path = environ.get("PATH", os.defpath)
    for use, programs in _PROGRAMS.items():
        for program, install in programs.items():
            # PATH of an ordinary user may lack the folders of system programs
            path_found = shutil.which(program, path=path) or shutil.which(program, path="/usr/sbin:/sbin")
            yield Need(use, program, path_found is not None, install)


def _rights() -> Need:
    """Return doctor's row about the right to mount, which layers need: as root, or as a user with uidmap and subordinate ids."""
    need = "mounts as root, or in user namespaces with subordinate ids"
    try:
        id_ranges.choose()
    except BadTask as error:
        return Need(IMAGES, need, False, f"{error}: {error.hint}")
    return Need(IMAGES, need, True)


def _kernel() -> Iterator[Need]:
    yield Need(HOSTS, "libfuse3", Path(_FUSE).exists(), "apt-get install libfuse3-3")
    yield Need(HOSTS, "root", os.geteuid() == 0, "run tests/run as root; the host tier makes network namespaces")
    filesystems = Path("/proc/filesystems")
    overlay = filesystems.exists() and "overlay" in filesystems.read_text().split()
    yield Need(HOSTS, "overlayfs", overlay, "modprobe overlay")
