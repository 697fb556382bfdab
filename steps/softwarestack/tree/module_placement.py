"""Places of Spack's module files in a tree: by compiler and MPI, in one language, with what makes further modules visible.

A package of Spack in the build cache has its module in Lua and in Tcl, in one folder, so stacks with other settings share it. What
EasyBuild writes is in its place already.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from steps.softwarestack.builds.builders import spack_environment
from steps.softwarestack.cache.package_packing import MTIME
from steps.softwarestack.contract.stack_input import TCL, ModuleProvider, StackInput
from steps.softwarestack.contract.stack_release import MODULES

_SEARCHED = {"PATH": "bin", "MANPATH": "share/man"}
"""Variables that a module of a site's compiler or MPI library sets, with the folder in its prefix."""


def place(stack: StackInput, modules: Path) -> None:
    """Move the module files of a stack of Spack, below the folder of modules, to their places; do nothing for EasyBuild.

    A package from a cache that lacks the wanted language gets no module, which the check of the tree reports.
    """
    if stack.spack is None:
        return
    root, is_tcl = f"{stack.root}/{stack.name}/current/{MODULES}/{spack_environment.MODULES}", stack.syntax == TCL
    unlocking = defaultdict[str, list[ModuleProvider]](list)
    for provider in stack.spack.providers:
        unlocking[provider.module].append(provider)
    texts = dict[str, str]()
    for package in stack.installed:
        file = modules / spack_environment.module_paths(package)[is_tcl]
        if package.module and file.is_file():
            lines = [line for provider in unlocking.get(package.module, ()) for line in _unlocking(provider, root, is_tcl=is_tcl)]
            added = "".join(f"{line}\n" for line in ("", *lines)) if lines else ""
            texts[package.module] = file.read_text(errors="surrogateescape") + added
    for name, providers in unlocking.items():
        if providers[0].site:
            texts[name] = "\n".join(_site_module(providers, root, is_tcl=is_tcl)) + "\n"
    for folder in (spack_environment.MODULES, spack_environment.TCL_MODULES):
        shutil.rmtree(modules / folder, ignore_errors=True)
    for name, text in texts.items():
        target = modules / spack_environment.MODULES / (name if is_tcl else f"{name}.lua")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, errors="surrogateescape")
        os.utime(target, (MTIME, MTIME))


def _unlocking(provider: ModuleProvider, root: str, *, is_tcl: bool) -> Iterator[str]:
    """Yield the lines by which a module makes others visible. Only Lmod and Environment Modules since 5.1 know families in Tcl."""
    if is_tcl:
        yield f"if {{[llength [info commands family]]}} {{ family {provider.family} }}"
        yield from (f"prepend-path MODULEPATH {{{root}/{folder}}}" for folder in provider.unlocks)
        return
    yield f'family("{provider.family}")'
    yield from (f'prepend_path("MODULEPATH", "{root}/{folder}")' for folder in provider.unlocks)


def _site_module(providers: list[ModuleProvider], root: str, *, is_tcl: bool) -> Iterator[str]:
    """Yield the lines of the module of a compiler or MPI library that the site provides."""
    name, version = providers[0].module.rsplit("/", 2)[1:]
    prefix = providers[0].prefix
    if is_tcl:
        yield from ("#%Module1.0", f"module-whatis {{{name} {version} of the site}}")
        yield from (f"prepend-path {variable} {{{prefix}/{folder}}}" for variable, folder in _SEARCHED.items() if prefix)
        yield from ("append-path MANPATH {}",) if prefix else ()
    else:
        yield from (
            f"whatis([[Name : {name}]])",
            f"whatis([[Version : {version}]])",
            "whatis([[Description : provided by the site]])",
        )
        yield from (f'prepend_path("{variable}", "{prefix}/{folder}", ":")' for variable, folder in _SEARCHED.items() if prefix)
        yield from ('append_path("MANPATH", "", ":")',) if prefix else ()
    for provider in providers:
        yield from _unlocking(provider, root, is_tcl=is_tcl)
