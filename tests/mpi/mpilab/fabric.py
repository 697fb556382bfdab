"""The fabric beside the hosts' own network: two leaf switches, a trunk between them, and one shaped link for each host.

SSH and mpirun use `eth0` (10.77.0.0/16), MPI messages use `fabric0` (10.78.0.0/16), so that faults disturb measurements alone.
"""

import subprocess
from collections.abc import Sequence
from typing import Final

from hostlab import network
from hostlab.host import Host

DEVICE: Final = "fabric0"
NETWORK: Final = "10.78.0.0/16"
MANAGEMENT: Final = "10.77.0.0/16"
LEAVES: Final = ("leaf1", "leaf2")
_SWITCHES: Final = ("vb-leaf1", "vb-leaf2")
_TRUNK: Final = ("vb-trunk1", "vb-trunk2")
HEALTHY, SLOW = "40mbit", "2mbit"
"""Rates of a link: 5 MB/s are so little that load on the machine decides nothing, and a disturbed link has a twentieth."""


def leaf_of(number: int, count: int) -> int:
    """Return the leaf of host `number`: the first half of the hosts is on the first one."""
    return int(number >= count // 2)


def address(number: int) -> str:
    """Return the address of host `number` on the fabric."""
    return f"10.78.0.{number + 1}"


def up(hosts: Sequence[Host]) -> None:
    """Make switches, trunk and links; each link is shaped to its healthy rate where the host sends."""
    lines = [f"link add {name} type bridge" for name in _SWITCHES]
    lines += [f"link set {name} up" for name in _SWITCHES]
    lines += [f"link add {_TRUNK[0]} type veth peer name {_TRUNK[1]}"]
    lines += [f"link set {port} master {switch} up" for port, switch in zip(_TRUNK, _SWITCHES, strict=True)]
    for number, host in enumerate(hosts):
        port, switch = f"vb-f{number:03d}", _SWITCHES[leaf_of(number, len(hosts))]
        lines += [f"link add {port} type veth peer name {DEVICE} netns {network.namespace(host.name)}"]
        lines += [f"link set {port} master {switch} up"]
    network.batch(lines)
    for number, host in enumerate(hosts):
        # packets as on a wire: the kernel would hand 64 KiB from host to host as one, and lose or delay that whole
        lines = [f"addr add {address(number)}/16 dev {DEVICE}", f"link set {DEVICE} gso_max_segs 1 up"]
        network.batch(lines, "-n", network.namespace(host.name))
        shape(host, HEALTHY)


def down() -> None:
    """Remove the switches and the trunk; links go with their hosts."""
    lines = [f"link del {name}" for name in (*_SWITCHES, _TRUNK[0])]
    subprocess.run(["ip", "-force", "-batch", "-"], input="\n".join([*lines, ""]), text=True, capture_output=True, check=False)


def shape(host: Host, rate: str) -> None:
    """Limit what a host sends, by a token bucket."""
    _tc("-n", network.namespace(host.name), "qdisc", "replace", "dev", DEVICE, *_bucket(rate))


def shape_trunk(rate: str) -> None:
    """Limit the trunk in both directions."""
    for port in _TRUNK:
        _tc("qdisc", "replace", "dev", port, *_bucket(rate))


def unshape_trunk() -> None:
    """Let the trunk carry everything again, as it does on a fabric without oversubscription."""
    for port in _TRUNK:
        _tc("qdisc", "del", "dev", port, "root")


def _bucket(rate: str) -> tuple[str, ...]:
    return ("root", "tbf", "rate", rate, "burst", "16kb", "latency", "50ms")


def _tc(*words: str) -> None:
    done = subprocess.run(["tc", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"tc {' '.join(words)}: {done.stderr.strip()}")
