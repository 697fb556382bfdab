"""Compare two locks before anything is built: their packages, and vulnerabilities by Debian's security tracker."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
from debian.debian_support import NativeVersion
from msgspec import Struct

from steps.nodeimage.contract.resolved_recipe import Package
from workflows.nodeimage.lockfile import Lock
from workflows.podimage.errors import BuildError

LARGEST_BYTES: Final = 1 << 28
_BUILD = re.compile(r"\+b\d+$")
_SIGNED = re.compile(r"-signed-[a-z0-9]+$")
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
            known = msgspec.json.decode(data, type=dict[str, dict[str, _Cve]])
        except msgspec.MsgspecError as error:
            raise BuildError(f"{path} is no feed of vulnerabilities: {error}", hint=FORM) from error
        self._of: Mapping[str, dict[str, _Release]] = {
            source: {name: cve.releases[release] for name, cve in cves.items() if release in cve.releases}
            for source, cves in known.items()
        }
        if not any(self._of.values()):
            raise BuildError(f"{path} says nothing about {release}", hint=f"give the feed of the recipe's distribution; {NOT_READ}")

    def open_in(self, package: Package, *, told: bool = True) -> frozenset[str]:
        """Return the names of vulnerabilities that a package has or may have: those without a fix, or with one in a newer version.

        The tracker counts by source versions. If the lock has none (`told` is False), the package's own version is compared, and a
        fix with another epoch does not count, because the two may not be versions of one thing.
        """
        # the source of signed packages counts otherwise (`6.1.140+1`), but the packages have the version of what is signed
        is_signed = _SIGNED.search(_pool_of(package)) is not None
        counted = "" if is_signed else package.source_version
        version = _version(counted or _BUILD.sub("", package.version))
        guessed = not told and not package.source_version and not is_signed
        entries = self._of.get(source_of(package), {})
        return frozenset(name for name, entry in entries.items() if _is_open(entry, version, guessed))


def _is_open(entry: _Release, version: NativeVersion | None, guessed: bool) -> bool:
    if entry.status != "resolved":
        return True  # also where nobody has looked: a possible fault is reported
    if entry.fixed_version in ("", "0"):
        return False
    fixed = _version(entry.fixed_version)
    if version is None or fixed is None:
        return True  # one of them is no Debian version, so they cannot be compared: a possible fault is reported
    return bool(version < fixed) or (guessed and (version.epoch or "0") != (fixed.epoch or "0"))


def _version(text: str) -> NativeVersion | None:
    """Return a version in Debian's order; None for a text that is no version."""
    try:
        return NativeVersion(text)
    except ValueError:
        return None


def source_of(package: Package) -> str:
    """Return the source package by its folder in the pool (`pool/main/g/glibc/…`); a signed rebuild has the original source."""
    return _SIGNED.sub("", _pool_of(package))


def _pool_of(package: Package) -> str:
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
    old, new = _by_name(before), _by_name(after)
    told = before is None or before.tells_sources
    had = {name: _open(feed, one, new.get(name), told=told) for name, one in old.items()}
    has = {name: _open(feed, one) for name, one in new.items()}
    open_before, open_after = frozenset[str]().union(*had.values()), frozenset[str]().union(*has.values())
    return LockDifference(
        changes=tuple(_changes(old, new, had, has)),
        size_before=sum(package.size for package, _ in old.values()),
        size_after=sum(package.size for package, _ in new.values()),
        fixed=tuple(sorted(open_before - open_after)) if feed else None,
        left=tuple(sorted(open_after)) if feed else None,
        guessed=() if told or not feed else tuple(sorted(name for name, one in old.items() if not _is_known(one, new.get(name)))),
    )


_Placed = tuple[Package, str]
_Open = Mapping[str, frozenset[str]]


def _is_known(was: _Placed, now: _Placed | None) -> bool:
    return now is not None and was[0].sha256 == now[0].sha256


def _open(feed: Feed | None, one: _Placed, now: _Placed | None = None, *, told: bool = True) -> frozenset[str]:
    """Return the open vulnerabilities of a package, none without a feed.

    The package's source version is taken from `now`, the newer lock's entry, if that is the very same package.
    """
    if feed is None:
        return frozenset()
    return feed.open_in(now[0]) if now and _is_known(one, now) else feed.open_in(one[0], told=told)


def _by_name(lock: Lock | None) -> dict[str, _Placed]:
    return {one.name: (one, layer.name) for layer in (lock.layers if lock else ()) for one in layer.packages}


def _changes(old: dict[str, _Placed], new: dict[str, _Placed], had: _Open, has: _Open) -> Iterator[PackageChange]:
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was and now and (was[0].version, was[0].sha256, was[1]) == (now[0].version, now[0].sha256, now[1]):
            continue
        before, after = had.get(name, frozenset()), has.get(name, frozenset())
        yield PackageChange(
            package=name,
            layer=(now or was or ("", ""))[1],
            before=was[0].version if was else "",
            after=now[0].version if now else "",
            fixed=tuple(sorted(before - after)),
            new=tuple(sorted(after - before)),
        )
