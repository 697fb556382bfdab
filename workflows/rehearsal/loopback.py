"""A check of the loopback interface, through which the processes of the simulated cluster reach each other (127.0.0.1)."""

import socket

REMEDY = "ip link set lo up"


class NoLoopback(ValueError):
    """Raised if this machine has no working loopback interface, so that no program can be reached at 127.0.0.1."""

    hint = REMEDY


def require_loopback() -> None:
    """Raise NoLoopback if the loopback interface is missing, so that no process waits in vain for another one."""
    if not loopback_works():
        raise NoLoopback("no loopback interface: the processes of the simulated cluster cannot reach each other at 127.0.0.1")


def loopback_works() -> bool:
    """Return True if this machine can connect to itself at 127.0.0.1. Without the interface the connection is refused at once."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
            return True
    except OSError:
        return False
