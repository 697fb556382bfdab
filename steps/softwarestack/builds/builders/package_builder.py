"""Interface of the programs that build packages: EasyBuild and Spack behind one protocol, without starting anything.

A builder writes its files into the workspace of one build, names the programs to run, and reads what each of them did. The caller
runs them in a sandbox, in which the workspace is `/build` and the publish root has the path that users see.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import StackInput, StackPackage

FETCHED: Final = "fetched"
"""Folder of the workspace into which a builder fetches sources that the lock names by SHA-256."""
SOURCES: Final = "sources"
"""Folder of the workspace with the sources of the package that the lock names by SHA-256; read-only."""
PACKAGES, MODULES = "packages", "modules"
"""Folders of the workspace that the sandbox shows at the published paths of packages and modules."""


class BuildPlace(Struct, frozen=True, kw_only=True):
    """Places of one build.

    `workspace` is scratch and goes with the build: its path in the sandbox, while `folder` is its path on this machine. `packages`
    and `modules` are absolute paths as users see them, in which the sandbox shows folders of the workspace. `sources` is the folder
    in the sandbox with those folders of the store that a builder shares between builds (`PackageBuilder.shared`), `archives` are
    the site's own folders of source archives there, read-only.
    """

    workspace: Path
    folder: Path
    packages: str
    modules: str
    sources: Path
    archives: tuple[Path, ...] = ()

    def prefix(self, package_folder: str) -> Path:
        """Return the path on this machine of an installed package's folder."""
        return self.folder / PACKAGES / package_folder


class BuildCommand(Struct, frozen=True, kw_only=True):
    """A program to run for a build: its arguments, environment, the phase that it is, and whether it needs the network.

    `unlocked`: it fetches sources that the lock does not name, so it runs even if the store has all others.
    """

    phase: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    network: bool = False
    unlocked: bool = False


class CommandVerdict(Struct, frozen=True, kw_only=True):
    """Result of one program of a build: the failure (None: it did what it is for), its phase, and the lines that decide it.

    `retry` is true if a repetition may help.
    """

    failure: BuildFailure | None = None
    phase: str = ""
    retry: bool = False
    lines: tuple[str, ...] = ()


class PackageBuilder(Protocol):
    """Program that builds packages of a stack, one at a time."""

    @property
    def name(self) -> str:
        """Return the program with its release, for records."""

    @property
    def programs(self) -> tuple[Path, ...]:
        """Return the folders of this machine that the program needs, its interpreter's included; the sandbox shows them."""

    @property
    def shared(self) -> tuple[str, ...]:
        """Return the names of folders that builds share and write: caches of sources and indices of the program itself."""

    def prepare(self, stack: StackInput, package: StackPackage, place: BuildPlace, /) -> None:
        """Write the files that the commands read into the workspace. Raises BadTask if the stack lacks what they need."""

    def commands(self, stack: StackInput, package: StackPackage, place: BuildPlace, /) -> Sequence[BuildCommand]:
        """Return the programs that fetch, build and install one package, in order. Its dependencies are installed already.

        Those with network are left out if the store has all sources of the package that the lock names.
        """

    def log(self, package: StackPackage, place: BuildPlace, /) -> str:
        """Return the log that the program wrote beside its output, its end if it is long; empty if there is none."""

    def read(self, package: StackPackage, command: BuildCommand, code: int, output: str, /) -> CommandVerdict:
        """Return what one of the commands did, by its exit code, and its stdout and stderr together, followed by its log."""

    def module_files(self, package: StackPackage, written: Iterable[str], /) -> tuple[str, ...]:
        """Return which of the module files that a build wrote into the modules folder belong to the package."""

    def tidy(self, package: StackPackage, prefix: Path, /) -> bool:
        """Remove from the installed files what differs from build to build; return True if the package has files of its own.

        A package without files has only its module, such as that of the operating system's compiler.
        """

    def reproduce(self, stack: StackInput, package: StackPackage, /) -> str:
        """Return the command by which a person repeats the build."""
