"""Lock files of large synthetic stacks: a matrix of compilers, MPIs and packages, the shape of a published case study."""

import json
import random
from typing import Any

ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
TOOLS = ("cmake", "perl", "python", "zlib", "bzip2", "xz", "zstd", "openssl", "curl", "ncurses")
LIBRARIES = (
    *("hdf5", "netcdf-c", "netcdf-fortran", "openblas", "fftw", "petsc", "slepc", "trilinos", "boost", "hypre", "mumps", "metis"),
    *("parmetis", "scotch", "suite-sparse", "superlu-dist", "gsl", "eigen", "elpa", "libxc", "gromacs", "lammps", "openfoam"),
    *("quantum-espresso", "cp2k", "nwchem", "wrf", "paraview", "vtk", "r", "py-numpy", "py-scipy", "py-mpi4py", "namd", "plumed"),
    *("gdal", "proj", "geos", "cdo", "nco", "ior", "osu-micro-benchmarks", "hpl", "hpcg", "stream", "amber", "siesta", "octopus"),
)


class MatrixLock:
    """A lock file of a synthetic stack, with hashes and dependencies from a seed."""

    def __init__(self, seed: int = 1) -> None:
        self.chance = random.Random(seed)
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


def matrix(compilers: int, copies: int) -> MatrixLock:
    """Return a lock with tools for each compiler and, for each of three MPIs, the libraries, `copies` times."""
    lock = MatrixLock()
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
