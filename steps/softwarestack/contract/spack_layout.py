"""Rules about Spack that compiler and builder share: which settings reach builds, and the names and places of modules.

The hierarchy is that of Spack's own modules for Lmod with `hierarchy: [mpi]`: `Core`, `COMPILER/VERSION`, and for packages that
need an MPI library `MPI/VERSION-HASH7/Core` or `MPI/VERSION-HASH7/COMPILER/VERSION`. Source: lib/spack/spack/modules/lmod.py of
https://github.com/spack/spack, release 0.23.
"""

from typing import Final

SETTINGS: Final = frozenset({"packages", "compilers", "toolchains"})
"""Sections of `spack.yaml` that reach a build. Sections that say where things lie are written for each build."""
FLAT, HIERARCHICAL = "flat", "hierarchical"
"""Ways to name modules: all in one folder, or by compiler and MPI."""
COMPILER, MPI = "compiler", "mpi"
"""Families of modules that make others visible."""
CORE: Final = "Core"
"""Folder of the modules that need no other; without a hierarchy all lie there, because their versions contain a hash."""
MODULE_HASH_CHARACTERS: Final = 7
"""Characters of the hash in the version of a module, so that builds of one version with other options lie side by side."""


def module_name(name: str, version: str, hash_: str, folder: str = CORE) -> str:
    """Return the full name of a package's module, such as `Core/zlib/1.2.13-72a7sbl`."""
    return f"{folder}/{name}/{hashed(version, hash_)}"


def hashed(version: str, hash_: str) -> str:
    """Return a version with the beginning of the package's hash, as modules and folders of an MPI library are named."""
    return f"{version}-{hash_[:MODULE_HASH_CHARACTERS]}"
