"""The MPI program that measures bandwidth: the site's own, OSU's `osu_bw` if it is installed, else one that mpicc compiles here."""

import shutil
from importlib import resources
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps.clients import slurm_tools
from steps.errors import BadTask
from steps.slurmacceptance.task_scope import ScopeArguments

OSU: Final = "osu_bw"
SOURCE: Final = "pair_bandwidth.c"
_PREFERRED: Final = ("pmix", "pmi2", "cray_shasta")
"""MPI plugins of Slurm by which a program is launched, the best first: OpenMPI needs PMIx, MPICH and MVAPICH speak PMI-2."""


class BandwidthProgram(Struct, frozen=True, kw_only=True):
    """Program with its arguments, and how srun launches it.

    `both`: it measures both directions in one run. `groups`: it takes more than two ranks, which then all exchange data at once.
    """

    title: str
    command: tuple[str, ...]
    mpi: str
    both: bool = False
    groups: bool = False


def chosen(scope: ScopeArguments, folder: Path) -> BandwidthProgram:
    """Return the program for a run; ours is compiled into its folder. Raises BadTask if there is none."""
    mpi = scope.mpi or _plugin()
    if scope.program:
        return BandwidthProgram(title=" ".join(scope.program)[:200], command=scope.program, mpi=mpi)
    if path := shutil.which(OSU):
        bytes_text = str(scope.mebibytes << 20)
        return BandwidthProgram(title=OSU, command=(path, "-m", f"{bytes_text}:{bytes_text}"), mpi=mpi)
    if compiler := shutil.which("mpicc"):
        command = (_compiled(compiler, folder), str(scope.mebibytes), str(scope.seconds))
        return BandwidthProgram(title="pair_bandwidth, compiled by mpicc", command=command, mpi=mpi, both=True, groups=True)
    hint = "load an MPI module, or name a program that all nodes have with --bandwidth-command"
    raise BadTask(f"neither {OSU} nor mpicc is on this login node", hint=hint)


def _compiled(compiler: str, folder: Path) -> str:
    """Compile our program into the shared folder and return its path. Raises BadTask."""
    source, program = folder / SOURCE, folder / "pair_bandwidth"
    source.write_bytes(resources.files("steps.slurmacceptance").joinpath(SOURCE).read_bytes())
    done = slurm_tools.ask(compiler, "-O2", "-o", str(program), str(source))
    if done.code:
        line = next(iter((done.err or done.out).strip().splitlines()), "no word")[:300]
        raise BadTask(f"mpicc cannot compile {SOURCE}: {line}", hint="name a program with --bandwidth-command")
    return str(program)


def _plugin() -> str:
    done = slurm_tools.ask("srun", "--mpi=list")
    words = (done.out + done.err).split()
    return next((name for name in _PREFERRED if name in words), "none")
