"""A stand-in for a build tool: a package's recipe is a shell script, which the real sandbox runs.

Run as a program it builds one package: `python -m tests.stack.shell_builder FOLDER NAME`, as `site_of` lays it out; a file `SCRIPT`
in FOLDER has the recipe.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from steps.clients.store import Store
from steps.softwarestack.builds import package_builds
from steps.softwarestack.builds.builders.package_builder import BuildCommand, BuildPlace, CommandVerdict
from steps.softwarestack.builds.package_builds import BuildSite
from steps.softwarestack.builds.package_sources import SourceShelf
from steps.softwarestack.cache.build_cache import BuildCache
from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import StackInput, StackLimits, StackPackage, StackSource
from tests.unit.softwarestack import small_trees

INSTALL = 'mkdir -p "$PREFIX/bin" "$MODULES/all/Core/$NAME" && echo "$NAME" > "$PREFIX/bin/file"'
MODULE = 'echo "prepend_path(\\"MODULEPATH\\", \\"$MODULES/all/$NAME\\")" > "$MODULES/all/Core/$NAME/1.0.lua"'
GOOD = f"{INSTALL} && {MODULE}"
"""Recipe of a package with one file and a module."""


class ShellBuilder:
    """Builder whose recipes are shell scripts by name of package; recipes of `fetches` run before, with network."""

    name = "shell stand-in"
    programs: tuple[Path, ...] = ()
    shared: tuple[str, ...] = ()

    def __init__(self, recipes: Mapping[str, str], fetches: Mapping[str, str] | None = None) -> None:
        self.recipes, self.fetches = recipes, fetches or {}

    def prepare(self, stack: StackInput, package: StackPackage, place: BuildPlace) -> None:
        (place.folder / "home").mkdir()

    def commands(self, stack: StackInput, package: StackPackage, place: BuildPlace) -> Sequence[BuildCommand]:
        prefix = stack.package_path(package)
        variables = {"PATH": "/usr/bin:/bin", "NAME": package.name, "PREFIX": prefix, "MODULES": place.modules}
        scripts = ((True, self.fetches.get(package.name)), (False, self.recipes[package.name]))
        return [
            BuildCommand(
                phase="fetch" if network else "build",
                arguments=("/bin/sh", "-c", script),
                environment=variables | {"BUILD": str(place.workspace), "PACKAGES": place.packages},
                network=network,
            )
            for network, script in scripts
            if script is not None
        ]

    def log(self, package: StackPackage, place: BuildPlace) -> str:
        return ""

    def read(self, package: StackPackage, command: BuildCommand, code: int, output: str) -> CommandVerdict:
        lines = tuple(output.splitlines()[-3:])
        return CommandVerdict(failure=BuildFailure.COMPILE, phase=command.phase, lines=lines) if code else CommandVerdict()

    def module_files(self, package: StackPackage, written: Iterable[str]) -> tuple[str, ...]:
        return tuple(written)

    def tidy(self, package: StackPackage, prefix: Path) -> bool:
        return any(prefix.iterdir())

    def reproduce(self, stack: StackInput, package: StackPackage) -> str:
        return f"sh {package.name}.sh"


def stack_of(
    folder: Path, *names: str, seconds: int = 60, memory_mib: int = 0, sources: tuple[StackSource, ...] = ()
) -> StackInput:
    """A stack of packages NAME 1.0, each of which needs all before it."""
    packages = (small_trees.package(name, names[:place]) for place, name in enumerate(names))
    needs = (msgspec.structs.replace(package, memory_mib=memory_mib, sources=sources) for package in packages)
    stack = small_trees.stack(*needs, cache=folder / "cache")
    return msgspec.structs.replace(stack, limits=StackLimits(build_seconds=seconds))


def site_of(folder: Path, stack: StackInput, builder: ShellBuilder, hidden: tuple[Path, ...] = ()) -> BuildSite:
    """The surroundings of builds that keep everything below one folder."""
    return BuildSite(
        stack=stack,
        builder=builder,
        cache=BuildCache(stack.cache, stack.root),
        sources=SourceShelf(folder / "sources", stack.sources),
        scratch=folder / "scratch",
        store=Store(folder / "store"),
        logs="runs/test/builds",
        hidden=(folder, *hidden),
        key=None,
        say=lambda text: print(f"{time.monotonic():.2f} {text}", flush=True),
        redact=lambda text: text.replace("hunter2", "***"),
    )


def main(folder: Path, name: str) -> None:
    """Build one package whose recipe is the file SCRIPT in the folder."""
    stack = stack_of(folder, name)
    site = site_of(folder, stack, ShellBuilder({name: (folder / "SCRIPT").read_text()}))
    print(package_builds.build_package(site, stack.packages[0]).outcome)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
