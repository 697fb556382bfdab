"""EasyBuild as the program that builds packages: the exact command line of `eb`, its environment, and what it leaves."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps.clients import easybuild_python, process
from steps.errors import BadTask
from steps.softwarestack.builds.builders import log_easybuild
from steps.softwarestack.builds.builders.package_builder import FETCHED, SOURCES, BuildCommand, BuildPlace, CommandVerdict
from steps.softwarestack.cache.package_packing import MTIME
from steps.softwarestack.contract import cpu_targets
from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import LUA, TCL, StackInput, StackPackage, package_folder

FETCH, BUILD = "fetch", "build"
"""Phases of a build, each a command."""
_ROBOT: Final = "easyconfigs"
_SYNTAX: Final = {LUA: "Lua", TCL: "Tcl"}
_FOLDERS: Final = ("home", "logs", "tmp", "work", "easybuild")
"""Folders of the workspace."""
LMOD: Final = "/usr/share/lmod/lmod/libexec/lmod"
"""Lmod's program in packages of Debian, Ubuntu, EPEL and SUSE."""
LONGEST_LOG: Final = 4 << 20
"""Bytes of EasyBuild's log that are read: its end, where it says why it stopped."""
_VERSION: Final = "import importlib.metadata as m; print(m.version('easybuild-framework'))"
_UNLOCKED: Final = re.compile(rb"^(?:exts_list|components|default_component_specs|data_sources)\b", re.MULTILINE)
"""Parameters of an easyconfig that bring sources which the lock does not name; the easyconfig has their checksums."""
_TIMED: Final = re.compile(r"easybuild-.*\.log(\.\w+)?|.*_test_report\.md")
"""Names of files that EasyBuild adds to a package and that say when it was built."""
_MARCH: Final = {
    "icelake": "icelake-client",
    "mic_knl": "knl",
    "k10": "amdfam10",
    "bulldozer": "bdver1",
    "piledriver": "bdver2",
    "steamroller": "bdver3",
    "excavator": "bdver4",
    "zen": "znver1",
    "zen2": "znver2",
    "zen3": "znver3",
    "zen4": "znver4",
    "zen5": "znver5",
    "zen6": "znver6",
    # GCC 12.2, of toolchains that are in use, has no -mcpu=neoverse-v2
    "neoverse_v2": "armv9-a",
}
"""CPU targets (names of archspec) whose name for GCC's -march is another one."""
_MCPU: Final = {"thunderx2": "thunderx2t99"}
"""CPU targets of ARM whose name for GCC's -mcpu is another one; its -march takes architectures there, and no CPUs."""
_GENERIC: Final = frozenset({"x86_64", "aarch64", "ppc64le", "riscv64"})


class EasyBuildInstallation(Struct, frozen=True, kw_only=True):
    """EasyBuild on this machine: its interpreter and that one's folders (environment, base), its release, and Lmod's program."""

    python: str
    release: str
    prefixes: tuple[Path, ...]
    lmod: str


class EasyBuildProgram:
    """Builder of packages of an EasyBuild lock. `content` are the files of the stack by SHA-256."""

    def __init__(self, content: Mapping[str, bytes], installed: EasyBuildInstallation) -> None:
        self._content, self._installed = content, installed

    @property
    def name(self) -> str:
        """Return the program with its release."""
        return f"EasyBuild {self._installed.release}"

    @property
    def programs(self) -> tuple[Path, ...]:
        """Return the folders of the interpreter and of Lmod."""
        return (*self._installed.prefixes, Path(self._installed.lmod).resolve().parent.parent)

    @property
    def shared(self) -> tuple[str, ...]:
        """Return no folders: EasyBuild's builds share nothing but sources that the lock names."""
        return ()

    def prepare(self, stack: StackInput, package: StackPackage, place: BuildPlace) -> None:
        """Write the easyconfigs of the package and of what it needs, and the package's patches. Raises BadTask if one is missing.

        EasyBuild reads the easyconfigs of toolchains to name modules by them, so those of all dependencies are there.
        """
        for needed in (*stack.needed_to_build(package.hash), package):
            if not needed.external:
                self._write(place.folder / _ROBOT / needed.easyconfig, needed.sha256)
        for patch in package.patches:
            self._write(place.folder / SOURCES / patch.name, patch.sha256)
        for name in _FOLDERS:
            (place.folder / name).mkdir()

    def commands(self, stack: StackInput, package: StackPackage, place: BuildPlace) -> Sequence[BuildCommand]:
        """Return `eb --fetch`, which needs no modules, and `eb`, which builds nothing but this easyconfig without --robot."""
        work = place.workspace
        build = (f"--max-parallel={max(1, package.jobs)}", f"--optarch={optarch(stack.target_of(package))}")
        unlocked = _UNLOCKED.search(self._content.get(package.sha256, b"")) is not None
        phases = ((FETCH, ("--fetch",)),) if package.sources or unlocked else ()
        return tuple(
            BuildCommand(
                phase=phase,
                arguments=self._arguments(stack, package, place, options),
                environment=self._environment(work),
                network=phase == FETCH,
                unlocked=phase == FETCH and unlocked,
            )
            for phase, options in (*phases, (BUILD, build))
        )

    def _arguments(self, stack: StackInput, package: StackPackage, place: BuildPlace, options: Sequence[str]) -> tuple[str, ...]:
        work = place.workspace
        return (
            *(self._installed.python, "-I", "-u", "-m", "easybuild.main", str(work / _ROBOT / package.easyconfig)),
            f"--prefix={work / 'easybuild'}",
            f"--robot-paths={work / _ROBOT}",
            # the first one is written: EasyBuild looks for a newer config.guess in builds too, and goes on without
            f"--sourcepath={':'.join(map(str, (work / FETCHED, work / SOURCES, *place.archives)))}",
            f"--buildpath={work / 'work'}",
            f"--installpath-software={place.packages}/{package_folder(package)}",
            f"--installpath-modules={place.modules}",
            *(f"--tmpdir={work / 'tmp'}", f"--tmp-logdir={work / 'logs'}", f"--locks-dir={work / 'locks'}"),
            *(f"--module-naming-scheme={stack.naming}", f"--module-syntax={_SYNTAX[stack.syntax]}", "--modules-tool=Lmod"),
            *("--enforce-checksums", "--umask=022", "--output-style=basic"),
            *options,
        )

    def _environment(self, work: Path) -> dict[str, str]:
        """Return the variables of every program: nothing of the caller's, and no settings of a user or of this machine."""
        home = str(work / "home")
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
            "HOME": home,
            "TMPDIR": str(work / "tmp"),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "SOURCE_DATE_EPOCH": str(MTIME),
            "XDG_CONFIG_HOME": home,
            "XDG_CONFIG_DIRS": home,
            "LMOD_CMD": self._installed.lmod,
            # by its path EasyBuild finds its own scripts, such as the one that adds rpaths
            "EB_SCRIPT_PATH": str(self._installed.prefixes[0] / "bin" / "eb"),
        }

    def log(self, package: StackPackage, place: BuildPlace) -> str:
        """Return the end of EasyBuild's log: in the package after a success, else in the folder for logs."""
        logs_folder = place.folder / "logs"
        folders = (*(() if logs_folder.is_symlink() else (logs_folder,)), *_own_folders(place.prefix(package_folder(package))))
        logs = [path for folder in folders for path in folder.glob("easybuild-*.log") if path.is_file() and not path.is_symlink()]
        return _end_of(max(logs, key=lambda path: path.stat().st_mtime_ns)) if logs else ""

    def read(self, _package: StackPackage, command: BuildCommand, code: int, output: str) -> CommandVerdict:
        """Return what a command did (see `log_easybuild`)."""
        verdict = log_easybuild.read(code, output)
        if command.phase == FETCH and verdict.failure is BuildFailure.UNKNOWN:
            return msgspec.structs.replace(verdict, failure=BuildFailure.FETCH)
        return verdict

    def module_files(self, _package: StackPackage, written: Iterable[str]) -> tuple[str, ...]:
        """Return all module files that were written: EasyBuild builds one package at a time."""
        return tuple(written)

    def tidy(self, _package: StackPackage, prefix: Path) -> bool:
        """Remove EasyBuild's logs, reports and environment from the package; return False if only its own folder is there.

        Modules of compilers and MPI of the operating system have no files.
        """
        for folder in _own_folders(prefix):
            for path in list(folder.rglob("*")):
                if path.suffix == ".env" or _TIMED.fullmatch(path.name):
                    path.unlink()
        roots = [root for root in prefix.glob("*/*") if root.is_dir() and not root.is_symlink()]
        return any(path.name != "easybuild" for root in roots for path in root.iterdir())

    def reproduce(self, stack: StackInput, package: StackPackage) -> str:
        """Return the `eb` command for a laptop, in the folder of the spec; it builds missing dependencies too."""
        words = ["eb", Path(package.easyconfig).name, "--robot", f"--robot-paths={_ROBOT}:", "--rebuild"]
        words += [] if stack.syntax == LUA else [f"--module-syntax={_SYNTAX[stack.syntax]}"]
        words += [f"--module-naming-scheme={stack.naming}", f"--optarch={optarch(stack.target_of(package))}"]
        return f"{shlex.join(words)}  # EasyBuild {stack.release}"

    def _write(self, path: Path, sha256: str) -> None:
        if sha256 not in self._content:
            raise BadTask(f"the files of the stack lack {path.name} ({sha256[:12]})", hint="render the stack again")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._content[sha256])


def optarch(target: str) -> str:
    """Return the value of --optarch for a CPU target by its name in archspec: GENERIC, or the -march or -mcpu of GCC."""
    if target in _GENERIC or not target:
        return "GENERIC"
    name = target.replace("_", "-")
    if cpu_targets.architecture(target) == "aarch64" and target not in _MARCH:
        return f"mcpu={_MCPU.get(target, name)}"
    return f"march={_MARCH.get(target, name)}"


def locate(stack: StackInput, environ: Mapping[str, str]) -> EasyBuildInstallation:
    """Return the EasyBuild of this machine. Raises BadTask if it or Lmod is missing, or if the lock names another release."""
    python = easybuild_python.find_interpreter(environ)
    if not python:
        raise BadTask(easybuild_python.MISSING, hint=easybuild_python.HINT)
    release = process.run([python, "-I", "-c", _VERSION]).out.strip()
    if release != stack.release:
        raise BadTask(
            f"EasyBuild {release or 'none'} is installed for {python}, the lock names {stack.release}",
            hint=f"install easybuild=={stack.release}, or lock the stack again",
        )
    prefixes = process.run([python, "-I", "-c", "import sys; print(sys.prefix, sys.base_prefix, sep='\\n')"]).out.split("\n")
    lmod = environ.get("LMOD_CMD") or LMOD
    if not os.access(lmod, os.X_OK):
        raise BadTask(f"Lmod is not installed: {lmod} is no program", hint="install package lmod, or name its program by LMOD_CMD")
    return EasyBuildInstallation(
        python=python, release=release, prefixes=tuple(Path(prefix) for prefix in prefixes if prefix), lmod=lmod
    )


def _own_folders(prefix: Path) -> list[Path]:
    """Return EasyBuild's own folders in a package, PREFIX/NAME/VERSION/easybuild, without any that a link leads to."""
    return [path for path in prefix.glob("*/*/easybuild") if path.is_dir() and path.resolve().is_relative_to(prefix.resolve())]


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LONGEST_LOG))
        return file.read(LONGEST_LOG).decode(errors="replace")
