"""One bridge and one veth pair for each host, in 10.77.0.0/16; names tell what is ours."""

import json
import subprocess
from collections.abc import Sequence

BRIDGE = "br-bringup"
PREFIX = "bringup-"
GATEWAY = "10.77.255.254"


def address(number: int) -> str:
    """Address of host `number`, from 0."""
    return f"10.77.{number // 250}.{number % 250 + 1}"


def namespace(name: str) -> str:
    """Network namespace of the host called `name`."""
    return PREFIX + name


def up(names: list[str]) -> None:
    """Make the bridge, and for each host a namespace with an `eth0` on it."""
    lines = [f"link add {BRIDGE} type bridge", f"addr add {GATEWAY}/16 dev {BRIDGE}", f"link set {BRIDGE} up"]
    for name in names:
        lines += [f"netns add {namespace(name)}", f"link add vb-{name} type veth peer name eth0 netns {namespace(name)}"]
        lines += [f"link set vb-{name} master {BRIDGE} up"]
    batch(lines)
    for number, name in enumerate(names):
        lines = [f"addr add {address(number)}/16 dev eth0", "link set eth0 up", "link set lo up"]
        # RKE2 wants a default route. This one leads nowhere: two narrower ones refuse at once what it would take. A machine that
        # forwards nothing lets every look-up of a name wait, and sudo with it.
        lines += [f"route add default via {GATEWAY}", *(f"route add unreachable {half}/1" for half in ("0.0.0.0", "128.0.0.0"))]
        batch(lines, "-n", namespace(name))


def link(name: str, state: str) -> None:
    """Set one host's cable `up` or `down`."""
    batch([f"link set vb-{name} {state}"])


def processes(name: str) -> list[int]:
    """All processes in one host's network namespace."""
    listed = subprocess.run(["ip", "netns", "pids", namespace(name)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in listed.stdout.split()]


def ours() -> list[str]:
    """Names of the hosts whose namespaces are there."""
    listed = subprocess.run(["ip", "-json", "netns", "list"], capture_output=True, text=True, check=True).stdout
    spaces = [entry["name"] for entry in json.loads(listed or "[]")]
    return sorted(space.removeprefix(PREFIX) for space in spaces if space.startswith(PREFIX))


def down(names: list[str]) -> None:
    """Remove whatever of it is there."""
    lines = [line for name in names for line in (f"link del vb-{name}", f"netns del {namespace(name)}")]
    script = "\n".join([*lines, f"link del {BRIDGE}", ""])
    subprocess.run(["ip", "-force", "-batch", "-"], input=script, text=True, capture_output=True, check=False)


def batch(lines: Sequence[str], *options: str) -> None:
    """Run commands of `ip`, one a line, such as in another namespace (`-n`). Raises RuntimeError with its first error."""
    done = subprocess.run(
        ["ip", *options, "-batch", "-"], input="\n".join(lines) + "\n", text=True, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"ip: {done.stderr.strip()}")
