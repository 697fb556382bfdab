"""Known vulnerabilities of packages, from a JSON file of Debian's security tracker."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
from debian.debian_support import NativeVersion
from msgspec import Struct

from steps.nodeimage.contract.resolved_recipe import Package
from workflows.podimage.errors import BuildError

LARGEST_BYTES: Final = 1 << 28
_BUILD = re.compile(r"\+b\d+$")
_SIGNED = re.compile(r"-signed-[a-z0-9]+$")
NOT_READ: Final = "feeds of Ubuntu (OSV, OVAL) have another form, and are not read"
FORM: Final = f"give Debian's security tracker as JSON: package, CVE, releases, status and fixed_version; {NOT_READ}"


class _Release(Struct, frozen=True):
    """Entry of one release. `fixed_version` "0": never vulnerable; `undetermined`: not examined yet."""

    status: Literal["open", "resolved", "undetermined"]
    fixed_version: str = ""


class _Cve(Struct, frozen=True):
    releases: dict[str, _Release] = {}


class Feed:
    """Vulnerabilities of one release by source package."""

    def __init__(self, path: Path, release: str) -> None:
        """Read a feed. Raises BuildError if it has another form, or nothing about the release."""
        data = _read(path)
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
        """Return the vulnerabilities that a package has or may have: those without a fix, or with a newer one.

        Feeds count by source versions. If the lock does not have them (`told`), the package's own version is used, and a fix with
        another epoch is ignored: the two may not be versions of one thing.
        """
        version = _version(_counted(package))
        guessed = not told and not package.source_version and not _SIGNED.search(_pool_of(package))
        return frozenset(name for name, one in self._of.get(source_of(package), {}).items() if _is_open(one, version, guessed))


def _counted(package: Package) -> str:
    """Return the version that feeds count by.

    The source of signed packages counts otherwise (`6.1.140+1`), but the packages have the version of what is signed.
    """
    told = "" if _SIGNED.search(_pool_of(package)) else package.source_version
    return told or _BUILD.sub("", package.version)


def _is_open(one: _Release, version: NativeVersion | None, guessed: bool) -> bool:
    if one.status != "resolved":
        return True  # also where nobody has looked: a possible fault is reported
    if one.fixed_version in ("", "0"):
        return False
    fixed = _version(one.fixed_version)
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


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise BuildError(f"{path} has more than {LARGEST_BYTES >> 20} MiB", hint=FORM)
    return data
