"""A real kube-apiserver with etcd for measuring, made as `tests/cluster` makes it; or the reason why not."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from figures import Figures

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT), str(ROOT / "tests/cluster")]

from kubelab import box, lab, needs, parts  # noqa: E402  below the path that it is found by
from kubelab.control_plane import ControlPlane  # noqa: E402

__all__ = ["ControlPlane", "able", "lab", "parts", "serving"]
PORT = 6743


def able(figures: Figures, part: str) -> bool:
    """Return True if this machine can run a real API server; otherwise report the part as not measured, with the reasons."""
    reasons = needs.missing()
    if reasons:
        figures.skip(part, "; ".join(reasons))
    return not reasons


@contextmanager
def serving() -> Iterator[ControlPlane]:
    """One without controllers while the context lasts, in a box that is nobody else's (`$BRINGUP_CLUSTER_BOX`)."""
    with lab.alone():
        lab.down()
        box.up()
        try:
            plane = ControlPlane("measured", PORT, parts.programs(), controllers=False)
            plane.start()
            yield plane
        finally:
            lab.down()
