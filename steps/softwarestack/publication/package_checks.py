"""Comparison of published packages (ROOT/packages/FOLDER) with what manifests say about them, without writing anything.

A package's folder has a list of its files (`package_files`), whose digest is in each manifest that names the package. A signature
over the manifest therefore covers every byte of the package.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.clients.releases.release_kind import TreeProblem
from steps.contract import detachment, release_layout
from steps.contract.canonical import UNREADABLE_JSON, digest_bytes
from steps.contract.detachment import NO_FACTORY, ExternalLink, Factory
from steps.errors import Refused, StepError
from steps.softwarestack.contract import package_files, stack_release
from steps.softwarestack.contract.package_files import LISTING, ListedFile, PackageListError
from steps.softwarestack.contract.stack_input import PACKAGES
from steps.softwarestack.contract.stack_release import PackageContent
from steps.softwarestack.publication import package_listing
from steps.softwarestack.tree.link_checks import SYSTEM_FOLDERS

LISTS, NAMES, BYTES = "lists", "names", "bytes"
"""Depths of a check. `NAMES` reads the attributes of each file: on a network file system a minute for some 100,000."""
PackageCheck = Callable[[PackageContent], tuple[TreeProblem, ...]]


class PackageChecks:
    """Problems of the packages below one published root; each package is looked at once.

    `depth` is `LISTS` (compare the list of files alone), `NAMES` (also names, kinds, sizes and modes) or `BYTES` (also each byte).
    """

    def __init__(self, root: Path, depth: str = NAMES) -> None:
        self._root, self._depth = root, depth
        self._known: dict[tuple[str, str], tuple[TreeProblem, ...]] = {}

    def problems(self, package: PackageContent) -> tuple[TreeProblem, ...]:
        """Return everything that is wrong with a package that a manifest names; empty if it is as the manifest says."""
        key = (package.folder, package.content)
        if key not in self._known:
            self._known[key] = tuple(package_problems(self._root, package, self._depth))
        return self._known[key]

    def is_there(self, package: PackageContent) -> bool:
        """Return True if the root has a folder of the package's name, whatever is in it."""
        return os.path.lexists(self._root / PACKAGES / package.folder)


def package_problems(root: Path, package: PackageContent, depth: str) -> Iterator[TreeProblem]:
    """Yield the differences between a published package and the manifest that names it, as deep as `PackageChecks` says."""
    place = f"{PACKAGES}/{package.folder}"
    try:
        if not stat.S_ISDIR((root / place).lstat().st_mode):
            yield TreeProblem(place=place, why="is no folder")
            return
        data = package_listing.read_list(root / place)
    except FileNotFoundError:
        why = "is missing" if os.path.lexists(root / place) else f"is missing, which {package.title} needs"
        yield TreeProblem(place=f"{place}/{LISTING}" if os.path.lexists(root / place) else place, why=why)
        return
    except OSError as error:
        yield TreeProblem(place=place, why=f"could not be read: {error.strerror}")
        return
    except PackageListError as error:
        yield TreeProblem(place=place, why=str(error))
        return
    if (digest := digest_bytes(data)) != package.content:
        yield TreeProblem(place=f"{place}/{LISTING}", why=f"has the digest {digest} instead of {package.content}")
        return
    try:
        listed = package_files.decode(data)
    except PackageListError as error:
        yield TreeProblem(place=place, why=str(error))
        return
    if depth != LISTS:
        yield from _file_problems(root / place, place, listed, read=depth == BYTES)
        yield from _mode_problems(root / place, place)


def links_out(
    package: PackageContent, files: Iterable[ListedFile], root: str, factory: Factory = NO_FACTORY
) -> Iterator[ExternalLink]:
    """Yield the links of a package that lead out of the published packages.

    Absolute links are allowed within ROOT/packages: a package works at its own path only, because the path is in its files. Links
    into the operating system are allowed too, which builder and nodes share.
    """
    own, home = f"{PACKAGES}/{package.folder}", f"{root}/{PACKAGES}"
    for file in files:
        if not file.link:
            continue
        place = f"{own}/{file.path}"
        if os.path.isabs(file.link):
            target = os.path.normpath(file.link)
            inside = detachment.is_below(target, home) and target != home
            if not (inside or any(detachment.is_below(target, folder) for folder in SYSTEM_FOLDERS)):
                yield ExternalLink(place=place, leads_to=file.link, why=detachment.explain(file.link, factory))
            continue
        reached = os.path.normpath(os.path.join(os.path.dirname(place), file.link))
        if not reached.startswith(f"{PACKAGES}/"):
            yield ExternalLink(place=place, leads_to=file.link, why="the link leads out of the packages")


def listed_files(root: Path, package: PackageContent) -> tuple[ListedFile, ...]:
    """Return the list of a published package's files; empty if it cannot be read, which `package_problems` reports."""
    try:
        return package_files.decode(package_listing.read_list(root / PACKAGES / package.folder))
    except (OSError, PackageListError):
        return ()


def stray_names(root: Path) -> tuple[str, ...]:
    """Return the names in the folder of packages that are none of packages."""
    if not (root / PACKAGES).is_dir():
        return ()
    known = {*package_names(root), release_layout.INCOMING}
    return tuple(sorted(set(os.listdir(root / PACKAGES)) - known))


def package_names(root: Path) -> tuple[str, ...]:
    """Return the sorted names of the folders of packages in a published root."""
    try:
        names = os.listdir(root / PACKAGES)
    except FileNotFoundError:
        return ()
    return tuple(sorted(name for name in names if stack_release.is_package_folder(name)))


class _NamedPackage(Struct):
    """Package in a manifest of any version of bringup, as far as it names a folder; packages of node images name none."""

    folder: str = ""
    hash: str = ""


class _NamedPackages(Struct):
    """Manifest of any product, as far as it names packages."""

    packages: tuple[_NamedPackage, ...] = ()


def named_folders(root: Path) -> frozenset[str]:
    """Return the folders of packages that any version of any stack below a root names. Raises Refused as `named_packages` does."""
    return frozenset(named_packages(root).values())


def named_packages(root: Path) -> dict[str, str]:
    """Return hash → folder of the packages that any version of any stack below a root names.

    Raises Refused if a manifest cannot be read: nobody knows then which packages its version needs.
    """
    packages: dict[str, str] = {}
    for versions in sorted(root.glob(f"*/{release_layout.VERSIONS}")):
        for name in sorted(os.listdir(versions)):
            path = versions / name / stack_release.MANIFEST
            if release_layout.number_of(name) < 0:
                continue
            try:
                manifest = msgspec.json.decode(path.read_bytes(), type=_NamedPackages)
            except FileNotFoundError as error:
                if path.parent.is_dir():
                    raise _unknown_needs(path, "is missing") from error
            except (OSError, *UNREADABLE_JSON) as error:
                raise _unknown_needs(path, getattr(error, "strerror", "") or str(error)) from error
            else:
                packages |= {package.hash or package.folder: package.folder for package in manifest.packages if package.folder}
    return packages


def _unknown_needs(path: Path, why: str) -> StepError:
    return Refused(f"{path}: {why}: so nobody knows which packages its version needs", hint="repair or remove that version")


def _file_problems(folder: Path, place: str, listed: Iterable[ListedFile], *, read: bool) -> Iterator[TreeProblem]:
    expected = {file.path: file for file in listed}
    try:
        present = {file.path: file for file in package_listing.list_names(folder)}
    except (OSError, StepError) as error:
        yield TreeProblem(place=place, why=f"could not be read: {error}")
        return
    for path, file in sorted(expected.items()):
        why = _difference(file, present.get(path))
        if not why and read and file.digest:
            why = _digest_difference(folder / path, file)
        if why:
            yield TreeProblem(place=f"{place}/{path}", why=why)
    for path in sorted(set(present) - set(expected)):
        yield TreeProblem(place=f"{place}/{path}", why="is listed nowhere")


def _difference(file: ListedFile, actual: ListedFile | None) -> str:
    """Return how a file differs from the list in kind, size or target; empty if it does not."""
    if actual is None:
        return "is missing"
    if actual.link != file.link:
        return f"leads to {actual.link or 'nothing: it is no link'} instead of {file.link or 'being no link'}"
    if actual.folder != file.folder:
        return "is a folder instead of a file" if actual.folder else "is a file instead of a folder"
    if actual.size != file.size:
        return f"has {actual.size} bytes instead of {file.size}"
    return "" if actual.executable == file.executable else f"is {'' if actual.executable else 'not '}executable"


def _digest_difference(path: Path, file: ListedFile) -> str:
    try:
        digest = package_listing.file_digest(path)
    except OSError as error:
        return f"could not be read: {error.strerror}"
    return "" if digest == file.digest else f"has the digest {digest} instead of {file.digest}"


def _mode_problems(folder: Path, place: str) -> Iterator[TreeProblem]:
    """Yield the files and folders of a package that others than their owner may change, or that others cannot read."""
    for base, _, names in os.walk(folder):
        for path in (Path(base), *(Path(base) / name for name in names)):
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                continue
            where = f"{place}/{path.relative_to(folder)}".removesuffix("/.")
            if mode & (stat.S_IWGRP | stat.S_IWOTH):
                yield TreeProblem(place=where, why=f"has mode {stat.S_IMODE(mode):04o}: others than its owner may change it")
            elif not mode & stat.S_IROTH:
                yield TreeProblem(place=where, why=f"has mode {stat.S_IMODE(mode):04o}: users cannot read it")
