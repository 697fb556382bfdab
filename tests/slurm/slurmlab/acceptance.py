"""Runs `bringup accept --slurm` on the login node of the cluster, as a user there would."""

import subprocess
import sys
from dataclasses import dataclass

from slurmlab import configuration
from slurmlab.cluster import ROOT, SlurmCluster

HOME = f"{configuration.SHARED}/state"
FLOOR = 0.01
"""Floor in GB/s: far below what healthy hosts reach on a busy machine, and far above a link that is slowed to 3 MB/s."""
_MPI = ("OMPI_MCA_mpi_yield_when_idle=1", "OMPI_MCA_btl=tcp,self")
"""Settings of the site: ranks share two cores, and TCP is the fabric."""
ENVIRONMENT = ("env", f"--chdir={ROOT}", f"BRINGUP_HOME={HOME}", f"HOME={configuration.SHARED}", "TMPDIR=/tmp", *_MPI)
COMMAND = (*ENVIRONMENT, sys.executable, "-P", "-m", "workflows", "accept", "--slurm", "--level=quick")


@dataclass(frozen=True)
class Accepted:
    """Result of the command: its exit code, all that it printed, and the last line, which is the sentence."""

    code: int
    output: str

    @property
    def sentence(self) -> str:
        return self.output.strip().splitlines()[-1]


def words(*options: str) -> tuple[str, ...]:
    """Return the words of the command with the floor and the GRES of this cluster."""
    return (*COMMAND, f"--floor={FLOOR}", f"--gpus-per-node={configuration.TYPE}:{configuration.PER_NODE}", *options)


def accept(cluster: SlurmCluster, *options: str) -> Accepted:
    """Run the command on the login node to its end."""
    done = subprocess.run(cluster.entering(*words(*options)), capture_output=True, text=True, check=False, timeout=300)
    return Accepted(done.returncode, done.stdout + done.stderr)
