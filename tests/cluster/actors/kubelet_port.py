"""Stand-in for the kubelet port of nodes without kubelet: serves logs that the Argo stand-in left in a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubelab import box

from workflows.rehearsal.simulator.machines.kubelet_port import log_server

KUBELET = "10250"


@contextmanager
def serving(folder: Path) -> Iterator[Path]:
    """Serve while the context lasts, for every address but the real node's; yields the folder that logs go to."""
    logs = folder / "pods"
    logs.mkdir(parents=True)

    def log(place: str) -> bytes | None:
        parts = place.split("/")
        kept = logs.joinpath(*parts)
        return kept.read_bytes() if len(parts) == 3 and ".." not in parts and kept.is_file() else None

    server = log_server(box.OUTSIDE, log)
    rule = ["OUTPUT", "!", "-d", f"{box.ADDRESS}/32", "-p", "tcp", "--dport", KUBELET, "-j", "DNAT"]
    rule += ["--to-destination", f"{box.OUTSIDE}:{server.server_port}"]
    box.run("iptables", "-t", "nat", "-A", *rule)
    try:
        yield logs
    finally:
        box.run("iptables", "-t", "nat", "-D", *rule)
        server.shutdown()
        server.server_close()
