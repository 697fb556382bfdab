"""Whether this machine can talk to itself: the simulated cluster is processes that meet on 127.0.0.1."""

import socket

REMEDY = "ip link set lo up"


class NoLoopback(ValueError):
    """Nothing on this machine can be reached at 127.0.0.1."""

    hint = REMEDY


def require() -> None:
    """Raise NoLoopback at once, where processes would wait for each other in vain."""
    if not works():
        raise NoLoopback("no loopback interface: the processes of the simulated cluster could not reach each other at 127.0.0.1")


def works() -> bool:
    """Whether a connection to oneself comes about; without the interface it is refused at once."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
            return True
    except OSError:
        return False
