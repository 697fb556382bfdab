"""Lock an EasyBuild stack: have EasyBuild resolve easyconfigs, and take the digests of all that decides the builds.

Easyconfigs are Python that EasyBuild executes as the caller, as `eb` itself does.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from steps.softwarestack.contract.stack_input import LUA
from workflows.softwarestack import easybuild_lock
from workflows.softwarestack.build_graph import LockError
from workflows.softwarestack.easybuild_lock import KIND, SCHEMA, EasyBuildLock, LockedEasyconfig, LockedSource, with_hash

RESOLVE_SECONDS: Final = 600
"""Longest resolution: EasyBuild parses each easyconfig in some 10 ms."""


class ResolvedSource(Struct, frozen=True):
    """A source of an easyconfig; one from Git has no archive that a checksum could fix."""

    name: str
    git: bool


class ResolvedPackage(Struct, frozen=True):
    """One easyconfig as EasyBuild resolved it: what `resolve_easyconfigs` writes. Dependencies are names of modules."""

    easyconfig: str
    name: str
    version: str
    module: str
    toolchain: str
    build: tuple[str, ...]
    runtime: tuple[str, ...]
    external: tuple[str, ...]
    sources: tuple[ResolvedSource, ...]
    patches: tuple[str, ...]
    checksums: tuple[Any, ...]


class _ResolvedSet(Struct, frozen=True):
    easybuild: str
    packages: tuple[ResolvedPackage, ...]


@dataclass(frozen=True, kw_only=True)
class EasyBuildSettings:
    """Settings of a stack for EasyBuild: its release, robot folders, module naming scheme, and root easyconfigs by CPU target.

    `syntax` is the language of module files. `interpreter` is the Python that EasyBuild is installed for.
    """

    interpreter: str
    release: str
    offers: Mapping[str, tuple[Path, ...]]
    robot: tuple[Path, ...]
    naming: str
    syntax: str = LUA

    @property
    def easyconfigs(self) -> tuple[Path, ...]:
        """Root easyconfigs of any target."""
        return tuple(dict.fromkeys(path for paths in self.offers.values() for path in paths))


def lock(settings: EasyBuildSettings) -> EasyBuildLock:
    """Return the lock of a stack. Raises `LockError` if EasyBuild is missing or of another release, or cannot resolve the stack."""
    resolved = _resolve(settings)
    if resolved.easybuild != settings.release:
        raise LockError(
            f"EasyBuild {resolved.easybuild} is installed, the stack names {settings.release}",
            f"install easybuild=={settings.release}, or write easybuild.release: {resolved.easybuild}",
        )
    targets = tuple(settings.offers)
    roots, packages = list[str](), dict[str, LockedEasyconfig]()
    for target in targets:
        wanted = {str(path.resolve()) for path in settings.offers[target]}
        members = _needed(resolved, wanted) if len(targets) > 1 else resolved.packages
        own = {package.hash: package for package in _locked(members, settings, target)}
        by_module = {package.module: package.hash for package in own.values()}
        roots += [by_module[package.module] for package in members if package.easyconfig in wanted]
        packages |= own
    return EasyBuildLock(
        kind=KIND,
        schema=SCHEMA,
        easybuild=resolved.easybuild,
        naming=settings.naming,
        syntax=settings.syntax,
        target=targets[0] if len(targets) == 1 else "",
        targets=targets if len(targets) > 1 else (),
        roots=tuple(roots),
        packages=tuple(packages.values()),
    )


def _needed(resolved: _ResolvedSet, wanted: Container[str]) -> tuple[ResolvedPackage, ...]:
    """Return the packages of some easyconfigs and all that these need, in the order of the resolved set."""
    by_module = {package.module: package for package in resolved.packages}
    waiting = [package.module for package in resolved.packages if package.easyconfig in wanted]
    members = set(waiting)
    while waiting:
        package = by_module.get(waiting.pop())  # none for a module of the site
        fresh = [name for name in (*package.build, *package.runtime) if name not in members] if package else []
        members.update(fresh)
        waiting += fresh
    return tuple(package for package in resolved.packages if package.module in members)


def environment(home: Path) -> dict[str, str]:
    """Return the environment for EasyBuild: of the caller's only search path and language, and `home` for what it writes.

    EasyBuild reads further settings from EASYBUILD_* and from files in the home folder: they would change what is locked unseen.
    """
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return kept | {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_CONFIG_DIRS": str(home)}


def _resolve(settings: EasyBuildSettings) -> _ResolvedSet:
    with tempfile.TemporaryDirectory(prefix="bringup-stack-") as name:
        folder = Path(name)
        out = folder / "resolved.json"
        options = [f"--prefix={folder}", f"--robot={':'.join(str(path.resolve()) for path in settings.robot)}"]
        # --fetch makes EasyBuild do without a modules tool; nothing is fetched, since nothing is built
        options += ["--fetch", "--module-syntax=Lua", f"--module-naming-scheme={settings.naming}"]
        options += ["--allow-use-as-root-and-accept-consequences"] if os.geteuid() == 0 else []
        program = str(Path(__file__).with_name("resolve_easyconfigs.py"))
        paths = ",".join(str(path.resolve()) for path in settings.easyconfigs)
        command = [settings.interpreter, "-I", program, str(out), paths, *options]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=RESOLVE_SECONDS, check=False, cwd=folder, env=environment(folder)
            )
        except subprocess.TimeoutExpired as error:
            raise LockError(f"EasyBuild took longer than {RESOLVE_SECONDS} s", "lock fewer easyconfigs at once") from error
        except OSError as error:
            raise LockError(f"{command[0]} cannot be started: {error.strerror}", "correct EB_PYTHON") from error
        if done.returncode or not out.exists():
            raise LockError(f"EasyBuild cannot resolve the easyconfigs: {_last_line(done.stderr)}", "correct the easyconfig")
        return msgspec.json.decode(out.read_bytes(), type=_ResolvedSet)


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it wrote no reason"


def _locked(packages: Sequence[ResolvedPackage], settings: EasyBuildSettings, target: str) -> Iterator[LockedEasyconfig]:
    """Yield the packages of a resolved set for one CPU target, external modules first, each after what it needs."""
    hashes = dict[str, str]()
    builder = [settings.release, settings.naming, target, *easybuild_lock.syntax_words(settings.syntax)]
    own = target if len(settings.offers) > 1 else ""
    for module in dict.fromkeys(name for package in packages for name in package.external):
        name, _, version = module.rpartition("/")
        external = LockedEasyconfig(hash="", name=name or version, version=version, module=module, external=True, target=own)
        locked = with_hash(builder, external)
        hashes[module] = locked.hash
        yield locked
    for package in packages:
        path = Path(package.easyconfig)
        sha256 = _digest(path)
        checksums = _Checksums(path.name, package)
        unhashed = LockedEasyconfig(
            hash="",
            name=package.name,
            version=package.version,
            module=package.module,
            toolchain=package.toolchain,
            target=own,
            easyconfig=_relative(path, settings.robot),
            sha256=sha256,
            runtime=_hashes(package, package.runtime, hashes),
            build=_hashes(package, package.build, hashes),
            sources=tuple(LockedSource(name=source.name, sha256=checksums.of(source.name)) for source in checksums.archives()),
            patches=tuple(LockedSource(name=name, sha256=checksums.of(name)) for name in package.patches),
        )
        locked = with_hash(builder, unhashed)
        hashes[package.module] = locked.hash
        yield locked


def _hashes(package: ResolvedPackage, modules: Iterable[str], hashes: Mapping[str, str]) -> tuple[str, ...]:
    missing = [module for module in modules if module not in hashes]
    if missing:
        raise LockError(
            f"{Path(package.easyconfig).name} needs {missing[0]}, which no easyconfig of the robot folders makes",
            "add its easyconfig to a robot folder",
        )
    return tuple(hashes[module] for module in modules)


def _relative(path: Path, robot: Sequence[Path]) -> str:
    for folder in robot:
        if path.is_relative_to(folder.resolve()):
            return str(path.relative_to(folder.resolve()))
    raise LockError(f"{path} is in no robot folder", "add its folder to easybuild.robot")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class _Checksums:
    """The SHA-256 of each source and patch of an easyconfig. Every file must have one, else the lock would fix nothing."""

    def __init__(self, easyconfig: str, package: ResolvedPackage) -> None:
        self._easyconfig, self._package = easyconfig, package
        files = [*(source.name for source in package.sources), *package.patches]
        self._by_file = dict(zip(files, package.checksums, strict=False))

    def archives(self) -> tuple[ResolvedSource, ...]:
        """Return the sources. Raises `LockError` for one from Git, which no checksum fixes."""
        for source in self._package.sources:
            if source.git:
                problem = f"{self._easyconfig} takes its source from Git, which no checksum fixes"
                raise LockError(problem, "name a release archive with its checksum")
        return self._package.sources

    def of(self, file: str) -> str:
        """Return the SHA-256 of a source or patch."""
        checksum = self._by_file.get(file)
        if isinstance(checksum, dict):
            checksum = checksum.get(file)
        if isinstance(checksum, list) and len(checksum) == 2 and checksum[0] == "sha256":
            checksum = checksum[1]
        if isinstance(checksum, str) and len(checksum) == 64:
            return checksum.lower()
        raise LockError(f"{self._easyconfig} has no SHA-256 for {file}", f"run `eb {self._easyconfig} --inject-checksums`")
