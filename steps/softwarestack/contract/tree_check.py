"""The check of an installed tree, as data: its digest and size, and problems that would show on nodes."""

from enum import StrEnum

from msgspec import Struct


class TreeProblemKind(StrEnum):
    """Kind of a problem in an installed tree."""

    DANGLING_LINK = "dangling_link"
    LINK_OUT = "link_out"
    """A symbolic link leads out of the tree to a place that no node has."""
    RPATH = "rpath"
    """An ELF file searches its libraries in a folder that is not in the tree."""
    LIBRARY = "library"
    """An ELF file needs a library that neither the tree nor the operating system has."""
    SHEBANG = "shebang"
    """A script names an interpreter that is not there."""
    MODULE = "module"
    """A module file cannot be read, or names a path that is not there."""
    WORKSPACE = "workspace"
    """A file names the workspace of the build."""
    FACTORY = "factory"
    """A file names a host or a folder of the factory."""
    VIEW = "view"
    """Two packages of the view have one path with other content."""
    MISSING = "missing"
    """A package of the lock is not in the tree."""


class TreeFinding(Struct, frozen=True, kw_only=True):
    """One problem: the path below the tree's root, its kind, and a sentence about it."""

    path: str
    kind: TreeProblemKind
    detail: str


class InstalledPackage(Struct, frozen=True, kw_only=True):
    """A package of an installed tree: hash, folder name, module, and the digest of its archive in the cache."""

    hash: str
    folder: str
    module: str
    archive: str


class TreeObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate stack_tree/tree: the installed tree of a stack.

    `stack` is the digest of `stack.json`, `key` that of the stack's content. `digest` names the tree (STORE/stacks/trees/DIGEST),
    and covers its packages' archives; empty: no tree was made. `size` is in bytes. `problem` is the reason for which no tree could
    be installed, `total_problems` counts those that `problems` had no room for.
    """

    stack: str
    key: str = ""
    digest: str = ""
    packages: tuple[InstalledPackage, ...] = ()
    modules: tuple[str, ...] = ()
    files: int = 0
    size: int = 0
    elf_files: int = 0
    view_links: int = 0
    """Links of the view; 0 without one."""
    problems: tuple[TreeFinding, ...] = ()
    total_problems: int = 0
    seconds: float = 0.0
    problem: str = ""
