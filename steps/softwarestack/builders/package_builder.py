"""Interface of the programs that build packages: EasyBuild and Spack behind one protocol, without starting anything.

A builder writes its files into the workspace of one build, names the programs to run, and reads what each of them did. The caller
runs them in a sandbox, in which the workspace has its own path, and the publish root has the path that users see.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import StackInput, StackPackage


class BuildPlace(Struct, frozen=True, kw_only=True):
    """Places of one build.

    `workspace` is scratch and goes with the build. `packages` and `modules` are absolute paths as users see them, in which the
    sandbox shows folders of the workspace. `sources` is the store of source archives, which all builds share.
    """

    workspace: Path
    packages: str
    modules: str
    sources: Path


class BuildCommand(Struct, frozen=True, kw_only=True):
    """A program to run for a build: its arguments, environment, the phase that it is, and whether it needs the network."""

    phase: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    network: bool = False


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

    def prepare(self, stack: StackInput, package: StackPackage, place: BuildPlace) -> None:
        """Write the files that the commands read into the workspace. Raises BadTask if the stack lacks what they need."""

    def commands(self, stack: StackInput, package: StackPackage, place: BuildPlace) -> Sequence[BuildCommand]:
        """Return the programs that fetch, build and install one package, in order. Its dependencies are installed already."""

    def read(self, package: StackPackage, command: BuildCommand, code: int, output: str) -> CommandVerdict:
        """Return what one of the commands did, by its exit code, and its stdout and stderr together."""

    def module_files(self, package: StackPackage, written: Iterable[str]) -> tuple[str, ...]:
        """Return which of the module files that lie in the modules folder after a build belong to the package."""

    def reproduce(self, stack: StackInput, package: StackPackage) -> str:
        """Return the command by which a person repeats the build."""
