"""Spack as the program that builds packages: its command lines for one hash of a lock, its environment, and what it leaves.

A package is built by the form that Spack's own `env depfile` writes, `install --only-concrete --only=package --no-cache /HASH`: its
dependencies were unpacked from the build cache into the install tree, and `reindex` tells Spack that they are there. Spack's own
binary caches are not used: they relocate packages, `push --force` deletes before it writes, and `buildcache check` cannot tell
a package that is there from one that is not.
"""

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps import timeouts
from steps.clients import process
from steps.errors import BadTask
from steps.softwarestack.builds.builders import log_spack, spack_environment
from steps.softwarestack.builds.builders.package_builder import MODULES, BuildCommand, BuildPlace, CommandVerdict, PackageBuilder
from steps.softwarestack.builds.builders.spack_environment import ARCHIVES, ENVIRONMENT, SCOPE, STAGE
from steps.softwarestack.cache.package_packing import MTIME
from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import StackInput, StackPackage

FETCH, REINDEX, INSTALL = "fetch", "reindex", "install"
"""Phases of a build, each a command."""
INTERPRETER: Final = "SPACK_PYTHON"
"""Variable with the interpreter for Spack, as Spack itself reads it."""
_KEPT: Final = frozenset({"spec.json", "repos"})
"""Entries of a package's folder `.spack` that stay: all others say when, where and by whom it was built."""
_METADATA: Final = ".spack"
_WRITTEN_ON: Final = re.compile(rb"^((?:--|##) Module file created by spack \([^)\n]*\)) on [^\n]*$", re.MULTILINE)
"""Line of a module file with the time at which it was written, which makes equal builds differ."""
_FOLDERS: Final = ("home", "tmp", STAGE)


class SpackInstallation(Struct, frozen=True, kw_only=True):
    """Spack on this machine: its program, release, commit, and interpreter (empty: the system's) with the folders of that."""

    program: str
    release: str
    commit: str = ""
    python: str = ""
    prefixes: tuple[Path, ...] = ()


class SpackProgram(PackageBuilder):
    """Builder of packages of a `spack.lock`. `content` are the files of the stack by SHA-256."""

    def __init__(self, stack: StackInput, content: Mapping[str, bytes], installed: SpackInstallation) -> None:
        self._stack, self._content, self._installed = stack, content, installed
        self._indices = spack_environment.indices_folder(stack, f"{installed.release} {installed.commit}")

    @property
    def name(self) -> str:
        """Return the program with its release."""
        return f"Spack {self._installed.release}"

    @property
    def programs(self) -> tuple[Path, ...]:
        """Return the folders of Spack, its interpreter, package repositories of the machine, and source mirrors."""
        repositories = self._stack.spack.repositories if self._stack.spack else ()
        folders = [*self._stack.sources, *(path for path in repositories if path.startswith("/"))]
        return (Path(self._installed.program).resolve().parent.parent, *self._installed.prefixes, *map(Path, folders))

    @property
    def shared(self) -> tuple[str, ...]:
        """Return the folders of indices over all recipes, and of archives by their SHA-256, which Spack checks at each use."""
        return (self._indices, ARCHIVES)

    def prepare(self, stack: StackInput, package: StackPackage, place: BuildPlace) -> None:
        """Write environment, configuration and package repositories of a build. Raises BadTask if the stack lacks them."""
        for name, data in spack_environment.files(stack, self._content, package, place, self._indices).items():
            path = place.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for name in _FOLDERS:
            (place.folder / name).mkdir(exist_ok=True)

    def commands(self, stack: StackInput, package: StackPackage, place: BuildPlace) -> Sequence[BuildCommand]:
        """Return the commands that fetch the sources of a package, find its dependencies, and build and install it."""
        phases = [self._command(FETCH, ("fetch", f"/{package.hash}"), place)]
        if any(not needed.external for needed in stack.needed_to_build(package.hash)):
            phases.append(self._command(REINDEX, ("reindex",), place))
        jobs = f"-j{max(1, package.jobs)}"
        install = ("install", jobs, "--only-concrete", "--only=package", "--no-cache", f"/{package.hash}")
        return (*phases, self._command(INSTALL, install, place))

    def log(self, package: StackPackage, place: BuildPlace) -> str:  # noqa: ARG002  # other tools write a log of their own
        """Return nothing: Spack prints the decisive part of a build's log."""
        return ""

    def read(self, package: StackPackage, command: BuildCommand, code: int, output: str) -> CommandVerdict:  # noqa: ARG002
        """Return what a command did: an install counts only if Spack names the package as installed."""
        verdict = log_spack.read(command.arguments, code, output)
        failure = verdict.failure
        if command.phase == FETCH and failure is BuildFailure.UNKNOWN:
            failure = BuildFailure.FETCH
        phase = "" if failure is None else verdict.phase or command.phase
        return CommandVerdict(failure=failure, phase=phase, retry=verdict.retry, lines=verdict.lines)

    def module_files(self, package: StackPackage, written: Iterable[str]) -> tuple[str, ...]:
        """Return those of the package's two module files that are there; Spack writes them after the install."""
        wanted = spack_environment.module_paths(package)
        return tuple(path for path in written if path in wanted)

    def tidy(self, package: StackPackage, prefix: Path) -> bool:
        """Remove logs, the manifest with owners and times, and the time in the module files.

        Each package has files, at least its `spec.json`, by which Spack finds it as a dependency.
        """
        for path in spack_environment.module_paths(package):
            module = prefix.parent.with_name(MODULES) / path
            if module.is_file() and not module.is_symlink():
                module.write_bytes(_WRITTEN_ON.sub(rb"\1", module.read_bytes(), count=1))
        for entry in (prefix / _METADATA).iterdir():
            if entry.name in _KEPT:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        return True

    def reproduce(self, stack: StackInput, package: StackPackage) -> str:
        """Return the command that builds the package and all that it needs, in the folder of the spec."""
        words = ["spack", "-e", ".", "install", "--only-concrete", f"/{package.hash}"]
        return f"{shlex.join(words)}  # with Spack {stack.release}"

    def _command(self, phase: str, arguments: Sequence[str], place: BuildPlace) -> BuildCommand:
        work = place.workspace
        head = (self._installed.program, "-C", str(work / SCOPE), "-e", str(work / ENVIRONMENT))
        return BuildCommand(phase=phase, arguments=(*head, *arguments), environment=self._environment(work), network=phase == FETCH)

    def _environment(self, work: Path) -> dict[str, str]:
        """Return the variables that keep Spack to the workspace: no settings of a user or of the system, and no colours."""
        home = str(work / "home")
        variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
            "HOME": home,
            "TMPDIR": str(work / "tmp"),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "SOURCE_DATE_EPOCH": str(MTIME),
            "SPACK_DISABLE_LOCAL_CONFIG": "1",
            "SPACK_USER_CONFIG_PATH": f"{home}/config",
            "SPACK_USER_CACHE_PATH": f"{home}/cache",
            "SPACK_GNUPGHOME": f"{home}/gnupg",
            "SPACK_COLOR": "never",
        }
        return variables | ({INTERPRETER: self._installed.python} if self._installed.python else {})


def locate(stack: StackInput, environ: Mapping[str, str]) -> SpackInstallation:
    """Return the Spack of this machine. Raises BadTask if it is missing, or if the lock was made by another release."""
    program = shutil.which("spack", path=environ.get("PATH", os.defpath))
    if program is None:
        raise BadTask("spack is not on the search path", hint="use a builder image that has it, or add its folder bin to PATH")
    done = process.run([program, "--version"], seconds=timeouts.SPACK_START)
    release, _, commit = done.out.strip().partition(" ")
    if done.code or not release:
        raise BadTask(f"{program} --version ended with {done.code}: {done.err.strip()[-200:]}", hint="repair Spack's installation")
    if stack.release and release != stack.release:
        raise BadTask(f"Spack {release} is installed as {program}, the lock is of {stack.release}", hint="install that release")
    python = environ.get(INTERPRETER, "")
    prefixes = _prefixes(python) if python else ()
    return SpackInstallation(program=program, release=release, commit=commit, python=python, prefixes=prefixes)


def _prefixes(python: str) -> tuple[Path, ...]:
    done = process.run([python, "-I", "-c", "import sys; print(sys.prefix, sys.base_prefix, sep='\\n')"])
    return tuple(Path(prefix) for prefix in done.out.split("\n") if prefix)
