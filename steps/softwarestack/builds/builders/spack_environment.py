"""Files with which Spack builds one package of a stack: an environment with its part of the lock, and a configuration scope. Pure.

The layout of the publish root is Spack's own install tree: each package is built in the folder in which users see it, so nothing is
relocated. Settings of the site and of the user do not reach a build; what may differ between stacks stands in `spack.yaml`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from steps.contract.canonical import UNREADABLE_JSON, digest
from steps.errors import BadTask
from steps.softwarestack.builds.builders.package_builder import BuildPlace
from steps.softwarestack.contract import spack_layout
from steps.softwarestack.contract.spack_layout import MODULE_HASH_CHARACTERS, SETTINGS
from steps.softwarestack.contract.stack_input import HASH_CHARACTERS, SpackFiles, StackInput, StackPackage

ENVIRONMENT: Final = "spack-env"
SCOPE: Final = "spack-scope"
REPOSITORIES: Final = "spack-repos"
"""Folders of the workspace."""
STAGE: Final = "stage"
ARCHIVES: Final = "spack-archives"
"""Folder that builds share: archives by their SHA-256."""
MODULES, TCL_MODULES = "all", "tcl"
"""Folders below that of the modules: Spack writes each module in Lua and in Tcl. A tree has one of both (`module_placement`)."""
_COMPILERS_ARE_PACKAGES: Final = 6
"""Version of lock files since which repositories have names, and compilers are packages (Spack 1.0)."""
_COMPILERS: Final = frozenset({"aocc", "gcc", "intel-oneapi-compilers", "llvm", "nvhpc"})
_CONNECT_SECONDS: Final = 10
_AGAIN: Final = "render the stack again"


class _LockFormat(Struct, frozen=True, rename="kebab"):
    file_type: str = ""
    lockfile_version: int = 0
    specfile_version: int = 0


class _LockContent(Struct, frozen=True, omit_defaults=True):
    """`spack.lock`: packages stay as they are written, since their hash is that of their content."""

    meta: _LockFormat = field(name="_meta")
    concrete_specs: dict[str, msgspec.Raw]
    roots: tuple[dict[str, Any], ...] = ()
    spack: dict[str, Any] = {}


class _LockedNeed(Struct, frozen=True):
    hash: str


class _LockedCompiler(Struct, frozen=True):
    name: str
    version: str


class _LockedSpec(Struct, frozen=True):
    name: str
    version: str = ""
    compiler: _LockedCompiler | None = None
    dependencies: tuple[_LockedNeed, ...] = ()


def files(
    stack: StackInput, content: Mapping[str, bytes], package: StackPackage, place: BuildPlace, indices: str
) -> dict[str, bytes]:
    """Return the files of one build by their path in its workspace. Raises BadTask if the stack has no such files, or other ones.

    `content` are the files of the stack by SHA-256, `indices` is the name of the shared folder with Spack's indices.
    """
    spack = stack.spack
    if spack is None:
        raise BadTask(f"stack {stack.name} has no files of Spack", hint=_AGAIN)
    lock = _file(content, spack.lock, "spack.lock")
    settings = _settings(_file(content, spack.settings, "the settings of spack.yaml"))
    if unknown := sorted(settings.keys() - SETTINGS):
        raise BadTask(f"section {unknown[0][:40]!r} of spack.yaml does not reach a build", hint=_AGAIN)
    environment = {"spack": {"specs": [], "view": False, "concretizer": {"unify": True}} | settings}
    written = {
        f"{ENVIRONMENT}/spack.yaml": _encoded(environment),
        f"{ENVIRONMENT}/spack.lock": pruned_lock(lock, package.hash),
    }
    for name, section in _scope(stack, spack, _lock_file(lock), place, indices):
        written[f"{SCOPE}/{name}.yaml"] = _encoded({name: section})
    for recipe in spack.recipes:
        written[f"{REPOSITORIES}/{recipe.path}"] = _file(content, recipe.sha256, recipe.path)
    return written


def indices_folder(stack: StackInput, release: str) -> str:
    """Return the name of the shared folder with indices over all recipes, which take 53 CPU seconds to make.

    Spack names an index by the namespace of a repository alone, so stacks do not share them. Recipes of a build are newer than the
    indices, so Spack indexes these again, which takes some milliseconds each.
    """
    key = digest([release, stack.name, list(stack.spack.repositories) if stack.spack else []])
    return f"spack-indices-{key.removeprefix('sha256:')[:16]}"


def pruned_lock(lock: bytes, hash_: str) -> bytes:
    """Return a lock with one root, and the packages that it needs to build and to run.

    Raises BadTask if a package is missing, or the file is no lock.
    """
    file = _lock_file(lock)
    kept, waiting = dict[str, msgspec.Raw](), [hash_]
    while waiting:
        needed = waiting.pop()
        if needed in kept:
            continue
        if needed not in file.concrete_specs:
            raise BadTask(f"spack.lock has no package {needed[:40]!r}", hint=_AGAIN)
        kept[needed] = file.concrete_specs[needed]
        waiting += [dependency.hash for dependency in _spec(kept[needed]).dependencies]
    root = next((entry for entry in file.roots if entry.get("hash") == hash_), None)
    if root is None:  # keys beside these two, such as `group` since version 7, are those of the other roots
        root = next(iter(file.roots), {}) | {"hash": hash_, "spec": _spec(kept[hash_]).name}
    return msgspec.json.encode(msgspec.structs.replace(file, roots=(root,), concrete_specs=kept))


def module_paths(package: StackPackage) -> tuple[str, str]:
    """Return the paths of a package's module files, in Lua and in Tcl, below the folder of modules."""
    name = spack_layout.module_name(package.name, package.version, package.hash)
    return f"{MODULES}/{name}.lua", f"{TCL_MODULES}/{name}"


def _scope(stack: StackInput, spack: SpackFiles, lock: _LockContent, place: BuildPlace, indices: str) -> Iterator[tuple[str, Any]]:
    """Yield the sections of the configuration scope by name. All paths are those of the sandbox."""
    work = place.workspace
    yield (
        "config",
        {
            "install_tree": {"root": place.packages, "projections": {"all": f"{{name}}-{{version}}-{{hash:{HASH_CHARACTERS}}}"}},
            "build_stage": [str(work / STAGE)],
            "test_stage": str(work / "test"),
            "source_cache": str(place.sources / ARCHIVES),
            "misc_cache": str(place.sources / indices),
            "ccache": False,
            "connect_timeout": _CONNECT_SECONDS,
        },
    )
    yield "modules", {"default": _modules(stack, lock, place)}
    yield "mirrors", {f"site-{number}": _mirror(folder) for number, folder in enumerate(stack.sources)}
    paths = [path if path.startswith("/") else str(work / REPOSITORIES / path) for path in spack.repositories]
    is_named = lock.meta.lockfile_version >= _COMPILERS_ARE_PACKAGES
    yield "repos", {re.sub(r"\W", "_", path.rsplit("/", 1)[-1]): path for path in paths} if is_named else paths


def _mirror(folder: str) -> dict[str, Any]:
    return {"url": f"file://{folder}", "source": True, "binary": False}


def _modules(stack: StackInput, lock: _LockContent, place: BuildPlace) -> dict[str, Any]:
    """Return the settings by which Spack writes two module files after each install, both in one folder.

    Trees place them by compiler and MPI: packages are shared by stacks with and without a hierarchy.
    """
    both: dict[str, Any] = {
        "hash_length": MODULE_HASH_CHARACTERS,
        # externals have no module here, and Lmod refuses a module that depends on a missing one
        "exclude": [f"{package.name}/{package.hash}" for package in stack.packages if package.external],
        "all": {"autoload": "direct", "environment": {"set": {"{name}_ROOT": "{prefix}"}}},
    }
    return {
        "enable": ["lmod", "tcl"],
        "arch_folder": False,
        "roots": {"lmod": f"{place.modules}/{MODULES}", "tcl": f"{place.modules}/{TCL_MODULES}/{spack_layout.CORE}"},
        # with one colon Spack would add its own default, a hierarchy by MPI (etc/spack/defaults/modules.yaml)
        "lmod": both | {"core_compilers": _compilers(lock), "hierarchy:": []},
        "tcl": both | {"projections": {"all": "{name}/{version}"}},
    }


def _compilers(lock: _LockContent) -> list[str]:
    """Return the compilers of a lock, such as `gcc@12.2.0`: with all of them as core compilers, all modules lie in one folder."""
    names = set[str]()
    for spec in map(_spec, lock.concrete_specs.values()):
        if spec.compiler is not None:
            names.add(f"{spec.compiler.name}@{spec.compiler.version}")
        elif spec.name in _COMPILERS:
            names.add(f"{spec.name}@{spec.version}")
    return sorted(names)


def _settings(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except UNREADABLE_JSON as error:
        raise BadTask(f"the settings of spack.yaml are no JSON object: {error}", hint=_AGAIN) from error


def _lock_file(data: bytes) -> _LockContent:
    try:
        return msgspec.json.decode(data, type=_LockContent)
    except UNREADABLE_JSON as error:
        raise BadTask(f"spack.lock is no lock: {error}", hint=_AGAIN) from error


def _spec(data: msgspec.Raw) -> _LockedSpec:
    try:
        return msgspec.json.decode(data, type=_LockedSpec)
    except UNREADABLE_JSON as error:
        raise BadTask(f"spack.lock has a package that cannot be read: {error}", hint=_AGAIN) from error


def _file(content: Mapping[str, bytes], sha256: str, what: str) -> bytes:
    if sha256 not in content:
        raise BadTask(f"the files of the stack lack {what} ({sha256[:12]})", hint=_AGAIN)
    return content[sha256]


def _encoded(section: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(section, order="sorted") + b"\n"  # JSON is YAML, and needs no quoting rules
