"""Measure how long the real single-node Kubernetes of `tests/cluster` takes to start and to stop, with its programs built."""

import time

from figures import Figures
from real_server import able, lab, parts

READY, GONE = 30.0, 10.0


def main() -> None:
    """Measure."""
    figures = Figures("a real cluster")
    if able(figures, "control plane, node and helm-controller ready"):
        parts.programs()
        with lab.alone():
            lab.down()
            try:
                figures.at_most("control plane, node and helm-controller ready", lab.up().seconds, READY, "s")
                began = time.perf_counter()
            finally:
                lab.down()
            figures.at_most("all of it removed", time.perf_counter() - began, GONE, "s")
    figures.exit()


if __name__ == "__main__":
    main()
