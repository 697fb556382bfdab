"""The lock of an EasyBuild stack: every easyconfig of the resolved set by its content, with checksums of its sources.

EasyBuild has no lock file of its own. This one has a package a line, for review. A package's hash covers its easyconfig, its
sources and patches, the release of EasyBuild, the CPU target, and the hashes of all that it needs: if one changes, it is another
package. A lock for several CPU targets has each package once for each of them, with the hash that it has in a lock for that target
alone, so both kinds of locks share builds.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON, canonical
from steps.softwarestack.contract.stack_input import LUA, TCL
from workflows.softwarestack.bounded_files import read_bounded
from workflows.softwarestack.build_graph import MOST_NODES, BuildGraph, LockError, PackageNode

KIND: Final = "easybuild"
SCHEMA: Final = 2
NAMING_SCHEMES: Final = ("EasyBuildMNS", "HierarchicalMNS")
"""Names of modules: all in one folder, or by compiler and MPI."""
LARGEST_BYTES: Final = 64 << 20
_HASH_CHARACTERS: Final = 32


class LockedSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source archive or patch: its file name and SHA-256."""

    name: str
    sha256: str


class LockedEasyconfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One package: its easyconfig's path in the robot folders and SHA-256, its module, and hashes of what it needs.

    `runtime` and `build` are as in `PackageNode`. An `external` is a module that the site provides; it has no easyconfig. `target`
    is the CPU target in a lock for several.
    """

    hash: str
    name: str
    version: str
    module: str
    toolchain: str = ""
    target: str = ""
    easyconfig: str = ""
    sha256: str = ""
    external: bool = False
    runtime: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    sources: tuple[LockedSource, ...] = ()
    patches: tuple[LockedSource, ...] = ()


class EasyBuildLock(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a lock file: the builder, hashes of the roots, and packages after what they need.

    The builder is the release of EasyBuild, the naming scheme of modules, and the CPU target; `syntax` is the language of module
    files if that is not Lua. A lock for several targets has `targets` in place of `target`.
    """

    kind: str
    schema: int
    easybuild: str
    naming: str
    roots: tuple[str, ...]
    packages: tuple[LockedEasyconfig, ...]
    syntax: str = LUA
    target: str = ""
    targets: tuple[str, ...] = ()

    @property
    def builder(self) -> tuple[str, ...]:
        """Release of EasyBuild, naming scheme, CPU targets, and language of modules if not Lua."""
        return (self.easybuild, self.naming, " ".join(self.targets) or self.target, *syntax_words(self.syntax))

    def builder_of(self, package: LockedEasyconfig) -> tuple[str, ...]:
        """Return release of EasyBuild, naming scheme, CPU target, and language if not Lua, as the hash of a package covers them."""
        return (self.easybuild, self.naming, package.target or self.target, *syntax_words(self.syntax))


def syntax_words(syntax: str) -> tuple[str, ...]:
    """Return the words by which the hash of a package covers the language of its module; none for Lua, as in locks from before."""
    return () if syntax == LUA else (syntax,)


def with_hash(builder: Iterable[str], package: LockedEasyconfig) -> LockedEasyconfig:
    """Return a package with its hash: 32 lower-case letters and digits.

    It covers the builder (release of EasyBuild, module naming scheme, CPU target) and everything that the lock says of the package,
    except where its easyconfig lies. So no line of a lock can be edited by hand without another hash.
    """
    fields = msgspec.to_builtins(msgspec.structs.replace(package, hash="", easyconfig=""))
    del fields["target"]  # the builder has it, in locks for one target and for several alike
    fields |= {name: sorted(fields[name]) for name in ("runtime", "build")}
    content = canonical([KIND, list(builder), fields])
    hash_ = base64.b32encode(hashlib.sha256(content).digest()).decode().lower()[:_HASH_CHARACTERS]
    return msgspec.structs.replace(package, hash=hash_)


def parse(content: bytes, source: str) -> EasyBuildLock:
    """Return the lock in a file's content; `source` names it in messages. Raises `LockError`."""
    hint = "make it again with `bringup stack lock`"
    if len(content) > LARGEST_BYTES:
        raise LockError(f"{source}: it has more than {LARGEST_BYTES >> 20} MiB", hint)
    try:
        lock = msgspec.json.decode(content, type=EasyBuildLock)
    except UNREADABLE_JSON as error:
        raise LockError(f"{source}: it is no lock of an EasyBuild stack: {error}", hint) from error
    if lock.kind != KIND or lock.schema != SCHEMA:
        raise LockError(
            f"{source}: it has kind {lock.kind[:40]!r}, schema {lock.schema}; this version reads {KIND}, {SCHEMA}", hint
        )
    if len(lock.packages) > MOST_NODES:
        raise LockError(f"{source}: it lists {len(lock.packages)} packages, at most {MOST_NODES} are planned", hint)
    if problem := next(_problems(lock), ""):
        raise LockError(f"{source}: {problem}", hint)
    return lock


def graph(lock: EasyBuildLock, source: str) -> BuildGraph:
    """Return the graph of a lock. Raises `LockError` if it cannot be planned."""
    nodes = {
        package.hash: PackageNode(
            hash=package.hash,
            name=package.name,
            version=package.version,
            compiler=package.toolchain,
            target=package.target or lock.target,
            external=package.external,
            runtime=package.runtime,
            build=package.build,
        )
        for package in lock.packages
    }
    return BuildGraph(source, nodes, lock.roots, lock.targets)


def text(lock: EasyBuildLock) -> str:
    """Return the JSON text of a lock file, a package a line; equal locks give equal bytes."""
    fields = {"kind": lock.kind, "schema": lock.schema, "easybuild": lock.easybuild}
    target = {"targets": lock.targets} if lock.targets else {"target": lock.target}
    fields |= {"naming": lock.naming, **target, "roots": lock.roots}
    fields |= {} if lock.syntax == LUA else {"syntax": lock.syntax}
    head = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in fields.items()]
    packages = ",\n".join(f"  {json.dumps(_without_defaults(package))}" for package in lock.packages)
    return "\n".join(["{", *head, f' "packages": [\n{packages}\n ]', "}", ""])


def read(path: Path) -> EasyBuildLock:
    """Return the lock in a file. Raises `LockError`."""
    return parse(read_bounded(path, LARGEST_BYTES, "make it with `bringup stack lock`"), str(path))


def _without_defaults(package: LockedEasyconfig) -> dict[str, object]:
    return {key: value for key, value in msgspec.to_builtins(package).items() if value not in ("", False, (), [])}


_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._~-]{0,199}")
_EASYCONFIG = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9+._-]*/)*[A-Za-z0-9][A-Za-z0-9+._-]*\.eb")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*(?:/[A-Za-z0-9][A-Za-z0-9+._-]*)*")
_RELEASE = re.compile(r"[0-9][0-9A-Za-z.]{0,31}")
_TARGET = re.compile(r"[a-z0-9_]{2,30}")


def _problems(lock: EasyBuildLock) -> Iterator[str]:
    """Yield what in a lock cannot be: it may come from outside, and its names become paths and arguments."""
    if not _RELEASE.fullmatch(lock.easybuild):
        yield f"easybuild {lock.easybuild[:60]!r} is no release"
    if lock.naming not in NAMING_SCHEMES:
        yield f"naming {lock.naming[:60]!r} is none of {', '.join(NAMING_SCHEMES)}"
    if lock.syntax not in (LUA, TCL):
        yield f"syntax {lock.syntax[:60]!r} is none of {LUA}, {TCL}"
    yield from _target_problems(lock)
    modules = set[tuple[str, str]]()
    targets = {package.hash: package.target for package in lock.packages}
    for package in lock.packages:
        yield from (f"package {package.name[:100]!r}: {problem}" for problem in _package_problems(package))
        if (package.target, package.module) in modules:
            yield f"module {package.module} is made by two packages"
        modules.add((package.target, package.module))
        if any(targets.get(hash_, package.target) != package.target for hash_ in (*package.runtime, *package.build)):
            yield f"package {package.name[:100]!r} needs one that is built for another CPU target"
        expected = with_hash(lock.builder_of(package), package).hash
        if package.hash != expected:
            yield f"package {package.name}: its hash is {package.hash[:40]!r}, its content has {expected}"


def _target_problems(lock: EasyBuildLock) -> Iterator[str]:
    named = lock.targets or (lock.target,)
    yield from (f"target {target[:60]!r} is no CPU target" for target in named if not _TARGET.fullmatch(target))
    if lock.targets and (lock.target or len(set(lock.targets)) < max(2, len(lock.targets))):
        yield "it has targets beside a target, one target alone, or a target twice"
    members = lock.targets or ("",)
    strange = (package for package in lock.packages if package.target not in members)
    yield from (
        f"package {package.name[:100]!r} has the target {package.target[:60]!r}, which the lock does not" for package in strange
    )


def _package_problems(package: LockedEasyconfig) -> Iterator[str]:
    if not _MODULE.fullmatch(package.module):
        yield f"module {package.module[:100]!r} is no module name"
    if package.external:
        return
    if not _EASYCONFIG.fullmatch(package.easyconfig):
        yield f"easyconfig {package.easyconfig[:100]!r} is no relative path of plain names that ends with .eb"
    if not _SHA256.fullmatch(package.sha256):
        yield f"sha256 {package.sha256[:80]!r} is no digest of 64 hexadecimal digits"
    for file in (*package.sources, *package.patches):
        if not _FILE.fullmatch(file.name):
            yield f"{file.name[:100]!r} is no file name"
        if not _SHA256.fullmatch(file.sha256):
            yield f"{file.name} has the sha256 {file.sha256[:80]!r}, which is no digest of 64 hexadecimal digits"
