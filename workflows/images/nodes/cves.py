"""Which known vulnerabilities packages have, by Debian's security tracker: its JSON form, given as a file."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from steps.contract.image.recipe import Package
from workflows.images.errors import BuildError
from workflows.images.nodes.versions import Version

LARGEST_BYTES: Final = 1 << 28
_BUILD = re.compile(r"\+b\d+$")
_SIGNED = re.compile(r"-signed-[a-z0-9]+$")
NOT_READ: Final = "feeds of Ubuntu (OSV, OVAL) have another form, and are not read"
FORM: Final = f"give Debian's security tracker as JSON: package, CVE, releases, status and fixed_version; {NOT_READ}"


class _Release(Struct, frozen=True):
    """What is known of one release. `fixed_version` "0": it never had the fault; `undetermined`: nobody has looked yet."""

    status: Literal["open", "resolved", "undetermined"]
    fixed_version: str = ""


class _Cve(Struct, frozen=True):
    releases: dict[str, _Release] = {}


class Feed:
    """The vulnerabilities of one release by source package."""

    def __init__(self, path: Path, release: str) -> None:
        """Read a feed. Raises BuildError where it has another form, or nothing about the release."""
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
        """Vulnerabilities that this version of a package has or may have: without a fix, or with one that is newer. Feeds count by
        versions of source packages. Where the lock has not `told` them the package's own stands for its source's, and a fix whose
        version has another epoch counts for nothing: the two may be no versions of one thing."""
        version = Version(_counted(package))
        guessed = not told and not package.source_version and not _SIGNED.search(_pool_of(package))
        return frozenset(name for name, one in self._of.get(source_of(package), {}).items() if _is_open(one, version, guessed))


def _counted(package: Package) -> str:
    """The version that feeds count by. What is built again to be signed counts otherwise (`6.1.140+1`), while its packages have the
    version of what is signed."""
    told = "" if _SIGNED.search(_pool_of(package)) else package.source_version
    return told or _BUILD.sub("", package.version)


def _is_open(one: _Release, version: Version, guessed: bool) -> bool:
    if one.status != "resolved":
        return True  # also where nobody has looked: what may have a fault is told
    if one.fixed_version in ("", "0"):
        return False
    fixed = Version(one.fixed_version)
    return version < fixed or (guessed and version.epoch != fixed.epoch)


def source_of(package: Package) -> str:
    """The source package, as the pool has it (`pool/main/g/glibc/…`); what is built again to be signed is the same source."""
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
