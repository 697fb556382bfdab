"""Smoke tests that bringup ships, as data in `smoke_tests.yaml`: which packages of a stack they test, and their test cases."""

import fnmatch
import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from steps.softwarestack.contract.output_patterns import OutputReference
from steps.softwarestack.contract.stack_input import StackInput, StackPackage, StackTestCase
from steps.softwarestack.contract.stack_tests import name_for

_SHELL: Final = ("/bin/sh", "-e", "-c")
_OWN_PROGRAMS: Final = """root=$1
shift
is_own() { case $(command -v "$1") in "$root"/*) ;; *) return 1 ;; esac; }
has() { case ",$variants," in *",$1,"*) ;; *) return 1 ;; esac; }
lacks() { echo "the package was built without $*"; exit 77; }
variants=
if test -f "$root/.spack/spec.json"; then
  # the package is the first node, and its parameters are the first ones of the file
  variants=$(tr -d '" \\n' < "$root/.spack/spec.json" | tr : =)
  variants=${variants#*parameters=\\{}
  variants=${variants%%\\}*}
fi
for program; do
  is_own "$program" || { echo "$program is $(command -v "$program" || echo nowhere), and none of $root"; exit 1; }
done
"""
"""Beginning of each script: with a module that does not set PATH, it would test programs of the operating system."""
_EASYBUILD: Final = "easybuild"
_SECONDS: Final = 120
"""Time limit of a shipped test: each needs some seconds."""


@dataclass(frozen=True, kw_only=True)
class SmokeTest:
    """A shipped test: names of packages with *, the script that tests one of them, and what its output must have.

    `programs` are names that the module of the package must lead to the package's own programs.
    """

    name: str
    packages: tuple[str, ...]
    script: str
    incident: str
    programs: tuple[str, ...] = ()
    expect: str = ""
    reference: OutputReference | None = None

    def is_for(self, package: StackPackage) -> bool:
        """Return True if the test is about a package; EasyBuild and Spack write its name in their own ways."""
        names = (package.name.lower(), package.title.lower())
        return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in self.packages)

    def command(self, root: str) -> tuple[str, ...]:
        """Return the command that tests the package in a folder."""
        return (*_SHELL, _OWN_PROGRAMS + self.script, self.name, root, *self.programs)


@functools.cache
def shipped() -> tuple[SmokeTest, ...]:
    """Return the tests that bringup ships."""
    data = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    return tuple(_smoke_test(name, **fields) for name, fields in data.items())


def unknown(names: Iterable[str]) -> list[str]:
    """Return the names that no shipped test has."""
    return sorted(set(names) - {test.name for test in shipped()})


def cases(stack: StackInput, skipped: Iterable[str] = ()) -> tuple[StackTestCase, ...]:
    """Return a test case for each package of a stack that has a shipped test and no test of its own.

    Tests named in `skipped` are left out. Packages of the site, and modules without files such as toolchains, are not tested: the
    stack did not build them.
    """
    tested = {(_package_name(module), test.target) for test in stack.tests for module in test.modules}
    chosen = [
        (package, next((test for test in shipped() if test.is_for(package)), None))
        for package in stack.installed
        if package.module and _is_built(stack, package) and (package.name.lower(), stack.module_folder(package)) not in tested
    ]
    titles = Counter((package.title, stack.module_folder(package)) for package, _ in chosen)
    return tuple(
        _case(test, package, stack, alone=titles[package.title, stack.module_folder(package)] == 1)
        for package, test in chosen
        if test is not None and test.name not in skipped
    )


def _is_built(stack: StackInput, package: StackPackage) -> bool:
    # only EasyBuild's locks name sources, and only its modules of the operating system have none
    return not package.external and (stack.backend != _EASYBUILD or bool(package.sources))


def _package_name(module: str) -> str:
    """Return the package of a module named as users do (`HDF5`, `HDF5/1.14`), or by its full name, in lower case."""
    parts = module.lower().split("/")
    return parts[0] if len(parts) < 3 else parts[-2]


def _case(test: SmokeTest, package: StackPackage, stack: StackInput, *, alone: bool) -> StackTestCase:
    title = package.title if alone else f"{package.title}/{package.hash[:7]}"
    return StackTestCase(
        name=name_for(f"{test.name} of {title}", stack.module_folder(package)),
        command=test.command(stack.package_path(package)),
        modules=(package.module,),
        timeout_seconds=_SECONDS,
        expect=test.expect,
        reference=test.reference,
        incident=test.incident,
        may_skip=True,
        target=stack.module_folder(package),
    )


def _smoke_test(
    name: str, packages: Iterable[str], programs: Iterable[str] = (), reference: dict[str, str] | None = None, **fields: str
) -> SmokeTest:
    figure = OutputReference(**reference) if reference else None  # type: ignore[arg-type]  # data of our own
    return SmokeTest(name=name, packages=tuple(packages), programs=tuple(programs), reference=figure, **fields)
