"""The Debian root that all hosts share read-only: built once from the mirror that apt is configured with, kept by content key.

Beside it a real Ubuntu, and a Debian with dnf.
"""

import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

PACKAGES = (
    "openssh-server",
    "python3",
    "python3-apt",
    "sudo",
    "systemd",
    "systemd-sysv",
    "dbus",
    "libpam-systemd",
    "iproute2",
    "iptables",
    "iputils-ping",
    "kmod",
    "procps",
    "ca-certificates",
    "util-linux-extra",
)
"""Packages of a machine after its installer: enough for SSH and Python, and the two init programs."""

OFFERED = ("apparmor", "chrony", "conntrack", "curl", "ethtool", "open-iscsi", "nfs-common", "pciutils", "socat")
OFFERED += ("dnf", "firewalld", "lmod", "network-manager", "rpm", "udev", "ufw")
"""Packages that the hosts can install with apt, from a repository inside the root: they have no way to the mirror."""

PROFILE = ("apparmor", "chrony", "conntrack", "curl", "ethtool", "pciutils", "socat")
"""Packages of `OFFERED` that belong to the node profile and are already installed in the prepared root."""

MASKED = (
    "systemd-udevd.service",
    "systemd-udev-trigger.service",
    "systemd-udevd-kernel.socket",
    "systemd-udevd-control.socket",
    "systemd-networkd.service",
    "systemd-resolved.service",
    "systemd-timesyncd.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "getty.target",
    "console-getty.service",
    "getty@tty1.service",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "dev-hugepages.mount",
    "sys-kernel-config.mount",
    "sys-fs-fuse-connections.mount",
    "systemd-modules-load.service",
    "kmod-static-nodes.service",
    "modprobe@.service",
    "iscsid.socket",
    "iscsid.service",
    "open-iscsi.service",
)
"""Units of systemd that would touch this machine's devices or kernel, or only cost time."""

GENERATORS = tuple(
    f"systemd-{name}-generator"
    for name in (
        "bless-boot",
        "cryptsetup",
        "debug",
        "getty",
        "gpt-auto",
        "hibernate-resume",
        "integritysetup",
        "rc-local",
        "run",
        "system-update",
        "veritysetup",
    )
)
"""Programs that systemd runs at each boot and each reload, without work on a host here: they took a tenth of the tier's CPU."""

SSHD = """MaxStartups 200:30:400
UseDNS no
PermitRootLogin prohibit-password
PasswordAuthentication no
AuthorizedKeysFile /etc/ssh/authorized_keys
HostKey /etc/ssh/ssh_host_ed25519_key
"""

FILES = {
    "etc/ssh/sshd_config.d/hosts.conf": SSHD,
    "etc/sudoers.d/admin": "admin ALL=(ALL) NOPASSWD: ALL\n",
    "etc/apt/sources.list": "deb [trusted=yes] file:///srv/packages ./\n",
    "etc/fstab": "/dev/vda2 none swap sw 0 0\n",
    "etc/machine-id": "",
    # services start when an init starts them, never from a package's script
    "usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
    "etc/dpkg/dpkg.cfg.d/hosts": "force-unsafe-io\npath-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n",
}

UBUNTU = "noble"
UBUNTU_MIRROR = "http://archive.ubuntu.com/ubuntu"
UBUNTU_KEYS = f"{UBUNTU_MIRROR}/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
UBUNTU_KEYS_SHA256 = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
"""The package of the release itself, which no update replaces there. Debian 12 has none with Ubuntu's keys."""
RESOLVED = "systemd-resolved.service"
DOWNLOAD_SECONDS = 60

CUSTOMIZE = """set -e
root=$1
chroot "$root" useradd --create-home --shell /bin/bash admin
chroot "$root" useradd --create-home --shell /bin/bash guest
chroot "$root" apt-get install --yes --download-only --no-install-recommends @OFFERED@
mkdir -p "$root/srv/packages"
mv "$root"/var/cache/apt/archives/*.deb "$root/srv/packages/"
rm -f "$root"/etc/ssh/ssh_host_* "$root"/etc/apt/sources.list.d/*
sed -i 's/^session *required *pam_limits/session optional pam_limits/' "$root/etc/pam.d/sshd"
"""
"""Run by mmdebstrap in the new root. pam_limits is optional since a machine may lack the capability to raise limits."""

OTHER_FAMILY = {
    "etc/os-release": """NAME="Stand-in for Rocky Linux"
ID="rocky"
ID_LIKE="rhel centos fedora"
VERSION_ID="9.5"
""",
    # where the distributions that have rpm for their own keep its database; Debian's rpm has one for each user
    "etc/rpm/macros.place": "%_dbpath /var/lib/rpm\n",
}
"""Files that make the root a stand-in for a distribution of the RHEL family, beside the real dnf and rpm."""

BUILD_SECONDS = 900


@dataclass(frozen=True)
class System:
    """A distribution: its suite and apt's sources, what a machine has after its installer, what it can install, which units are
    masked. `keys`: URL and sha256 of a package with the keys of its archive, where this machine has none."""

    suite: str
    sources: tuple[str, ...]
    packages: tuple[str, ...] = PACKAGES
    offered: tuple[str, ...] = OFFERED
    masked: tuple[str, ...] = MASKED
    keys: tuple[str, ...] = ()


def cache_folder() -> Path:
    """`$BRINGUP_CACHE`, else `~/.cache/bringup`."""
    return Path(os.environ.get("BRINGUP_CACHE") or Path.home() / ".cache" / "bringup")


def root() -> Path:
    """The root folder, built now if this machine has none with the same content key (about half a minute)."""
    lines = sources()
    return _kept(System(suite(lines), tuple(lines)))


def ubuntu() -> Path:
    """The root folder of a real Ubuntu, with systemd-resolved as Ubuntu has it."""
    lines = tuple(f"deb {UBUNTU_MIRROR} {suite} main universe" for suite in (UBUNTU, f"{UBUNTU}-updates", f"{UBUNTU}-security"))
    masked = tuple(unit for unit in MASKED if unit != RESOLVED)
    return _kept(
        System(UBUNTU, lines, (*PACKAGES, "apt", "systemd-resolved"), PROFILE, masked, keys=(UBUNTU_KEYS, UBUNTU_KEYS_SHA256))
    )


def _kept(system: System) -> Path:
    described = [system.sources, system.packages, system.offered, system.masked, GENERATORS, FILES, CUSTOMIZE]
    kept = cache_folder() / "hosts" / hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]
    kept.parent.mkdir(parents=True, exist_ok=True)
    with (kept.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _build(kept, system)
    return kept


def prepared() -> Path:
    """A copy of the root in which the profile's packages are installed already: for work that is measured without them."""
    return _variant("prepared", PROFILE, {})


def with_dnf() -> Path:
    """A copy of the root whose package manager is the real dnf on the real rpm: a stand-in for a system of the RHEL family."""
    return _variant("dnf", ("dnf", "rpm"), OTHER_FAMILY)


def _variant(name: str, packages: tuple[str, ...], files: Mapping[str, str]) -> Path:
    """A copy of the root with more packages, and files of its own, kept as the root is."""
    bare = root()
    key = hashlib.sha256(json.dumps([packages, files]).encode()).hexdigest()[:8]
    kept = bare.with_name(f"{bare.name}-{name}-{key}")
    with (kept.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            fresh = kept.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            subprocess.run(["cp", "--archive", str(bare), str(fresh)], check=True)
            install = ["chroot", str(fresh), "apt-get", "install", "--yes", "--no-install-recommends", *packages]
            subprocess.run(install, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
            _write(fresh, files)
            fresh.rename(kept)
    return kept


def suite(lines: list[str]) -> str:
    """The release itself, among those that apt's sources name."""
    return min((line.split()[2] for line in lines), key=len)


@functools.cache
def sources() -> list[str]:
    """Return apt's own sources of this distribution, as one-line entries; apt needs half a second to list them."""
    wanted = "$(ORIGIN)|deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", wanted, "Created-By: Packages"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = sorted({line.partition("|")[2] for line in listed if line.startswith("Debian|")})
    if not found:
        raise RuntimeError("apt knows no Debian mirror: run `python tests/hosts/hosts.py install`, which refreshes its lists")
    return found


def _build(kept: Path, system: System) -> None:
    fresh = kept.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    customize = kept.with_suffix(".sh")
    customize.write_text(CUSTOMIZE.replace("@OFFERED@", " ".join(system.offered)))
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(system.packages)}"]
    command += [f"--keyring={_keyring(kept, *system.keys)}"] if system.keys else []
    command += [f'--customize-hook=sh {customize} "$1"', system.suite, str(fresh), "-"]
    log = kept.with_suffix(".log")
    with log.open("w") as output:
        said = "\n".join(system.sources)
        done = subprocess.run(command, input=said, text=True, stdout=output, stderr=output, timeout=BUILD_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"mmdebstrap ended with {done.returncode}: see {log}")
    _finish(fresh, system.masked)
    fresh.rename(kept)


def _keyring(kept: Path, url: str, sha256: str) -> Path:
    """The keys of a distribution, from a package of theirs whose digest is known."""
    with urlopen(url, timeout=DOWNLOAD_SECONDS) as answer:
        data = answer.read()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RuntimeError(f"{url}: another digest than the known one")
    package, folder = kept.with_suffix(".keys.deb"), kept.with_suffix(".keys")
    package.write_bytes(data)
    subprocess.run(["dpkg-deb", "--extract", str(package), str(folder)], check=True)
    return next(folder.glob("usr/share/keyrings/*-archive-keyring.gpg"))


def _finish(fresh: Path, masked: tuple[str, ...]) -> None:
    _write(fresh, FILES)
    (fresh / "usr/sbin/policy-rc.d").chmod(0o755)
    (fresh / "etc/sudoers.d/admin").chmod(0o440)
    settings = fresh / "etc/systemd"
    (settings / "system-generators").mkdir(exist_ok=True)
    for link in (*(settings / "system" / unit for unit in masked), *(settings / "system-generators" / name for name in GENERATORS)):
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    _index(fresh / "srv/packages")
    subprocess.run(["chroot", str(fresh), "apt-get", "update"], check=True, stdout=subprocess.DEVNULL)


def _write(fresh: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = fresh / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # what a link points at is not ours
        path.write_text(content)


def _index(folder: Path) -> None:
    """Write the `Packages` file that makes a folder of packages an apt repository."""
    entries = []
    for path in sorted(folder.glob("*.deb")):
        control = subprocess.run(["dpkg-deb", "--field", str(path)], capture_output=True, text=True, check=True).stdout.strip()
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        entries.append(f"{control}\nFilename: ./{path.name}\nSize: {len(data)}\nSHA256: {digest}\n")
    (folder / "Packages").write_text("\n".join(entries))
