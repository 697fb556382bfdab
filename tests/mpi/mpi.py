"""Check or install what the tests of real MPI need on this machine: `mpi.py check | install`."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "hosts"))

from mpilab import needs


def main(arguments: list[str]) -> int:
    """Run one command; 0 if this machine can run the tier, 1 if not."""
    parser = argparse.ArgumentParser(prog="mpi.py", description=__doc__)
    parser.add_argument("command", choices=("check", "install"))
    if parser.parse_args(arguments).command == "install":
        needs.install()
    reasons = needs.missing()
    print("\n".join(reasons) if reasons else "this machine can run MPI over a fabric of its own", file=sys.stderr)
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
