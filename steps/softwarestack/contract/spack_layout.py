"""Rules about Spack that compiler and builder share: which settings reach builds, and the names of modules."""

from typing import Final

SETTINGS: Final = frozenset({"packages", "compilers", "toolchains"})
"""Sections of `spack.yaml` that reach a build. Sections that say where things lie are written for each build."""
CORE: Final = "Core"
"""Folder of all module files. No compiler or MPI must be loaded first: versions of modules contain a hash."""
MODULE_HASH_CHARACTERS: Final = 7
"""Characters of the hash in the version of a module, so that builds of one version with other options lie side by side."""


def module_name(name: str, version: str, hash_: str) -> str:
    """Return the full name of a package's module, such as `Core/zlib/1.2.13-72a7sbl`."""
    return f"{CORE}/{name}/{version}-{hash_[:MODULE_HASH_CHARACTERS]}"
