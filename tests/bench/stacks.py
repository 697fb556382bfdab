"""Software stacks: makespan of 450 builds beside its bound, tier barriers and one after another; the plan of 10,000 packages.

The stack of 450 builds has the shape of a published case study, 3 compilers × 3 MPIs × about 50 packages, with estimated durations.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from figures import Figures

ROOT = Path(__file__).parents[2]
SEED = 1
RATIO, PLAN_S, PLAN_MIB, BUILD_BYTES = 1.05, 2.0, 300.0, 200.0
SLOTS = (4, 16, 64)
ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
TOOLS = ("cmake", "perl", "python", "zlib", "bzip2", "xz", "zstd", "openssl", "curl", "ncurses")
LIBRARIES = (
    *("hdf5", "netcdf-c", "netcdf-fortran", "openblas", "fftw", "petsc", "slepc", "trilinos", "boost", "hypre", "mumps", "metis"),
    *("parmetis", "scotch", "suite-sparse", "superlu-dist", "gsl", "eigen", "elpa", "libxc", "gromacs", "lammps", "openfoam"),
    *("quantum-espresso", "cp2k", "nwchem", "wrf", "paraview", "vtk", "r", "py-numpy", "py-scipy", "py-mpi4py", "namd", "plumed"),
    *("gdal", "proj", "geos", "cdo", "nco", "ior", "osu-micro-benchmarks", "hpl", "hpcg", "stream", "amber", "siesta", "octopus"),
)


class Lock:
    """A lock file of a synthetic stack, with hashes and dependencies from a seed."""

    def __init__(self) -> None:
        self.chance = random.Random(SEED)
        self.specs = dict[str, dict[str, Any]]()

    def add(self, name: str, compiler: str, runtime: list[str], build: list[str]) -> str:
        """Add a package and return its hash."""
        hash_ = "".join(self.chance.choice(ALPHABET) for _ in range(32))
        edges = [(needed, ["build", "link"]) for needed in runtime] + [(needed, ["build"]) for needed in build]
        self.specs[hash_] = {
            "name": name,
            "version": "1.0",
            "arch": {"platform": "linux", "platform_os": "debian12", "target": {"name": "x86_64_v3", "features": ["avx2"] * 40}},
            "compiler": {"name": "gcc", "version": compiler},
            "parameters": {"build_system": "cmake", "shared": True, "patches": ["0" * 64] * 2, "cflags": [], "ldflags": []},
            "package_hash": "0" * 52,
            "dependencies": [{"name": "", "hash": one, "parameters": {"deptypes": types, "virtuals": []}} for one, types in edges],
        }
        return hash_

    def text(self) -> str:
        """Return the file's content; every package is a root."""
        meta = {"file-type": "spack-lockfile", "lockfile-version": 5, "specfile-version": 4}
        roots = [{"hash": hash_, "spec": spec["name"]} for hash_, spec in self.specs.items()]
        return json.dumps({"_meta": meta, "roots": roots, "concrete_specs": self.specs})


def matrix(compilers: int, copies: int) -> Lock:
    """Return a lock with tools for each compiler and, for each of three MPIs, the libraries, `copies` times."""
    lock = Lock()
    for compiler in range(compilers):
        version = f"{11 + compiler}.1.0"
        tools = [lock.add(name, version, [], []) for name in TOOLS[:2]]
        for mpi in ("openmpi", "mpich", "mvapich2"):
            base = lock.add(mpi, version, [], tools[:1])
            for _ in range(copies):
                built = list[str]()
                for name in LIBRARIES:
                    needed = lock.chance.sample(built, min(len(built), lock.chance.choice([0, 1, 1, 2, 3])))
                    built.append(lock.add(name, version, [base, *needed], tools))
    return lock


def makespans(figures: Figures) -> None:
    """Print the makespans of the stack of 450 builds."""
    sys.path.insert(0, str(ROOT))
    from workflows.softwarestack import build_tasks, spack_lock, stack_plan

    plan = stack_plan.plan(spack_lock.parse(matrix(3, 1).text().encode(), "synthetic"))
    schedule = plan.schedule
    figures.note("builds, one after another", f"{len(plan.builds)} builds, {schedule.serial / 3600:.1f} h")
    for slots in SLOTS:
        makespan, barriers = schedule.makespan(slots), schedule.tier_barriers(slots)
        figures.at_most(f"{slots} slots, makespan / bound", makespan / schedule.bound(slots), RATIO, "")
        figures.note(f"{slots} slots", f"{makespan / 3600:.2f} h, with tier barriers {barriers / 3600:.2f} h")
    figures.at_most("rendered, each build", build_tasks.rendered_bytes(plan) / len(plan.builds), BUILD_BYTES, "B")


def large_plan(figures: Figures) -> None:
    """Print time and memory of `bringup stack plan` for 10,000 packages, in a process of its own."""
    lock = matrix(5, 13)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "spack.lock")
        file.write_text(lock.text())
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "workflows", "stack", "plan", str(file), "-o", "json"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        figures.note("large lock", f"{len(lock.specs)} packages, {file.stat().st_size >> 20} MiB")
    plan = json.loads(done.stdout)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures.at_most("plan of the large lock, CPU", cpu, PLAN_S, "s")
    figures.at_most("plan of the large lock, memory", after.ru_maxrss / 1024, PLAN_MIB, "MiB")
    figures.at_most("large lock rendered, each build", plan["rendered_bytes"] / plan["builds"], BUILD_BYTES, "B")


def main() -> None:
    """Measure."""
    figures = Figures("stacks")
    makespans(figures)
    large_plan(figures)
    figures.exit()


if __name__ == "__main__":
    main()
