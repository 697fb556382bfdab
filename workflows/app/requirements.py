"""Checks of `bringup doctor`: what each use (rehearsal, real hosts, images, stacks, factories, tests) needs on this machine."""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from steps import timeouts
from steps.clients import easybuild_python, process
from steps.errors import BadTask, StepError
from steps.nodeimage.containment import id_ranges
from steps.softwarestack.tree import lmod_modules
from steps.softwarestack.tree_tests import reframe_tests
from workflows.engines.folders import NoStateFolder, StateFolder
from workflows.rehearsal import loopback

REHEARSAL, RUN, IMAGES, HOSTS, CLUSTER = "rehearsal", "run on real hosts", "node images", "host tests", "cluster tests"
STACKS, FACTORY = "software stacks", "build factories"
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
        "openssl": "apt-get install openssl",
    },
    STACKS: {"zstd": "apt-get install zstd"},
    # beside the programs of a run on real hosts
    FACTORY: {
        "ssh": "apt-get install openssh-client",
        "ssh-keygen": "apt-get install openssh-client",
        "systemd-analyze": "apt-get install systemd; only `bringup factory timer` needs it",
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
    return [*_rehearsal(environ), *_programs(environ), *_stacks(environ), *files, _rights(), *_kernel()]


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


def _stacks(environ: Mapping[str, str]) -> Iterator[Need]:
    """Yield doctor's rows about the builder of stacks, with the versions that are installed; a spec names the release it wants."""
    path = environ.get("PATH", os.defpath)
    sandbox, spack = shutil.which("bwrap", path=path), shutil.which("spack", path=path)
    version = _version([sandbox, "--version"]) if sandbox else ""
    yield Need(STACKS, f"bubblewrap {version}".rstrip(), bool(version), "apt-get install bubblewrap")
    lmod = lmod_modules.find_lmod(environ)
    version = _version([lmod.lmod, "bash", "--version"]) if lmod else ""
    yield Need(STACKS, f"Lmod {version}".rstrip(), bool(version), "apt-get install lmod, or name its folder by LMOD_PKG")
    python = easybuild_python.find_interpreter(environ)
    versions = {
        "EasyBuild": _package_version(python, "easybuild-framework"),
        "Spack": _version([spack, "--version"]) if spack else "",
    }
    builders = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    install = f"{easybuild_python.HINT}; Spack: git clone its release, and put its bin into PATH"
    yield Need(STACKS, f"a builder: {builders}" if builders else "a builder: EasyBuild or Spack", bool(builders), install)
    try:
        version = _package_version(reframe_tests.find_interpreter(environ), "ReFrame-HPC")
    except BadTask:
        version = ""
    install = f"pip install reframe-hpc, or name the interpreter that has it by {reframe_tests.INTERPRETER}"
    yield Need(STACKS, f"ReFrame {version}".rstrip() + ", if a spec names tests of it", bool(version), install)


def _package_version(interpreter: str, package: str) -> str:
    """Return the version of a Python package that an interpreter has; empty if it has none."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return _version([interpreter, "-I", "-c", code]) if interpreter else ""


def _version(command: Sequence[str]) -> str:
    """Return the first version number that a program prints; empty if it fails, prints none, or takes too long."""
    try:
        done = process.run(command, seconds=timeouts.PROGRAM_VERSION)
    except (StepError, OSError):
        return ""
    match = re.search(r"\b\d+(?:\.\d+)+", f"{done.out}\n{done.err}") if done.code == 0 else None
    return match[0] if match else ""


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
