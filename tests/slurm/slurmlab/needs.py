"""Requirements of the cluster on this machine; each missing one is reported with its remedy."""

import os
import shutil
import subprocess
from pathlib import Path

from hostlab import needs as hosts

PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "slurmrestd": "slurmrestd",
    "srun": "slurm-client",
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mpicc": "libopenmpi-dev",
    "mpirun": "openmpi-bin",
    "tc": "iproute2",
    "sshd": "openssh-server",
    "pkill": "procps",
}
"""Programs and the Debian package that brings each."""
FILES = {"/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1": "libfaketime"}
INSTALL_SECONDS = 900


def install() -> None:
    """Install the lacking packages with apt-get; their services are not started. Needs root on Debian."""
    packages = sorted({package for _, package in _lacking()})
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    commands = [["apt-get", "update"]]
    if packages:
        commands.append(["apt-get", "install", "--yes", "--no-install-recommends", *packages])
    for command in commands:
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, timeout=INSTALL_SECONDS)


def missing() -> tuple[str, ...]:
    """Why the tier cannot run here, by name; empty if it can."""
    lacking = tuple(f"{name} is missing: apt-get install {package}" for name, package in _lacking())
    if os.geteuid() != 0:
        return ("not root: run as root", *lacking)
    if lacking:
        return (*lacking, "`python tests/slurm/slurm.py install` installs what is missing")
    return tuple(reason for reason in hosts.missing() if not _is_of_other_hosts(reason))


def _is_of_other_hosts(reason: str) -> bool:
    """Return True for a package that only hosts with a root of their own need."""
    return "apt-get install" in reason or reason == hosts.INSTALL


def _lacking() -> list[tuple[str, str]]:
    search = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    tools = [(name, package) for name, package in PROGRAMS.items() if shutil.which(name, path=search) is None]
    return tools + [(path, package) for path, package in FILES.items() if not Path(path).exists()]
