"""Requirements of the hosts, the fabric and its faults on this machine; each missing one is reported with its remedy."""

from pathlib import Path
from typing import Final

from hostlab.tier_needs import TierNeeds

TUN: Final = Path("/dev/net/tun")
_NEEDS = TierNeeds(
    "tests/mpi/mpi.py",
    {
        "mpicc": "libopenmpi-dev",
        "gcc": "gcc",
        "mpirun": "openmpi-bin",
        "sshd": "openssh-server",
        "ssh": "openssh-client",
        "tc": "iproute2",
        "iptables": "iptables",
    },
)
install = _NEEDS.install


def missing() -> tuple[str, ...]:
    """Why the tier cannot run here, by name; empty if it can."""
    return _NEEDS.missing() or (() if TUN.exists() else (f"{TUN} is missing: modprobe tun",))
