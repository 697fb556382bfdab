"""Run apt in a private root: fetch indexes of given repositories, and ask what would be installed on top of given packages.

Nothing of this machine is read or changed, except apt's settings for reaching mirrors (proxies, certificates, credentials).
"""

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from workflows.podimage import downloads
from workflows.podimage.errors import BuildError, FetchError

ESSENTIAL: Final = "?essential"
"""apt's pattern for packages without which no system works."""
_BRINGER: Final = "apt (on Debian and its kin)"
_WAY: Final = ("Acquire", "Dir::Etc::netrc", "Dir::Etc::netrcparts")
"""apt's settings for reaching mirrors; netrc: files with credentials."""
_SETTING: Final = re.compile(r'^(?!Acquire::(?:IndexTargets|Languages)\b)\S+ "[^"\n]+";$', re.MULTILINE | re.IGNORECASE)
_NO_OTHERS: Final = 'Dir::Etc::main "/dev/null";\nDir::Etc::parts "/dev/null";\n'
_FAILED = re.compile(r"Failed to fetch (\S+)\s+(.*)")
_LONGEST: Final = 300
_URI = re.compile(r"'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})")
_INSTALL: Final = ("install", "--print-uris", "-qq", "--no-install-recommends", "--no-remove", "--yes")
_OVER_NEWER: Final = 995
"""Pin priority of a held version: above newer versions, and below the priority that replaces an installed one."""
_LAST: Final = 'Package: *\nPin: origin ""\nPin-Priority: 1\n'
"""Pin of packages that only this machine has: used if held, or if no repository has the package."""


class AptPackage(NamedTuple):
    """A package that apt would install; `size` is in bytes."""

    name: str
    version: str
    architecture: str
    sha256: str
    size: int
    url: str


class Twice(BuildError):
    """Error for packages (`names`) that apt would install although a lower layer has another version of them."""

    def __init__(self, names: Sequence[str], message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.names = tuple(names)


class AptRoot:
    """A private root of apt in `folder`, with its own indexes and package database. `repositories` are lines of sources.list."""

    def __init__(self, folder: Path, architecture: str, repositories: Iterable[str]) -> None:
        self.folder = folder
        for needed in ("lists/partial", "cache/archives/partial", "none"):
            (folder / needed).mkdir(parents=True)
        (folder / "sources.list").write_text("".join(f"{line}\n" for line in repositories))
        self._settings = folder / "apt.conf"
        self._settings.touch(mode=0o600)  # proxies may have passwords
        self._settings.write_text(_way_to_mirrors())
        self.status = ""
        self.source_versions: dict[str, str] = {}
        self._offered: dict[str, str] = {}
        options = {
            "Dir::State": folder,
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder / "cache",
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": folder / "none",
            "Dir::Etc::preferences": folder / "preferences",
            "Dir::Etc::preferencesparts": folder / "none",
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Default-Release": "",
            "APT::Sandbox::User": "",
            "Acquire::ForceHash": "SHA256",
            "Acquire::Languages": "none",
        }
        self._options = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]

    @property
    def status(self) -> str:
        """Text of dpkg's database: the packages that count as installed."""
        return (self.folder / "status").read_text()

    @status.setter
    def status(self, text: str) -> None:
        (self.folder / "status").write_text(text)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the packages that count as installed, by package name."""
        stanzas = [text for text in self.status.split("\n\n") if text.strip()]
        return {_field("Package", text): _field("Version", text) for text in stanzas}

    def update(self) -> None:
        """Fetch the indexes of the repositories. Raises FetchError."""
        self._run("apt-get", "update", "--error-on=any")

    def has(self, package: str) -> bool:
        """Return True if the indexes have a package of this name."""
        return self._done("apt-cache", "show", "--no-all-versions", package).returncode == 0

    def known(self, packages: Iterable[AptPackage]) -> dict[str, str]:
        """Return sha256 → apt's control data of the packages that the indexes have in exactly the wanted versions."""
        exact = [f"{package.name}={package.version}" for package in packages]
        stdout = self._done("apt-cache", "show", *exact).stdout if exact else ""
        return {_field("SHA256", text): text for text in stdout.split("\n\n") if text.strip()} | self._offered

    def offer(self, debs: Mapping[str, Path]) -> None:
        """Add package files of this machine (sha256 → path) to apt's sources, as a repository. Raises BuildError, FetchError."""
        for sha256, path in debs.items():
            place = [f"Filename: ./{sha256}.deb", f"Size: {path.stat().st_size}", f"SHA256: {sha256}"]
            self._offered[sha256] = "\n".join([_control(path), *place])
        (self.folder / "own").mkdir()
        (self.folder / "own/Packages").write_text("\n\n".join([*self._offered.values(), ""]))
        line, alone = f"deb [trusted=yes] file:{quote(str(self.folder / 'own'))} ./\n", self.folder / "own.list"
        alone.write_text(line)
        self._run("apt-get", "update", "-o", f"Dir::Etc::sourcelist={alone}", "-o", "APT::Get::List-Cleanup=0")
        with (self.folder / "sources.list").open("a") as file:
            file.write(line)

    def hold(self, versions: Mapping[str, str]) -> None:
        """Have apt prefer these versions, by package name, to newer ones; versions held before are no longer held."""
        pins = (
            f"Package: {name}\nPin: version {version}\nPin-Priority: {_OVER_NEWER}\n" for name, version in sorted(versions.items())
        )
        (self.folder / "preferences").write_text("\n".join([*pins, *([_LAST] if self._offered else [])]))

    def can_install(self, packages: Sequence[str]) -> bool:
        """Return True if apt finds a solution for `install`."""
        return self._done("apt-get", *_INSTALL, *packages).returncode == 0

    def install(self, packages: Sequence[str]) -> list[AptPackage]:
        """Return what apt would install for `packages`, without recommended ones and without removing any. Raises FetchError."""
        return [_found(*match) for match in _URI.findall(self._run("apt-get", *_INSTALL, *packages))]

    def installed(self, packages: Sequence[AptPackage]) -> None:
        """Count packages as installed from now on. Raises Twice for one that already counts in another version, else BuildError."""
        if not packages:
            return
        if twice := sorted(self.versions.keys() & {package.name for package in packages}):
            raise Twice(
                twice,
                f"{', '.join(twice)} would be installed a second time, in another version than a layer below has",
                hint="give the layer below the repository that has the newer version",
            )
        stanzas = self.known(packages)
        lacking = [package.name for package in packages if package.sha256 not in stanzas]
        if lacking:
            raise BuildError(f"apt's indexes say nothing of {', '.join(lacking)}")
        self.status += "".join(_as_installed(stanzas[package.sha256]) for package in packages)
        self.source_versions |= {package.sha256: _source_version(stanzas[package.sha256]) for package in packages}

    def _run(self, program: str, *arguments: str) -> str:
        done = self._done(program, *arguments)
        if done.returncode != 0:
            raise FetchError(f"apt cannot resolve the recipe: {_sentence(done.stderr)}")
        return done.stdout

    def _done(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return downloads.run([program, *self._options, *arguments], _BRINGER, {"APT_CONFIG": str(self._settings)})


def _way_to_mirrors() -> str:
    """Return apt's settings file: this machine's settings for reaching mirrors, and none of its other settings.

    The file is named by APT_CONFIG, which apt reads before all others. Command line options come too late to keep apt from those.
    """
    dump = downloads.run(["apt-config", "dump", *_WAY], _BRINGER)
    if dump.returncode != 0:
        raise BuildError(f"apt's settings on this machine cannot be read: {_sentence(dump.stderr)}")
    return _NO_OTHERS + "".join(f"{line}\n" for line in _SETTING.findall(dump.stdout))


def _sentence(stderr: str) -> str:
    """Return apt's first error and the number of others, because one dead mirror gives an error for each index."""
    errors = [line.removeprefix("E:").strip() for line in stderr.splitlines() if line.startswith("E:")]
    errors = [line for line in errors if not line.startswith("Some index files failed")] or [stderr.strip()]
    if failed := _FAILED.match(errors[0]):
        errors[0] = f"{failed[1]} cannot be fetched: {failed[2]}"
    more = f" (and {len(errors) - 1} more like it)" if len(errors) > 1 else ""
    return " ".join(errors[0].split())[:_LONGEST] + more


def _found(address: str, file: str, size: str, sha256: str) -> AptPackage:
    name, version, last = unquote(file).removesuffix(".deb").split("_")
    return AptPackage(name, version, last, sha256, int(size), address)


def _control(path: Path) -> str:
    done = downloads.run(["dpkg-deb", "--field", str(path)], "dpkg (on Debian and its kin)")
    if done.returncode != 0 or not done.stdout.strip():
        raise BuildError(f"{path} is no package: {done.stderr.strip()}")
    return done.stdout.strip("\n")


def _field(name: str, stanza: str) -> str:
    line = re.search(rf"^{name}: (.*)$", stanza, re.MULTILINE)
    return line[1] if line else ""


def _source_version(stanza: str) -> str:
    """Return the version of the source package if it differs (`Source: lvm2 (2.03.16-2)`), else an empty text."""
    match = re.search(r"\((\S+)\)$", _field("Source", stanza))
    return match[1] if match else ""


def _as_installed(stanza: str) -> str:
    head, _, rest = stanza.strip("\n").partition("\n")
    return f"{head}\nStatus: install ok installed\n{rest}\n\n"
