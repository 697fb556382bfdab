"""The disk of a machine with a kernel and a boot loader of its own, made once from the mirror that apt is configured with, kept by
its content.

Debian's installer is stood in for: mmdebstrap makes the root, mke2fs the file system, and GRUB is installed and its menu written by
the machine itself, which is booted once without it.
"""

import fcntl
import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.hosts.hostlab import debian

PACKAGES = (
    *("openssh-server", "python3", "python3-apt", "systemd-sysv", "udev", "dbus", "libpam-systemd", "iproute2", "kmod", "procps"),
    *("linux-image-amd64", "initramfs-tools", "zstd", "grub-pc", *debian.PROFILE),
    *("firewalld", "nftables"),
    *("selinux-policy-default", "selinux-basics", "policycoreutils", "selinux-utils"),
    *("nfs-kernel-server", "nfs-common"),
)
"""Packages of the disk, those of the node profile included: the machine has no access to a mirror. Its firewall runs from the
first boot on; SELinux starts once the kernel's command line asks for it."""
LABELS = "setfiles -F -e /proc /etc/selinux/default/contexts/files/file_contexts"
"""Command that labels files by SELinux's policy, also under a kernel without SELinux; it needs /proc."""
MASKED = ("apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "fstrim.timer", "dpkg-db-backup.timer")
"""Units that only cost an emulated machine time."""
WAITING = ("nfs-server.service", "nfs-client.target", "nfs-blkmap.service", "rpcbind.service", "rpcbind.socket")
"""Units of packages that one test alone needs and starts; after an installer no such servers run."""
FILES = {
    "etc/hostname": "installed\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/machine-id": "",
    "etc/fstab": "/dev/vda1 / ext4 errors=remount-ro 0 1\n/dev/vda2 none swap sw 0 0\n",
    "etc/systemd/network/10-wired.network": "[Match]\nType=ether\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n",
    "etc/default/grub.d/50-site.cfg": 'GRUB_TERMINAL=serial\nGRUB_TIMEOUT=0\nGRUB_CMDLINE_LINUX="console=ttyS0"\n',
    # what only this machine needs, quickly packed: an emulated processor makes an initramfs of every driver in minutes
    "etc/initramfs-tools/conf.d/quick": "MODULES=dep\nCOMPRESS=zstd\nCOMPRESSLEVEL=1\nRESUME=none\n",
    "usr/local/sbin/install-grub": f"""#!/bin/sh
# Process 1 of the first boot: what Debian's installer does last.
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
grub-install /dev/vda
update-initramfs -u
update-grub
{LABELS} /boot /etc /var
echo installed
sync
mount -o remount,ro /
echo o > /proc/sysrq-trigger
sleep 60
""",
}
SECTOR, MIB = 512, 1 << 20
ROOT_MIB, SWAP_MIB = 2560, 64
LINUX, SWAP = 0x83, 0x82
"""Types of partitions."""
PAGE = 4096
BUILD_SECONDS = 900.0


@dataclass(frozen=True)
class Disk:
    """Disk of a machine in the cache: the read-only image, the key of root's login, and the machine's host key."""

    folder: Path

    @property
    def image(self) -> Path:
        """The disk, byte by byte."""
        return self.folder / "disk"

    @property
    def key(self) -> Path:
        """The private SSH key of root's login."""
        return self.folder / "id_ed25519"

    @property
    def host_key(self) -> str:
        """The machine's public host key."""
        return " ".join((self.folder / "ssh_host_ed25519_key.pub").read_text().split()[:2])


def disk(boot_once: Callable[[Path, Path], None]) -> Disk:
    """The disk, made now if this machine has none with the same content key (some minutes). `boot_once` boots a disk without a boot
    loader, by the kernel and initramfs in a folder, until the machine is off."""
    sources = debian.sources()
    described = json.dumps([sources, PACKAGES, LABELS, MASKED, WAITING, FILES, ROOT_MIB, SWAP_MIB])
    kept = debian.cache_folder() / "machine" / hashlib.sha256(described.encode()).hexdigest()[:16]
    kept.parent.mkdir(parents=True, exist_ok=True)
    with (kept.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".new-") as folder:
                made = Path(folder) / "made"
                _make(Disk(made), Path(folder) / "root", sources, boot_once)
                made.rename(kept)
    return Disk(kept)


def _make(made: Disk, root: Path, sources: list[str], boot_once: Callable[[Path, Path], None]) -> None:
    made.folder.mkdir()
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}", debian.suite(sources)]
    _run(*command, str(root), "-", text="\n".join(sources))
    _configure(root)
    for key in (made.key, made.folder / "ssh_host_ed25519_key"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "machine", "-f", str(key))
    _keys(made, root)
    _run("unshare", "--mount", "sh", "-c", 'mount --bind /proc "$1/proc" && chroot "$1" $2 /', "sh", str(root), LABELS)
    boot = made.folder / "boot"
    shutil.copytree(root / "boot", boot)
    _partitioned(made.image, root, made.folder / "swap")
    boot_once(made.image, boot)
    shutil.rmtree(boot)


def _configure(root: Path) -> None:
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "usr/local/sbin/install-grub").chmod(0o755)
    for unit in MASKED:
        (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
    _run("chroot", str(root), "systemctl", "enable", "systemd-networkd.service")
    _run("chroot", str(root), "systemctl", "disable", *WAITING)


def _keys(made: Disk, root: Path) -> None:
    """The machine's host key in place of those that its package made, and the key of root's login."""
    for path in (root / "etc/ssh").glob("ssh_host_*"):
        path.unlink()
    for name in ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"):
        shutil.copy2(made.folder / name, root / "etc/ssh" / name)
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    shutil.copyfile(made.key.with_suffix(".pub"), root / "root/.ssh/authorized_keys")


def _partitioned(image: Path, root: Path, swap: Path) -> None:
    """A disk with two partitions, the root and swap, and a partition table as BIOS machines have it."""
    begins = {LINUX: (1, ROOT_MIB), SWAP: (1 + ROOT_MIB, SWAP_MIB)}
    with image.open("wb") as out:
        out.truncate((1 + ROOT_MIB + SWAP_MIB) * MIB)
        out.seek(446)
        for kind, (start, size) in begins.items():
            out.write(struct.pack("<B3sB3sII", 0, b"", kind, b"", start * MIB // SECTOR, size * MIB // SECTOR))
        out.seek(510)
        out.write(b"\x55\xaa")
    _run("mke2fs", "-q", "-t", "ext4", "-d", str(root), "-E", f"offset={MIB}", str(image), f"{ROOT_MIB}M")
    with swap.open("wb") as out:
        out.truncate(SWAP_MIB * MIB)
    _run("mkswap", str(swap))
    with image.open("r+b") as out:
        out.seek((1 + ROOT_MIB) * MIB)
        out.write(swap.read_bytes()[:PAGE])
    swap.unlink()


def _run(*command: str, text: str = "") -> None:
    environment: Mapping[str, str] = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    search = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = subprocess.run(
        command, input=text, env={**environment, "PATH": search}, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
