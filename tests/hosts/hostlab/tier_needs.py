"""Programs that a tier needs beside hosts with this machine's own root: which are missing, and their installation by apt-get."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hostlab import needs

INSTALL_SECONDS = 900


@dataclass(frozen=True)
class TierNeeds:
    """Programs and files, each with the Debian package that brings it.

    `script` is the tier's own, such as `tests/slurm/slurm.py`.
    """

    script: str
    programs: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)

    def install(self) -> None:
        """Install the lacking packages with apt-get; their services are not started. Needs root on Debian."""
        packages = sorted({package for _, package in self._lacking()})
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        commands = [["apt-get", "update"]]
        if packages:
            commands.append(["apt-get", "install", "--yes", "--no-install-recommends", *packages])
        for command in commands:
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, timeout=INSTALL_SECONDS)

    def missing(self) -> tuple[str, ...]:
        """Why the tier cannot run here, by name; empty if it can."""
        lacking = tuple(f"{name} is missing: apt-get install {package}" for name, package in self._lacking())
        if os.geteuid() != 0:
            return ("not root: run as root", *lacking)
        if lacking:
            return (*lacking, f"`python {self.script} install` installs what is missing")
        return tuple(reason for reason in needs.missing() if not _is_of_other_hosts(reason))

    def _lacking(self) -> list[tuple[str, str]]:
        search = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        tools = [(name, package) for name, package in self.programs.items() if shutil.which(name, path=search) is None]
        return tools + [(path, package) for path, package in self.files.items() if not Path(path).exists()]


def command(
    arguments: Sequence[str], *, about: str, able: str, install: Callable[[], None], missing: Callable[[], tuple[str, ...]]
) -> int:
    """Run `check` or `install` of a tier's script; 0 if this machine can run the tier, which `able` says, 1 if not."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("command", choices=("check", "install"))
    if parser.parse_args(arguments).command == "install":
        install()
    reasons = missing()
    print("\n".join(reasons) if reasons else able, file=sys.stderr)
    return 1 if reasons else 0


def _is_of_other_hosts(reason: str) -> bool:
    """Return True for a package that only hosts with a root of their own need."""
    return "apt-get install" in reason or reason == needs.INSTALL
