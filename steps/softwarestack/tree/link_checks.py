"""Checks of an assembled tree: links, library search paths, needed libraries, interpreters, module files, and traces of the build.

Pure: they judge a listing of the tree (`TreeListing`) as it will be published: packages below ROOT/packages, module files below
ROOT/STACK/current/modules. A file's place in the tree, such as `packages/zlib-1.3-0123456789ab/lib`, is its tree path.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Final

from msgspec import Struct

from steps.contract import detachment, plain_text
from steps.contract.detachment import NO_FACTORY, Factory
from steps.softwarestack.contract.stack_input import PACKAGES
from steps.softwarestack.contract.stack_release import MODULES
from steps.softwarestack.contract.tree_check import TreeFinding, TreeProblemKind
from steps.softwarestack.tree import module_search_paths
from steps.softwarestack.tree.elf_links import ElfFacts

MOST_HOPS: Final = 40
"""Symbolic links that the kernel follows in one path."""
LONGEST_SHEBANG: Final = 255
"""Bytes of a first line that the kernel reads (BINPRM_BUF_SIZE is 256); of a longer one it cuts the interpreter's path."""
SYSTEM_FOLDERS: Final = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/dev", "/proc", "/sys")
"""Folders of the operating system, which builder and nodes share."""
DRIVER_LIBRARIES: Final = ("libcuda.so", "libnvidia-", "libnvcuvid.so", "libnvoptix.so", "libcudadebugger.so")
"""Beginnings of the names of libraries that the driver of a GPU brings to a node; a builder has no GPU."""
_PROGRAM_FOLDERS: Final = ("bin", "sbin")
_OF_FACTORY: Final = " of the factory"
"""End of the traces of a factory (`detachment.mentions`)."""


class TraceRules(Struct, frozen=True, kw_only=True):
    """Places that a published tree must not name: workspaces of builds (absolute paths), and what belongs to the factory."""

    workspaces: tuple[str, ...] = ()
    factory: Factory = NO_FACTORY

    def traces(self, place: str, text: str) -> Iterator[str]:
        """Yield in words the workspaces that a text names, and what of the factory it names outside of its comments."""
        for workspace in self.workspaces:
            if re.search(rf"(?:^|[\s\"'`=:,;(\[{{<!]|-[ILR]){re.escape(workspace)}(?=[/\s\"'`:,;)\]}}>]|$)", text):
                yield f"{workspace}, the workspace of a build"
        yield from (f"{link.leads_to}, {link.why}" for link in detachment.mentions(place, text, self.factory))


class TreeFile(Struct, frozen=True, kw_only=True):
    """Regular file of a tree. `shebang` is its first line after `#!`, `links` what it needs if it is an ELF file.

    `elf_problem` says why an ELF file could not be read. `traces` name places of the factory that its text mentions.
    """

    digest: str
    size: int
    executable: bool = False
    shebang: str = ""
    links: ElfFacts | None = None
    elf_problem: str = ""
    traces: tuple[str, ...] = ()


class TreeListing(Struct, frozen=True, kw_only=True, dict=True):
    """Files, symbolic links (path → target) and folders of a tree by tree path, and the texts of its module files."""

    files: Mapping[str, TreeFile]
    links: Mapping[str, str]
    folders: frozenset[str]
    modules: Mapping[str, str]
    empty_folders: tuple[str, ...] = ()

    @cached_property
    def names(self) -> Mapping[str, frozenset[str]]:
        """Names of all files and links by the folder of their package."""
        names: dict[str, set[str]] = {}
        for path in (*self.files, *self.links):
            names.setdefault(package_of(path), set()).add(posixpath.basename(path))
        return {package: frozenset(files) for package, files in names.items()}

    @cached_property
    def elf_files(self) -> Mapping[str, tuple[tuple[str, ElfFacts], ...]]:
        """ELF files (tree path and dynamic links) by the folder of their package."""
        files: dict[str, list[tuple[str, ElfFacts]]] = {}
        for path, file in self.files.items():
            if file.links is not None:
                files.setdefault(package_of(path), []).append((path, file.links))
        return {package: tuple(members) for package, members in files.items()}


class SystemLibraries(Struct, frozen=True, kw_only=True):
    """Libraries that the operating system's loader knows by name, and the folders where it looks for them."""

    names: frozenset[str]
    folders: tuple[str, ...] = ()


class TreePlan(Struct, frozen=True, kw_only=True):
    """Expectations of a tree: where it is published, and for each package's folder those of all that it needs when it runs.

    `known` are the folders of all packages of the lock, with those that only builds need. `expected_modules` are the full names of
    its modules, behind their CPU target if there are several `targets`. `exists` says whether this machine, whose operating system
    is that of the nodes, has an absolute path. `rules` name the workspace of builds and the factory.
    """

    root: str
    stack: str
    closures: Mapping[str, tuple[str, ...]]
    system: SystemLibraries
    exists: Callable[[str], bool]
    expected_modules: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()
    rules: TraceRules = TraceRules()

    @property
    def packages(self) -> str:
        """Return the absolute path of the packages as published."""
        return f"{self.root}/{PACKAGES}"

    @property
    def modules(self) -> str:
        """Return the absolute path of the module files as users name them."""
        return f"{self.root}/{self.stack}/current/{MODULES}"

    def published(self, path: str) -> str:
        """Return the absolute path at which a tree path is published."""
        head, _, rest = path.partition("/")
        return posixpath.join(self.packages if head == PACKAGES else self.modules, rest)

    def tree_path(self, path: str) -> str | None:
        """Return the tree path of a published absolute path; None if it is not in the tree."""
        for folder, place in ((self.packages, PACKAGES), (self.modules, MODULES)):
            if detachment.is_below(path, folder):
                return place + path[len(folder) :]
        return None


class TreeView(Struct, frozen=True, kw_only=True, dict=True):
    """A listing of a tree beside the plan that it is judged by."""

    listing: TreeListing
    plan: TreePlan

    @cached_property
    def module_folders(self) -> Mapping[str, tuple[str, ...]]:
        """Absolute folders that modules add to the loader's search, by the folder of the package that a module names first."""
        folders: dict[str, list[str]] = {}
        for text in self.listing.modules.values():
            owner = re.search(re.escape(self.plan.packages) + r"/([\w+.,~-]+)", text)
            if owner is not None:  # EasyBuild's modules begin with their own root, Spack's with the PATH of their own package
                folders.setdefault(owner[1], []).extend(module_search_paths.library_folders(text))
        return {owner: tuple(dict.fromkeys(paths)) for owner, paths in folders.items()}


class Reached(Struct, frozen=True, kw_only=True):
    """End of a path once all links are followed: a tree path, or an absolute path outside; neither if it leads nowhere."""

    inside: str = ""
    outside: str = ""
    escapes: bool = False


def findings(view: TreeView) -> Iterator[TreeFinding]:
    """Yield all problems of a tree, in the order of paths within each kind of check."""
    yield from _missing(view)
    for path, target in sorted(view.listing.links.items()):
        yield from _link(view, path, target)
    for path, file in sorted(view.listing.files.items()):
        yield from _file(view, path, file)
    for path, text in sorted(view.listing.modules.items()):
        yield from _module(view, path, text)


def package_of(path: str) -> str:
    """Return the package's folder name in a tree path; empty outside of packages."""
    parts = path.split("/", 2)
    return parts[1] if parts[0] == PACKAGES and len(parts) > 1 else ""


def follow(view: TreeView, path: str) -> Reached:
    """Return where a tree path leads when all links on its way are followed, as the kernel would where it is published."""
    waiting, here, hops = path.split("/")[::-1], "", 0
    while waiting:
        part = waiting.pop()
        if here in view.listing.files:  # not even `file/..` leads anywhere
            return Reached()
        if part in ("", "."):
            continue
        if part == "..":
            here = posixpath.dirname(here)
            if not here:  # above packages/ and modules/ the published tree has another form
                return Reached(escapes=True)
            continue
        place = f"{here}/{part}" if here else part
        target = view.listing.links.get(place)
        if target is None:
            if place not in view.listing.files and place not in view.listing.folders:
                return Reached()
            here = place
            continue
        hops += 1
        if hops > MOST_HOPS:
            return Reached()
        if target.startswith("/"):
            inside = view.plan.tree_path(posixpath.normpath(target))
            if inside is None:
                return Reached(outside=posixpath.normpath("/".join((target, *waiting[::-1]))))
            target, here = inside, ""
        waiting += target.split("/")[::-1]
    return Reached(inside=here)


def _missing(view: TreeView) -> Iterator[TreeFinding]:
    for folder in sorted(view.plan.closures):
        if f"{PACKAGES}/{folder}" not in view.listing.folders:
            yield _finding(f"{PACKAGES}/{folder}", TreeProblemKind.MISSING, "the lock has this package and the tree does not")
    names = {path.removesuffix(".lua") for path in view.listing.modules}
    for module in view.plan.expected_modules:
        target, name_below = module.split("/", 1) if view.plan.targets else ("", module)
        folder = f"{MODULES}/{target}/" if target else f"{MODULES}/"
        if not any(name.startswith(folder) and name.endswith(f"/{name_below}") for name in names):
            yield _finding(MODULES, TreeProblemKind.MISSING, f"no file of module {module}")


def _link(view: TreeView, path: str, target: str) -> Iterator[TreeFinding]:
    reached = follow(view, path)
    if reached.escapes:
        yield _finding(path, TreeProblemKind.LINK_OUT, f"it leads out of the tree, to {target}")
    elif reached.outside and not _is_system(reached.outside):
        yield _finding(
            path, TreeProblemKind.LINK_OUT, f"it leads to {reached.outside}, outside of {view.plan.root} and of the system"
        )
    elif (reached.outside and not view.plan.exists(reached.outside)) or not (reached.outside or reached.inside):
        yield _finding(path, TreeProblemKind.DANGLING_LINK, f"it leads to {target}, which does not exist")


def _file(view: TreeView, path: str, file: TreeFile) -> Iterator[TreeFinding]:
    if file.elf_problem and (file.executable or ".so" in posixpath.basename(path)):
        yield _finding(path, TreeProblemKind.LIBRARY, f"this program or library cannot be loaded: {file.elf_problem}")
    if file.links is not None:
        yield from _interpreter(view, path, file.links)
        for entry in dict.fromkeys((*file.links.rpath, *file.links.runpath)):
            yield from _rpath(view, path, entry)
        for name in dict.fromkeys(file.links.needed):
            if not _is_provided(view, path, file.links, name):
                detail = f"it needs {name}, which is in none of its rpaths, of its modules' folders and of the system's folders"
                yield _finding(path, TreeProblemKind.LIBRARY, detail + _place_of(view, package_of(path), name))
    if file.shebang and file.executable:
        yield from _shebang(view, path, file.shebang)
    for trace in file.traces:
        kind = TreeProblemKind.FACTORY if trace.endswith(_OF_FACTORY) else TreeProblemKind.WORKSPACE
        yield _finding(path, kind, f"its text names {trace}")


def _interpreter(view: TreeView, path: str, links: ElfFacts) -> Iterator[TreeFinding]:
    # shared libraries seldom have an interpreter; where they do, nobody starts them
    if links.interpreter and links.needed and not _is_there(view, links.interpreter):
        yield _finding(path, TreeProblemKind.LIBRARY, f"its loader {links.interpreter} does not exist")


def _rpath(view: TreeView, path: str, entry: str) -> Iterator[TreeFinding]:
    folder = _expand(view.plan, path, entry)
    if not folder.startswith("/"):
        yield _finding(path, TreeProblemKind.RPATH, f"its rpath has {entry!r}, which means the folder of whoever starts it")
        return
    if detachment.is_below(folder, view.plan.packages):
        package = package_of(view.plan.tree_path(folder) or "")
        # the rpath of a library needed to build alone is harmless: nothing that is needed comes from there, or it is missed
        if package and package not in view.plan.known and f"{PACKAGES}/{package}" not in view.listing.folders:
            yield _finding(path, TreeProblemKind.RPATH, f"its rpath has {entry}, and the stack has no package {package}")
        return
    if any(detachment.is_below(folder, place) for place in view.plan.rules.workspaces):
        yield _finding(path, TreeProblemKind.RPATH, f"its rpath has {entry}, the workspace of a build")
    elif not _is_system(folder) and folder not in view.plan.system.folders:
        yield _finding(path, TreeProblemKind.RPATH, f"its rpath has {entry}, outside of {view.plan.packages} and of the system")


def _expand(plan: TreePlan, path: str, entry: str) -> str:
    """Return a search path with $ORIGIN replaced; other tokens of the loader stay (ld.so(8))."""
    origin = posixpath.dirname(plan.published(path))
    replaced = entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
    return posixpath.normpath(replaced) if replaced.startswith("/") else replaced


def _is_provided(view: TreeView, path: str, links: ElfFacts, name: str) -> bool:
    if "/" in name:
        return _is_there(view, name)
    if name in view.plan.system.names or name.startswith(DRIVER_LIBRARIES):
        return True
    return _is_found(view, path, links, name) or (not _is_started(path, links) and _is_loaded_before(view, path, name))


def _is_found(view: TreeView, path: str, links: ElfFacts, name: str) -> bool:
    """Return True if the loader finds a library by the rpaths of a file, or by the modules that users load for its package."""
    searched = (_expand(view.plan, path, entry) for entry in links.folders)
    if any(_is_there(view, f"{folder}/{name}") for folder in searched if folder.startswith("/")):
        return True
    package = package_of(path)
    members = (package, *view.plan.closures.get(package, ()))
    return any(_is_there(view, f"{folder}/{name}") for member in members for folder in view.module_folders.get(member, ()))


def _is_started(path: str, links: ElfFacts) -> bool:
    """Return True for programs that users start by their name, so that nothing sets folders or loads libraries before.

    Programs elsewhere, or with a hidden name, are started by scripts of their package, which may set folders.
    """
    folder, name = posixpath.split(path)
    return bool(links.interpreter) and posixpath.basename(folder) in _PROGRAM_FOLDERS and not name.startswith(".")


def _is_loaded_before(view: TreeView, path: str, name: str) -> bool:
    """Return True if a program of the package may have loaded a library before it loads this plug-in.

    A program finds libraries of its own package by its own rpaths and scripts, so all of these count; of other packages those that
    another file of the package finds.
    """
    package = package_of(path)
    if name in view.listing.names.get(package, ()):
        return True
    others = view.listing.elf_files.get(package, ())
    return any(name in links.needed and other != path and _is_found(view, other, links, name) for other, links in others)


def _place_of(view: TreeView, package: str, name: str) -> str:
    """Return in words which package has a library that the loader does not find there; empty if none has it."""
    owner = next(
        (member for member in (package, *view.plan.closures.get(package, ())) if name in view.listing.names.get(member, ())), ""
    )
    return f"; {'its own package' if owner == package else f'package {owner}'} has it in another folder" if owner else ""


def _shebang(view: TreeView, path: str, line: str) -> Iterator[TreeFinding]:
    if len(line) + 2 > LONGEST_SHEBANG:
        yield _finding(path, TreeProblemKind.SHEBANG, f"its first line has {len(line) + 2} bytes, Linux reads {LONGEST_SHEBANG}")
        return
    interpreter = (line.split() or [""])[0]
    if not interpreter.startswith("/"):
        yield _finding(path, TreeProblemKind.SHEBANG, f"its interpreter {interpreter or '(none)'} is no absolute path")
    elif _is_system(interpreter):
        return  # a script for a shell that the site does not install, such as tcsh, harms nobody
    elif not _is_there(view, interpreter):
        yield _finding(path, TreeProblemKind.SHEBANG, f"its interpreter {interpreter} is not in the tree")
    elif view.plan.tree_path(interpreter) is None:
        yield _finding(
            path, TreeProblemKind.SHEBANG, f"its interpreter {interpreter} is outside of {view.plan.root} and of the system"
        )


def _module(view: TreeView, path: str, text: str) -> Iterator[TreeFinding]:
    if not text.strip() or "\0" in text or plain_text.MARK in text:
        yield _finding(path, TreeProblemKind.MODULE, "it is empty or no text")
    elif not path.endswith(".lua") and not text.startswith("#%Module"):
        yield _finding(path, TreeProblemKind.MODULE, "it neither ends in .lua nor begins with #%Module, so Lmod ignores it")
    named = sorted(set(re.findall(re.escape(view.plan.packages) + r"/([\w+.,~-]+)", text)))
    for package in named:
        if f"{PACKAGES}/{package}" not in view.listing.folders:
            yield _finding(path, TreeProblemKind.MODULE, f"it names package {package}, which the tree does not have")


def _is_there(view: TreeView, path: str) -> bool:
    """Return True if a published absolute path exists, in the tree or on the system."""
    inside = view.plan.tree_path(posixpath.normpath(path))
    if inside is None:
        return view.plan.exists(path)
    reached = follow(view, inside)
    return bool(reached.inside) or (bool(reached.outside) and view.plan.exists(reached.outside))


def _is_system(path: str) -> bool:
    return any(detachment.is_below(path, folder) for folder in SYSTEM_FOLDERS)


def _finding(path: str, kind: TreeProblemKind, detail: str) -> TreeFinding:
    return TreeFinding(path=plain_text.line(path), kind=kind, detail=plain_text.line(detail))
