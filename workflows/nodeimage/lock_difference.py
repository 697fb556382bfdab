"""Compare two locks before anything is built: their packages, and vulnerabilities by Debian's security tracker."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
from debian.debian_support import NativeVersion
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON
from steps.nodeimage.contract.resolved_recipe import Package
from workflows.nodeimage.lockfile import Lock
from workflows.podimage.errors import BuildError

LARGEST_BYTES: Final = 1 << 28
_BINARY_REBUILD = re.compile(r"\+b\d+$")
_SIGNED_SUFFIX = re.compile(r"-signed-[a-z0-9]+$")
NOT_READ: Final = "feeds of Ubuntu (OSV, OVAL) have another form, and are not read"
FORM: Final = f"give Debian's security tracker as JSON: package, CVE, releases, status and fixed_version; {NOT_READ}"


class _Release(Struct, frozen=True):
    """State of a vulnerability in one release. `fixed_version` "0": never vulnerable; `undetermined`: not examined yet."""

    status: Literal["open", "resolved", "undetermined"]
    fixed_version: str = ""


class _Cve(Struct, frozen=True):
    releases: dict[str, _Release] = {}


class Feed:
    """A file of Debian's security tracker: the vulnerabilities of one release by source package."""

    def __init__(self, path: Path, release: str) -> None:
        """Read the JSON file. Raises BuildError if it has another form, or nothing about the release."""
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
        if len(data) > LARGEST_BYTES:
            raise BuildError(f"{path} has more than {LARGEST_BYTES >> 20} MiB", hint=FORM)
        try:
            cves_by_source = msgspec.json.decode(data, type=dict[str, dict[str, _Cve]])
        except UNREADABLE_JSON as error:
            raise BuildError(f"{path} is no feed of vulnerabilities: {error}", hint=FORM) from error
        self._cves_by_source: Mapping[str, dict[str, _Release]] = {
            source: {name: cve.releases[release] for name, cve in cves.items() if release in cve.releases}
            for source, cves in cves_by_source.items()
        }
        if not any(self._cves_by_source.values()):
            raise BuildError(f"{path} says nothing about {release}", hint=f"give the feed of the recipe's distribution; {NOT_READ}")

    def open_in(self, package: Package, *, by_source: bool = True) -> frozenset[str]:
        """Return the names of vulnerabilities that a package has or may have: those without a fix, or with one in a newer version.

        The tracker counts by source versions. If the lock has none (`by_source` is False), the package's own version is compared. A
        fix with another epoch then does not count, because the two may not be versions of one thing.
        """
        # the source of signed packages counts otherwise (`6.1.140+1`), but the packages have the version of what is signed
        is_signed = _SIGNED_SUFFIX.search(_pool_folder(package)) is not None
        source_version = "" if is_signed else package.source_version
        version = _version(source_version or _BINARY_REBUILD.sub("", package.version))
        is_guess = not by_source and not package.source_version and not is_signed
        cves = self._cves_by_source.get(source_of(package), {})
        return frozenset(name for name, cve in cves.items() if _is_open(cve, version, is_guess))


def _is_open(cve: _Release, version: NativeVersion | None, is_guess: bool) -> bool:
    if cve.status != "resolved":
        return True  # also where nobody has looked: a possible fault is reported
    if cve.fixed_version in ("", "0"):
        return False
    fixed_version = _version(cve.fixed_version)
    if version is None or fixed_version is None:
        return True  # one of them is no Debian version, so they cannot be compared: a possible fault is reported
    return bool(version < fixed_version) or (is_guess and (version.epoch or "0") != (fixed_version.epoch or "0"))


def _version(text: str) -> NativeVersion | None:
    """Return a version in Debian's order; None for a text that is no version."""
    try:
        return NativeVersion(text)
    except ValueError:
        return None


def source_of(package: Package) -> str:
    """Return the source package by its folder in the pool (`pool/main/g/glibc/…`); a signed rebuild has the original source."""
    return _SIGNED_SUFFIX.sub("", _pool_folder(package))


def _pool_folder(package: Package) -> str:
    folders = package.path.split("/")
    return folders[-2] if len(folders) > 2 and folders[0] == "pool" else package.name


class PackageChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One package that differs between two locks: added without `before`, removed without `after`, else changed.

    `fixed` are the vulnerabilities that it loses, `new` those that it gets.
    """

    package: str
    layer: str
    before: str = ""
    after: str = ""
    fixed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """`added`, `removed` or `changed`."""
        return "added" if not self.before else "removed" if not self.after else "changed"


class LockDifference(Struct, frozen=True, kw_only=True):
    """The differences of two locks; `changes` are sorted by package, sizes are downloads in bytes.

    `fixed` are vulnerabilities that the newer lock no longer has, `left` those that it has; None without a feed. `guessed` are
    packages of the earlier lock whose source version is unknown, so that they may have had more vulnerabilities than shown.
    """

    changes: tuple[PackageChange, ...]
    size_before: int
    size_after: int
    fixed: tuple[str, ...] | None = None
    left: tuple[str, ...] | None = None
    guessed: tuple[str, ...] = ()


def compare_locks(before: Lock | None, after: Lock, feed: Feed | None = None) -> LockDifference:
    """Return the differences of two locks; without an earlier one every package is added."""
    old, new = _packages_by_name(before), _packages_by_name(after)
    by_source = before is None or before.has_source_versions
    old_cves = {name: _open_cves(feed, locked, new.get(name), by_source=by_source) for name, locked in old.items()}
    new_cves = {name: _open_cves(feed, locked) for name, locked in new.items()}
    all_old_cves, all_new_cves = frozenset[str]().union(*old_cves.values()), frozenset[str]().union(*new_cves.values())
    return LockDifference(
        changes=tuple(_changes(old, new, old_cves, new_cves)),
        size_before=sum(package.size for package, _ in old.values()),
        size_after=sum(package.size for package, _ in new.values()),
        fixed=tuple(sorted(all_old_cves - all_new_cves)) if feed else None,
        left=tuple(sorted(all_new_cves)) if feed else None,
        guessed=() if by_source or not feed else tuple(sorted(name for name in old if not _is_same(old[name], new.get(name)))),
    )


_Locked = tuple[Package, str]  # with the name of its layer
_OpenCves = Mapping[str, frozenset[str]]


def _is_same(old: _Locked, new: _Locked | None) -> bool:
    return new is not None and old[0].sha256 == new[0].sha256


def _open_cves(feed: Feed | None, locked: _Locked, newer: _Locked | None = None, *, by_source: bool = True) -> frozenset[str]:
    """Return the open vulnerabilities of a package, none without a feed.

    The package's source version is taken from `newer`, the newer lock's entry, if that is the very same package.
    """
    if feed is None:
        return frozenset()
    return feed.open_in(newer[0]) if newer and _is_same(locked, newer) else feed.open_in(locked[0], by_source=by_source)


def _packages_by_name(lock: Lock | None) -> dict[str, _Locked]:
    return {package.name: (package, layer.name) for layer in (lock.layers if lock else ()) for package in layer.packages}


def _changes(old: dict[str, _Locked], new: dict[str, _Locked], old_cves: _OpenCves, new_cves: _OpenCves) -> Iterator[PackageChange]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before and after and (before[0].version, before[0].sha256, before[1]) == (after[0].version, after[0].sha256, after[1]):
            continue
        cves_before, cves_after = old_cves.get(name, frozenset()), new_cves.get(name, frozenset())
        yield PackageChange(
            package=name,
            layer=(after or before or ("", ""))[1],
            before=before[0].version if before else "",
            after=after[0].version if after else "",
            fixed=tuple(sorted(cves_before - cves_after)),
            new=tuple(sorted(cves_after - cves_before)),
        )
