"""Installation of exactly the locked packages by dpkg and apt, from the package archive alone, for Debian and Ubuntu.

Essential packages are unpacked and then installed by the new root's own dpkg, as mmdebstrap does. apt installs all others from
outside, which needs nothing in the root. apt sees one repository: an index written from the lock, over the archive. It checks each
file against the index, so either the installed files have the locked digests or nothing is installed.
"""

import contextlib
import hashlib
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import quote

from steps.nodeimage import kernel_calls
from steps.nodeimage.containment import chroot
from steps.nodeimage.contract import debian
from steps.nodeimage.contract.resolved_recipe import Package

ARCHIVE: Final = f"{chroot.OURS}/archive"
_FIRST: Final = ("base-passwd", "base-files")
"""Packages that dpkg installs first, because others need their users, groups and folders."""
_MERGED: Final = ("bin", "lib", "sbin")
_MERGED_64: Final = ("lib32", "lib64", "libx32")
_READERS: Final = 4
_SHORT: Final = (Path("/mnt"), Path("/media"), Path("/srv"))
"""Folders that exist on every machine and that no program needs for work on a root (FHS 3.0 §3)."""


class CannotInstall(Exception):
    """Error: packages could not be installed; the message is the end of the output, or names the wrong file."""


def unpack(root: Path, archive: Path, packages: Iterable[Package]) -> None:
    """Unpack the essential packages into an empty root, whose dpkg can then install them. Raises CannotInstall."""
    essential = _essential(packages)
    if not essential:
        return
    _merge_usr(root, essential)
    for package in essential:
        file = debian.in_archive(archive, package.sha256)
        if hashlib.sha256(file.read_bytes()).hexdigest() != package.sha256:
            named = f"{package.name}={package.version}"
            raise CannotInstall(f"{file} is not the locked {named}: remove it, and run the lock stage again")
        _unpack(root, file)


def _essential(packages: Iterable[Package]) -> list[Package]:
    """Return the essential packages in the order in which dpkg installs them."""
    essential = [package for package in packages if package.essential]
    return sorted(essential, key=lambda package: (package.name not in _FIRST, package.name != _FIRST[0], package.name))


def install(root: Path, archive: Path, packages: Sequence[Package], epoch: int) -> None:
    """Install the packages in a prepared root, in which `unpack` has unpacked the essential ones. Raises CannotInstall."""
    place = root / ARCHIVE
    place.mkdir(parents=True)
    kernel_calls.mount(str(archive), place, "", kernel_calls.BIND)
    with chroot.without_services(root):
        _bootstrap(root, _essential(packages), epoch)
        rest = [package for package in packages if not package.essential]
        if rest:
            with _short(root) as place:
                _install_with_apt(place, rest, epoch)
    with chroot.enter(root):
        _mark(Path("/", debian.MARKS), [package for package in rest if not package.asked])


def installed_packages(root: Path) -> list[str]:
    """Return `name=version` of all packages that are completely installed in a root, sorted; empty without dpkg's database."""
    status = root / debian.STATUS
    return debian.installed_packages(status.read_text()) if status.is_file() else []


def _bootstrap(root: Path, packages: Sequence[Package], epoch: int) -> None:
    """Let the root's own dpkg install the unpacked essential packages. Raises CannotInstall."""
    if not packages:
        return
    for folder in (debian.NOTES, "var/lib/dpkg/updates", "var/lib/dpkg/triggers"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for file in (debian.STATUS, "var/lib/dpkg/available"):
        (root / file).touch()
    files = [f"/{debian.in_archive(Path(ARCHIVE), package.sha256)}" for package in packages]
    # essential packages depend on each other in circles, so none could come first
    command = ["dpkg", "--force-depends", "--force-unsafe-io", "--force-confnew", "--install", *files]
    _succeed(chroot.run(root, command, chroot.environment(epoch)))


def _merge_usr(root: Path, packages: Sequence[Package]) -> None:
    """Make /bin, /lib and others links into /usr, as every supported release has them: packages do not bring these links."""
    is_amd64 = any(package.architecture == "amd64" for package in packages)
    for name in (*_MERGED, *(_MERGED_64 if is_amd64 else ())):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")


def _unpack(root: Path, file: Path) -> None:
    # a folder /bin in a package must not replace the link that `_merge_usr` has made
    tar = ["tar", "--directory", str(root), "--extract", "--keep-directory-symlink", "--numeric-owner", "--file", "-"]
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as source,
        subprocess.Popen(tar, stdin=source.stdout, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as sink,
    ):
        if source.stdout:
            source.stdout.close()  # tar alone reads it: where tar ends early, dpkg-deb must not wait for us
        errors = b"".join(program.stderr.read() for program in (sink, source) if program.stderr)
    if source.returncode or sink.returncode:
        raise CannotInstall(f"{file.name}: {errors.decode(errors='replace').strip()[-chroot.TAIL :]}")


@contextlib.contextmanager
def _short(root: Path) -> Iterator[Path]:
    """Bind the root to a short path and yield that, because apt names files after a repository's whole path, limit 255 bytes."""
    real = root.resolve()
    place = next((folder for folder in _SHORT if folder.is_dir() and not real.is_relative_to(folder.resolve())), None)
    if place is None:
        yield root
        return
    kernel_calls.mount(str(root), place, "", kernel_calls.BIND | kernel_calls.REC)
    try:
        yield place
    finally:
        kernel_calls.unmount(place)


def _install_with_apt(root: Path, packages: Sequence[Package], epoch: int) -> None:
    ours = root / chroot.OURS
    (ours / "Packages").write_text("".join(_index(root / ARCHIVE, packages)))
    for folder in ("apt/lists/partial", "apt/cache/archives/partial", "apt/log"):
        (ours / folder).mkdir(parents=True, exist_ok=True)
    address = quote(quote(str(ours)))  # apt decodes it twice: as a word of the line, and as an address
    # trusted without a signature: the index is made here, from the digests of the lock
    (ours / "apt/sources.list").write_text(f"deb [trusted=yes] file:{address} ./\n")
    (ours / "apt/apt.conf").write_text(_configuration(root, packages))
    settings = {**chroot.environment(epoch), "APT_CONFIG": str(ours / "apt/apt.conf")}
    _succeed(chroot.outside(["apt-get", "-q", "update"], settings))
    suffixes = {package: "" if package.architecture == "all" else f":{package.architecture}" for package in packages}
    pins = [f"{package.name}{suffix}={package.version}" for package, suffix in suffixes.items()]
    _succeed(chroot.outside(["apt-get", "-q", "--yes", "--no-remove", "install", *sorted(pins)], settings))


def _configuration(root: Path, packages: Sequence[Package]) -> str:
    """Return the text of an apt.conf with all settings, so that none of this machine's count.

    dpkg does not flush its database on each write, because the finished layer is flushed once.
    """
    ours = root / chroot.OURS / "apt"
    architecture = next((package.architecture for package in packages if package.architecture != "all"), "")
    settings = {
        "Dir::State": f"{ours}",
        "Dir::State::status": f"{root / debian.STATUS}",
        "Dir::Cache": f"{ours}/cache",
        "Dir::Log": f"{ours}/log",
        "Dir::Etc": f"{ours}",
        "Dir::Etc::sourcelist": f"{ours}/sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::parts": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::Etc::trustedparts": "/dev/null",
        "DPkg::Chroot-Directory": f"{root}",
        "Dpkg::Use-Pty": "false",
        "APT::Install-Recommends": "false",
        "APT::Install-Suggests": "false",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        **({"APT::Architecture": architecture} if architecture else {}),
    }
    lines = [f'{name} "{value}";\n' for name, value in settings.items()]
    lines.append('DPkg::Options { "--force-unsafe-io"; "--force-confnew"; };\n')
    if architecture:
        lines.append(f'APT::Architectures {{ "{architecture}"; }};\n')
    return "".join(lines)


def _index(archive: Path, packages: Sequence[Package]) -> Iterable[str]:
    """Yield the repository's index: the control data of each package, with file name, size and digest. Raises CannotInstall."""
    with ThreadPoolExecutor(_READERS) as pool:
        controls = pool.map(lambda package: _control(debian.in_archive(archive, package.sha256)), packages)
        for package, control in zip(packages, controls, strict=True):
            fields = dict(re.findall(r"^(Package|Version|Architecture): (.*)$", control, re.MULTILINE))
            actual = (fields.get("Package"), fields.get("Version"), fields.get("Architecture"))
            if actual != (package.name, package.version, package.architecture):
                named = f"{package.name}={package.version}"
                raise CannotInstall(f"the archive's file of {named} says that it is {actual}: lock the recipe again")
            name = f"./archive/{debian.in_archive(Path(), package.sha256)}"
            yield f"{control.strip()}\nFilename: {name}\nSize: {package.size}\nSHA256: {package.sha256}\n\n"


def _control(file: Path) -> str:
    done = subprocess.run(["dpkg-deb", "--field", str(file)], capture_output=True, check=False)
    if done.returncode:
        raise CannotInstall(f"{file.name}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace")


def _mark(marks: Path, packages: Sequence[Package]) -> None:
    """Add the packages to the root's list of automatically installed ones, which apt may remove as unneeded dependencies."""
    if packages:
        marks.parent.mkdir(parents=True, exist_ok=True)
        before = marks.read_text() if marks.is_file() else ""
        blocks = [f"Package: {each.name}\nArchitecture: {each.architecture}\nAuto-Installed: 1\n\n" for each in packages]
        marks.write_text(before + "".join(sorted(blocks)))


def _succeed(ended: chroot.ProgramEnd) -> None:
    if ended.code:
        raise CannotInstall(ended.output)
