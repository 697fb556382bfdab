"""Lmod's answers as data: which modules a tree has, what must be loaded before each, and the environment after loading.

Pure, but for `find_lmod`. Lmod's own spider evaluates the module files, so hierarchies of any naming scheme are found as users find
them. Output comes from module files of packages: it is bounded and checked before anything is made of it.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract import plain_text
from steps.contract.canonical import UNREADABLE_JSON
from steps.softwarestack.contract.stack_release import MODULES

PLACES: Final = ("/usr/share/lmod/lmod", "/opt/lmod/lmod", "/opt/apps/lmod/lmod", "/usr/local/lmod/lmod")
"""Folders in which packages and sites install Lmod; variable LMOD_PKG names another."""
MOST_MODULES: Final = 20_000
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE: Final = re.compile(r'^os\.environ\["((?:[^"\\]|\\.)*)"\] = "((?:[^"\\]|\\.)*)";$', re.MULTILINE | re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(\d{1,3}|.)", re.DOTALL)
_ERRORS: Final = "Lmod has detected the following error:"
_TAIL: Final = re.compile(
    r"\s*(?:Please check the spelling|It is also possible your cache|Also make sure that|If you don't understand).*", re.DOTALL
)


class LmodError(ValueError):
    """Raised if Lmod's output has another form than expected."""


class LmodPrograms(Struct, frozen=True, kw_only=True):
    """Paths of Lmod's programs, and of the file that defines `module` in bash."""

    lmod: str
    spider: str
    bash: str


class ModuleRoute(Struct, frozen=True, kw_only=True):
    """A module of a tree: the name by which users load it, its tree path, and ways of modules that are loaded before."""

    name: str
    path: str
    parents: tuple[tuple[str, ...], ...] = ()

    @property
    def load(self) -> tuple[str, ...]:
        """Return the modules to load, in order: those of the shortest way, then the module."""
        return (*min(self.parents, key=lambda way: (len(way), way), default=()), self.name)


class _SpiderEntry(Struct):
    """A module file as Lmod's spider describes it."""

    fullName: str  # noqa: N815  # a field of Lmod's output
    parentAA: list[list[str]] = []  # noqa: N815  # a field of Lmod's output


def find_lmod(environ: Mapping[str, str]) -> LmodPrograms | None:
    """Return the programs of this machine's Lmod; None if it is not installed."""
    for folder in (environ.get("LMOD_PKG", ""), *PLACES):
        programs = LmodPrograms(lmod=f"{folder}/libexec/lmod", spider=f"{folder}/libexec/spider", bash=f"{folder}/init/bash")
        if folder and all(Path(path).is_file() for path in (programs.lmod, programs.spider, programs.bash)):
            return programs
    return None


def start_folders(naming: str, paths: Iterable[str], target: str = "") -> tuple[str, ...]:
    """Return the tree paths of the folders that users name first to `module use`, from the tree paths of all module files.

    The hierarchy of EasyBuild and Spack begins in a folder Core; a flat scheme has one folder. In a stack that is built for several
    CPU targets, the folders of one `target` are returned.
    """
    if target:
        own = f"{MODULES}/{target}/"
        below = (f"{MODULES}/{path.removeprefix(own)}" for path in paths if path.startswith(own))
        return tuple((own + folder.removeprefix(MODULES).lstrip("/")).rstrip("/") for folder in start_folders(naming, below))
    folders, cores = set[str](), set[str]()
    for path in paths:
        parts = path.split("/")
        if "Core" in parts[1:-1] and naming != "EasyBuildMNS":
            cores.add("/".join(parts[: parts.index("Core") + 1]))
        elif naming == "EasyBuildMNS" or not naming:
            folders.add("/".join(parts[:2]) if parts[0] == MODULES and len(parts) > 3 else parts[0])
    # below the folder of an MPI library Spack has another Core, which becomes visible with that library
    least = min((core.count("/") for core in cores), default=0)
    return tuple(sorted(folders | {core for core in cores if core.count("/") == least}))


def routes(output: str, modules_root: str) -> tuple[ModuleRoute, ...]:
    """Return the modules in the output of `spider -o spider-json`, by tree path; `modules_root` is the published path of the tree's
    modules. Modules elsewhere are left out. Raises LmodError.
    """
    try:
        names = msgspec.json.decode(output.strip() or "{}", type=dict[str, dict[str, _SpiderEntry]])
    except UNREADABLE_JSON as error:
        raise LmodError(f"the modules that Lmod's spider lists cannot be read: {error}") from error
    listed = [
        ModuleRoute(
            name=entry.fullName,
            path=f"{MODULES}/{path.removeprefix(f'{modules_root}/')}",
            parents=tuple(tuple(way) for way in entry.parentAA),
        )
        for entries in names.values()
        for path, entry in entries.items()
        if path.startswith(f"{modules_root}/")
    ]
    if len(listed) > MOST_MODULES:
        raise LmodError(f"Lmod's spider lists {len(listed)} modules, at most {MOST_MODULES} are tested")
    return tuple(sorted(listed, key=lambda route: route.path))


def route_of(module: str, listed: Iterable[ModuleRoute]) -> ModuleRoute | None:
    """Return the route of a module by its full name, such as `Compiler/GCC/12.2.0/zlib/1.2.13`; None if Lmod does not list it."""
    return next((route for route in listed if route.path.removesuffix(".lua").endswith(f"/{module}")), None)


def environment(output: str) -> dict[str, str]:
    """Return the variables in the output of `lmod python load …`. Raises LmodError unless Lmod says that it has succeeded."""
    if "_mlstatus = True" not in output.splitlines():
        raise LmodError("Lmod did not load the modules")
    variables = {_plain(name): _plain(value) for name, value in _VARIABLE.findall(output)}
    return {name: value for name, value in variables.items() if _NAME.fullmatch(name) and "\0" not in value}


def is_loaded(name: str, variables: Mapping[str, str]) -> bool:
    """Return True if a module is among the loaded ones of an environment."""
    return name in variables.get("LOADEDMODULES", "").split(":")


def reason(stderr: str) -> str:
    """Return in one line why Lmod did not load a module: conflicts and missing modules by name, without advice about spelling."""
    _, mark, text = stderr.partition(_ERRORS)
    text = _TAIL.sub("", text if mark else stderr)
    return plain_text.line(" ".join(text.split()))


def _plain(quoted: str) -> str:
    """Return a text that Lua's format %q has quoted."""
    return _ESCAPED.sub(lambda match: chr(int(match[1])) if match[1].isdigit() else match[1], quoted)
