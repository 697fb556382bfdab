"""Check or install what the boot tests need on this machine: `boot.py check | install`."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = {
    "mmdebstrap": "mmdebstrap",
    "mksquashfs": "squashfs-tools",
    "bwrap": "bubblewrap",
    "qemu-system-x86_64": "qemu-system-x86",
    "zstd": "zstd",
    "cpio": "cpio",
    "newuidmap": "uidmap",
    "gpg": "gnupg",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "strace": "strace",
}
"""Tools and the Debian package that brings each."""
FILES = {
    "/usr/share/OVMF/OVMF_CODE.fd": "ovmf",
    "/usr/lib/ipxe/qemu/pxe-virtio.rom": "ipxe-qemu",
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1": "libfaketime",
    "/usr/lib/x86_64-linux-gnu/libfuse3.so.3": "libfuse3-3",
}
INSTALL_SECONDS = 900


def missing() -> list[str]:
    """Why the tier cannot run here, by name; empty if it can."""
    if os.geteuid() != 0:
        return ["not root: builds for another user are tested too, run as root"]
    return [f"{what} is missing: apt-get install {package}" for what, package in _lacking()]


def install() -> None:
    """Install the lacking packages with apt-get; the package lists are refreshed first. Needs root on Debian."""
    lacking = sorted({package for _, package in _lacking()})
    commands = [["apt-get", "update"], *([["apt-get", "install", "--yes", "--no-install-recommends", *lacking]] if lacking else [])]
    for command in commands:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, timeout=INSTALL_SECONDS)


def _lacking() -> list[tuple[str, str]]:
    search = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    tools = [(tool, package) for tool, package in PACKAGES.items() if shutil.which(tool, path=search) is None]
    return tools + [(path, package) for path, package in FILES.items() if not Path(path).exists()]


def main(arguments: list[str]) -> int:
    """Run one command; 0 if this machine can run the tier, 1 if not."""
    parser = argparse.ArgumentParser(prog="boot.py", description=__doc__)
    parser.add_argument("command", choices=("check", "install"))
    if parser.parse_args(arguments).command == "install":
        install()
    reasons = missing()
    print("\n".join(reasons) if reasons else "this machine can build and boot node images", file=sys.stderr)
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
