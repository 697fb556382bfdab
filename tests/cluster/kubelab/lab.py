"""The whole cluster up, and all that it is made of down again, also after a crash."""

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kubelab import box, images, parts
from kubelab.control_plane import ControlPlane
from kubelab.helm import HelmController, load_job_image
from kubelab.node import Node

CHARTS = Path(__file__).parents[1] / "charts"
BARE_PORT, MANAGED_PORT = 6543, 6643
_held: list[bool] = []


@dataclass(frozen=True)
class Cluster:
    """One control plane with one real node and helm-controller; all in the box."""

    plane: ControlPlane
    node: Node
    helm: HelmController
    seconds: float
    """Duration of the start, without building the programs."""

    def bare(self) -> ControlPlane:
        """A second control plane, of etcd and API server only, not started."""
        return ControlPlane("bare", BARE_PORT, self.plane.programs, controllers=False)

    def managed(self) -> ControlPlane:
        """Another one, with all controllers and the scheduler and no node, not started."""
        return ControlPlane("managed", MANAGED_PORT, self.plane.programs)


def up() -> Cluster:
    """Start everything; programs that are not cached are built first, which takes minutes. Raises RuntimeError when one is up."""
    programs = parts.programs()
    began = time.monotonic()
    box.up()
    cluster = _cluster(programs)
    cluster.plane.start()
    cluster.node.start()
    cluster.node.load(images.pack(images.SHELL, cluster.node.folder / "shell.tar"))
    load_job_image(cluster.node, programs["helm"], CHARTS)
    cluster.helm.start()
    return _cluster(programs, time.monotonic() - began)


def current() -> Cluster:
    """The cluster that is up now."""
    return _cluster(parts.programs())


def down() -> None:
    """Remove all that `up` made; nothing to do is fine."""
    box.down()


@contextmanager
def alone() -> Iterator[None]:
    """One at a time in this box of this machine. Waits for another process; raises RuntimeError for this one."""
    if _held:
        raise RuntimeError("this process has a cluster up")
    kept = parts.cache() / f"cluster{box.SUFFIX}.lock"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _held.append(True)
        try:
            yield
        finally:
            _held.clear()


def _cluster(programs: Mapping[str, Path], seconds: float = 0.0) -> Cluster:
    plane = ControlPlane("main", 6443, programs)
    return Cluster(plane, Node(plane), HelmController(plane), seconds)
