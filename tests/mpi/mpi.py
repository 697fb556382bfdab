"""Check or install what the tests of real MPI need on this machine: `mpi.py check | install`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "hosts"))

from hostlab import tier_needs
from mpilab import needs

ABLE = "this machine can run MPI over a fabric of its own"

if __name__ == "__main__":
    sys.exit(tier_needs.command(sys.argv[1:], about=__doc__, able=ABLE, install=needs.install, missing=needs.missing))
