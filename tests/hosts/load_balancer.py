"""A real load balancer (HAProxy) before the servers of a cluster: `rke2.registration_address` is the address of none of them."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hostlab import network
from hostlab.host import Host
from hostlab.waiting import listens, until

PORTS = (9345, 6443)
"""RKE2's supervisor, where machines register, and the API."""
START_SECONDS = 30
SETTINGS = """defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
"""
PORT = """listen p@PORT@
  bind @ADDRESS@:@PORT@
  option redispatch
  default-server check inter 200ms fall 2 rise 1 on-marked-down shutdown-sessions
"""


@contextmanager
def balanced(servers: Sequence[Host], folder: Path) -> Iterator[str]:
    """The address that leads to those of the servers which answer, while the context lasts; where none does, it hangs up."""
    lines = [SETTINGS]
    for port in PORTS:
        lines.append(PORT.replace("@ADDRESS@", network.GATEWAY).replace("@PORT@", str(port)))
        lines += [f"  server {host.name} {host.address}:{port}\n" for host in servers]
    settings = folder / "haproxy.cfg"
    settings.write_text("".join(lines))
    with subprocess.Popen(["haproxy", "-db", "-q", "-f", str(settings)], stderr=subprocess.DEVNULL) as process:
        try:
            assert until(lambda: all(listens(network.GATEWAY, port) for port in PORTS), START_SECONDS), process.poll()
            yield network.GATEWAY
        finally:
            process.terminate()
