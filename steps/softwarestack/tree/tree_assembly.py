"""Assembly of a stack's tree: all packages from the build cache in one folder, whole or not at all, with a manifest and checks.

The folder is STORE/stacks/trees/DIGEST; DIGEST covers the archives' digests and the place of publication, so a tree that is there
is reused. Before that it is read again in full: if the disk lost bytes, digests differ from the manifest's, and it is made anew.
"""

import contextlib
import fcntl
import os
import posixpath
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from steps.contract.canonical import digest
from steps.contract.release_layout import ReleaseFile
from steps.errors import BadTask
from steps.softwarestack.cache.package_packing import MTIME
from steps.softwarestack.contract import package_files
from steps.softwarestack.contract.package_files import LISTING
from steps.softwarestack.contract.stack_input import PACKAGES, StackInput, StackPackage, package_folder
from steps.softwarestack.contract.stack_release import (
    MANIFEST,
    MODULES,
    VIEW,
    PackageContent,
    StackManifest,
    StackManifestError,
    decode_manifest,
    encode_manifest,
)
from steps.softwarestack.contract.stack_tests import reframe_names
from steps.softwarestack.contract.tree_check import InstalledPackage, TreeFinding, TreeObservation, TreeProblemKind
from steps.softwarestack.tree import link_checks, lmod_modules, module_placement, package_view, target_choice, tree_scan
from steps.softwarestack.tree.link_checks import TraceRules, TreeListing, TreePlan, TreeView
from steps.softwarestack.tree.package_view import ViewPlan

TREES: Final = "trees"
"""Folder of STORE/stacks with the assembled trees."""
MOST_PROBLEMS: Final = 60
MOST_OF_A_KIND: Final = 10
"""Problems that an observation names, in total and of one kind; one mistake of a recipe shows in every file of a package."""
_SCHEMA: Final = 1


class PackageSupply(Protocol):
    """Source of packages: the build cache as a tree needs it."""

    def archive(self, package: StackPackage) -> str:
        """Return the digest of a package's archive; empty if there is none."""
        ...

    def modules(self, package: StackPackage) -> tuple[str, ...]:
        """Return the paths of a package's module files below the folder of modules, or of those of its target."""
        ...

    def install(self, package: StackPackage, prefix: Path, modules: Path) -> None:
        """Unpack a package's files into `prefix`, which does not exist yet, and its module files below `modules`."""
        ...


class AssembledTree(Struct, frozen=True, kw_only=True):
    """An assembled tree: its folder, its digest, its listing and its manifest."""

    folder: Path
    digest: str
    listing: TreeListing
    manifest: StackManifest


def tree_digest(stack: StackInput, archives: Iterable[str]) -> str:
    """Return the digest that names a stack's tree: of its place and its packages' archives, not of tests, which change nothing."""
    targets = [list(stack.targets), target_choice.SCHEMA] if stack.targets else []
    return digest([_SCHEMA, stack.name, stack.root, list(archives), *targets, *stack.arrangement])


def tree_folder(trees: Path, digest_: str) -> Path:
    """Return the folder of the tree with this digest, which need not exist."""
    return trees / digest_.removeprefix("sha256:")


def assemble(trees: Path, stack: StackInput, source: PackageSupply, rules: TraceRules) -> TreeObservation:
    """Install a stack's packages into its tree, check it, and return the observation of gate stack_tree/tree.

    Raises BadTask for packages with files of other kinds, and what the source raises for entries that cannot be read or trusted.
    """
    begun = time.monotonic()
    archives = {package.hash: source.archive(package) for package in stack.installed}
    if obstacles := [*_not_cached(stack, archives), *_collisions(stack, source)]:
        return _observed(TreeObservation(stack=stack.digest, key=stack.key), obstacles, begun)
    tree = _tree(trees, stack, source, archives, rules)
    members = (
        InstalledPackage(hash=package.hash, folder=package_folder(package), module=package.module, archive=archives[package.hash])
        for package in stack.installed
    )
    observation = TreeObservation(
        stack=stack.digest,
        key=stack.key,
        digest=tree.digest,
        packages=tuple(members),
        modules=tuple(sorted(tree.listing.modules)),
        files=len(tree.listing.files) + len(tree.listing.links),
        size=sum(file.size for file in tree.listing.files.values()),
        elf_files=sum(file.links is not None for file in tree.listing.files.values()),
    )
    view = package_view.plan(stack, stack.view, tree.listing) if stack.view is not None else ViewPlan({}, ())
    observation = replace(observation, view_links=len(view.links))
    problems = link_checks.findings(TreeView(listing=tree.listing, plan=plan(stack, rules)))
    return _observed(observation, (*view.conflicts, *problems), begun)


def _not_cached(stack: StackInput, archives: dict[str, str]) -> Iterator[TreeFinding]:
    for package in stack.installed:
        if not archives[package.hash]:
            path = f"{PACKAGES}/{package_folder(package)}"
            yield TreeFinding(path=path, kind=TreeProblemKind.MISSING, detail="the build cache does not have it")


def _collisions(stack: StackInput, source: PackageSupply) -> Iterator[TreeFinding]:
    """Yield the module files that two packages bring: one would replace the other in silence."""
    owners: dict[str, StackPackage] = {}
    for package in stack.installed:
        for path in source.modules(package):
            path = posixpath.join(stack.module_folder(package), path)
            first = owners.setdefault(path, package)
            if first is not package:
                detail = f"{first.title} and {package.title} both bring this module file"
                yield TreeFinding(path=f"{MODULES}/{path}", kind=TreeProblemKind.MODULE, detail=detail)


def plan(stack: StackInput, rules: TraceRules) -> TreePlan:
    """Return what a stack's tree must be, on this machine's operating system."""
    members = {package.hash: package_folder(package) for package in stack.installed}
    closures = {
        folder: tuple(members[needed.hash] for needed in stack.closure(hash_) if needed.hash in members and needed.hash != hash_)
        for hash_, folder in members.items()
    }
    return TreePlan(
        root=stack.root,
        stack=stack.name,
        closures=closures,
        system=tree_scan.system_libraries(),
        exists=os.path.exists,
        known=frozenset(package_folder(package) for package in stack.packages),
        expected_modules=tuple(stack.module_title(package) for package in stack.installed if package.module),
        targets=stack.targets,
        rules=rules,
    )


def _tree(trees: Path, stack: StackInput, source: PackageSupply, archives: dict[str, str], rules: TraceRules) -> AssembledTree:
    """Return the stack's tree, made now unless it is there with the content of its manifest."""
    digest_ = tree_digest(stack, archives.values())
    place = tree_folder(trees, digest_)
    trees.mkdir(parents=True, exist_ok=True)
    with _locked(trees / f".{place.name}.lock"):
        for rest in trees.glob(f".{place.name}.part*"):  # of a process that was killed: it held the lock
            shutil.rmtree(rest)
        if place.is_dir():
            tree = _read(place, digest_, stack, archives, rules)
            if _is_whole(tree):
                return tree
            place.rename(trees / f".{place.name}.part-wrong")
        work = trees / f".{place.name}.part{os.getpid()}"
        try:
            _install(work, stack, source)
            made = _with_view(_read(work, digest_, stack, archives, rules), stack, archives, rules)
            _write_lists(made)
            _write_manifest(made)
            work.rename(place)
        finally:
            for rest in trees.glob(f".{place.name}.part*"):
                shutil.rmtree(rest)
    return AssembledTree(folder=place, digest=digest_, listing=made.listing, manifest=made.manifest)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(work: Path, stack: StackInput, source: PackageSupply) -> None:
    (work / PACKAGES).mkdir(parents=True)
    (work / MODULES).mkdir()

    def install(package: StackPackage) -> None:
        modules = work / MODULES / stack.module_folder(package)
        source.install(package, work / PACKAGES / package_folder(package), modules)

    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as beside:
        for _ in beside.map(install, stack.installed):
            pass
    module_placement.place(stack, work / MODULES)
    if stack.targets:
        _write_choice(work, stack)


def _write_choice(work: Path, stack: StackInput) -> None:
    """Write the module by which users get the best CPU target of a node."""
    paths = [path.relative_to(work).as_posix() for path in (work / MODULES).rglob("*") if path.is_file()]
    folders = {target: lmod_modules.start_folders(stack.naming, paths, target) for target in stack.targets}
    file = work / target_choice.path(stack)
    file.parent.mkdir()
    file.write_text(target_choice.module_text(stack, folders))
    os.utime(file, (MTIME, MTIME))


def _read(place: Path, digest_: str, stack: StackInput, archives: dict[str, str], rules: TraceRules) -> AssembledTree:
    listing = tree_scan.scan(place, rules)
    if links := sorted(path for path in listing.links if path.startswith(f"{MODULES}/")):
        raise BadTask(f"{links[0]} is a link", hint="folders of module files hold files only; see which package brings it")
    manifest = _manifest(listing, stack, archives)
    return AssembledTree(folder=place, digest=digest_, listing=listing, manifest=manifest)


def _with_view(tree: AssembledTree, stack: StackInput, archives: dict[str, str], rules: TraceRules) -> AssembledTree:
    """Make the view of a tree, if the stack has one, and return the tree with it."""
    if stack.view is None:
        return tree
    place = f"{PACKAGES}/{package_view.folder(stack, stack.view)}"
    package_view.write(tree.folder / place, package_view.plan(stack, stack.view, tree.listing).links)
    view, whole = tree_scan.scan(tree.folder, rules, [place]), tree.listing
    listing = TreeListing(
        files=whole.files,
        links={**whole.links, **view.links},
        folders=whole.folders | view.folders,
        modules=whole.modules,
        empty_folders=whole.empty_folders,
    )
    return replace(tree, listing=listing, manifest=_manifest(listing, stack, archives))


def _view_content(listing: TreeListing, stack: StackInput) -> tuple[PackageContent, ...]:
    """Return the view of a stack as a package of links; none if it has no view."""
    if stack.view is None:
        return ()
    folder = package_view.folder(stack, stack.view)
    files = tree_scan.package_files(listing, folder)
    return (
        PackageContent(
            hash=package_view.identity(stack, stack.view),
            name=VIEW,
            version=stack.name,
            folder=folder,
            module="",
            content=package_files.digest(files),
            files=len(files),
        ),
    )


def _manifest(listing: TreeListing, stack: StackInput, archives: dict[str, str]) -> StackManifest:
    files = (
        ReleaseFile(name=path, digest=file.digest, size=file.size)
        for path, file in sorted(listing.files.items())
        if path.startswith(f"{MODULES}/")
    )
    return StackManifest(
        name=stack.name,
        key=stack.key,
        backend=stack.backend,
        release=stack.release,
        root=stack.root,
        packages=(
            *(_content(listing, package, archives[package.hash], stack.module_folder(package)) for package in stack.installed),
            *_view_content(listing, stack),
        ),
        view=package_view.folder(stack, stack.view) if stack.view is not None else "",
        files=tuple(files),
        naming=stack.naming,
        target=stack.target,
        targets=stack.targets,
        builder=stack.builder,
        lock=stack.lock,
        tests=(*(test.name for test in stack.tests), *reframe_names(stack)),
    )


def _content(listing: TreeListing, package: StackPackage, archive: str, target: str) -> PackageContent:
    files = tree_scan.package_files(listing, package_folder(package))
    return PackageContent(
        hash=package.hash,
        name=package.name,
        version=package.version,
        folder=package_folder(package),
        module=package.module,
        archive=archive,
        content=package_files.digest(files),
        files=len(files),
        size=sum(file.size for file in files),
        target=target,
    )


def _is_whole(tree: AssembledTree) -> bool:
    """Return True if a tree has the content that its manifest says; a manifest of the same content with other tests is renewed."""
    try:
        stored = decode_manifest((tree.folder / MANIFEST).read_bytes())
    except (OSError, StackManifestError):
        return False
    if stored.is_same(tree.manifest) and stored != tree.manifest:
        _write_manifest(tree)
    return stored.is_same(tree.manifest)


def _write_lists(tree: AssembledTree) -> None:
    for package in tree.manifest.packages:
        files = tree_scan.package_files(tree.listing, package.folder)
        (tree.folder / PACKAGES / package.folder / LISTING).write_bytes(package_files.encode(files))


def _write_manifest(tree: AssembledTree) -> None:
    fresh = tree.folder / f".{MANIFEST}"
    fresh.write_bytes(encode_manifest(tree.manifest))
    fresh.rename(tree.folder / MANIFEST)


def _observed(observation: TreeObservation, problems: Iterable[TreeFinding], begun: float) -> TreeObservation:
    """Return the observation with as many problems as a record has room for, of each kind some."""
    kept, total, kinds = list[TreeFinding](), 0, Counter[TreeProblemKind]()
    for problem in problems:
        total += 1
        kinds[problem.kind] += 1
        if len(kept) < MOST_PROBLEMS and kinds[problem.kind] <= MOST_OF_A_KIND:
            kept.append(problem)
    seconds = round(time.monotonic() - begun, 3)
    return replace(observation, problems=tuple(kept), total_problems=total - len(kept), seconds=seconds)
