"""Simulate a cluster for a rehearsal on Argo, as the only process of a pod of home: `python -m workflows.rehearsal.home_pod`.

Steps in other pods reach its API server and its simulator through a Service, by TLS. The process ends with SIGTERM.
"""

import argparse
import gzip
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from workflows.rehearsal.simulated_cluster import FLEET, ServedAddress, simulated_cluster

PACKED_FLEET = f"{FLEET}.gz"
"""Name of the compressed file of machines in the folder that the pod is given; a Secret holds at most 1 MiB."""
_ENDING = {signal.SIGTERM, signal.SIGINT}


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m workflows.rehearsal.home_pod", description=__doc__)
    parser.add_argument("--files", type=Path, required=True, help="folder with tls.crt, tls.key, token and machines.json.gz")
    parser.add_argument("--host", required=True, help="DNS name by which steps reach this process")
    parser.add_argument("--api-port", type=int, required=True)
    parser.add_argument("--control-port", type=int, required=True)
    parser.add_argument("--git-root", type=Path, required=True, help="folder in the run store that stands for all Git servers")
    parser.add_argument("--simulator", action="append", default=[], metavar="OPTION", help="an option of the simulator; repeat")
    chosen = parser.parse_args(arguments)
    served = ServedAddress(files=chosen.files, host=chosen.host, api_port=chosen.api_port, control_port=chosen.control_port)
    with tempfile.TemporaryDirectory(prefix="bringup-") as scratch:
        fleet = Path(scratch) / FLEET
        fleet.write_bytes(gzip.decompress((chosen.files / PACKED_FLEET).read_bytes()))
        folder = Path(scratch) / "cluster"
        with simulated_cluster(folder, fleet, chosen.simulator, served=served, git_root=chosen.git_root):
            # blocked only now: the processes of the cluster, which have begun, would inherit the mask
            signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
            sys.stdout.write(f"the simulated cluster serves at {chosen.host}\n")
            sys.stdout.flush()
            signal.sigwait(_ENDING)
    shutil.rmtree(chosen.git_root, ignore_errors=True)  # nobody needs the stand-ins of Git servers after the run
    return 0


if __name__ == "__main__":
    sys.exit(main())
