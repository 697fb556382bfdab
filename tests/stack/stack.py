"""Check or install what the stack tests need on this machine: `stack.py check | install`."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.stack import debian_sources

PACKAGES = {
    "gcc": "gcc",
    "g++": "g++",
    "make": "make",
    "patch": "patch",
    "bzip2": "bzip2",
    "mpirun": "openmpi-bin",
    "mpicc": "libopenmpi-dev",
    "bwrap": "bubblewrap",
    "zstd": "zstd",
    "ssh-keygen": "openssh-client",
}
"""Tools and the Debian package that brings each."""
FILES = {"/usr/share/lmod/lmod/libexec/lmod": "lmod"}
VERSIONS = {
    "GCC 12.2.0": (("gcc", "-dumpfullversion"), r"^12\.2\.0$"),
    "OpenMPI 4.1.4": (("mpirun", "--version"), r"\b4\.1\.4$"),
}
"""Releases that the easyconfigs name, with a command that prints the one of this machine, and its pattern."""
INSTALL_SECONDS = 900


def missing() -> list[str]:
    """Why the tier cannot run here, by name; empty if it can."""
    if os.geteuid() != 0:
        return ["not root: full disks and other users are tested too, run as root"]
    if lacking := _lacking():
        return [f"{name} is missing: apt-get install {package}" for name, package in lacking]
    return [
        f"{release} is not what this machine has: the easyconfigs are for Debian 12"
        for release, (command, pattern) in VERSIONS.items()
        if not re.search(pattern, _output(command), re.MULTILINE)
    ]


def install() -> None:
    """Install the lacking packages with apt-get, and fetch the sources of the stack. Needs root on Debian."""
    packages = sorted({package for _, package in _lacking()})
    commands = [
        ["apt-get", "update"],
        *([["apt-get", "install", "--yes", "--no-install-recommends", *packages]] if packages else []),
    ]
    for command in commands:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, timeout=INSTALL_SECONDS)
    debian_sources.fetch()


def _lacking() -> list[tuple[str, str]]:
    tools = [(tool, package) for tool, package in PACKAGES.items() if shutil.which(tool) is None]
    return tools + [(path, package) for path, package in FILES.items() if not Path(path).exists()]


def _output(command: tuple[str, ...]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def main(arguments: list[str]) -> int:
    """Run one command; 0 if this machine can run the tier, 1 if not."""
    parser = argparse.ArgumentParser(prog="stack.py", description=__doc__)
    parser.add_argument("command", choices=("check", "install"))
    try:
        if parser.parse_args(arguments).command == "install":
            install()
        reasons = missing()
    except debian_sources.SourceMissingError as error:
        reasons = [str(error)]
    print("\n".join(reasons) if reasons else "this machine can build software stacks", file=sys.stderr)
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
