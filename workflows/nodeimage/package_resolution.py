"""Resolve package lists by the distribution's package manager: which versions exist, and which dependencies they need.

Debian and Ubuntu are resolved by apt. `steps/nodeimage/contract/debian` has the facts about them, and
`steps/nodeimage/layer/package_installation` installs; other modules know no package manager. Another family of distributions would
be chosen by `Foundation.distribution` here.
"""

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from steps.nodeimage.contract.resolved_recipe import Package, PackageRepository
from workflows.nodeimage.lock_update import KeptLock, PackageInstaller, as_apt_package
from workflows.nodeimage.recipe_spec import Foundation, RecipeLayer
from workflows.podimage import apt_solver
from workflows.podimage.apt_solver import AptPackage
from workflows.podimage.errors import BuildError

KERNEL: Final = re.compile(r"linux-image-(unsigned-)?\d(?!.*-dbg(sym)?$)")
"""Name of a package with a kernel of one version: neither a metapackage nor debug symbols (`-dbg` in Debian, `-dbgsym` in Ubuntu).
"""
_USR_IS_MERGED: Final = "usr-is-merged"
"""Package chosen over `usrmerge`, which would bring Perl into every image: roots have merged /usr from the start."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A distribution's mirrors, components and keyring.

    `ports` is the mirror of architectures other than amd64, `security` that of security updates. With `has_security_folder`,
    mirrors have them in a folder beside the archive, else in the archive itself, as `ports` has. `components` are always used,
    `optional_components` only if a layer asks for them. `keyring_package` is the package that installs the keyring.
    """

    mirror: str
    ports: str
    security: str
    components: tuple[str, ...]
    optional_components: tuple[str, ...]
    keyring: str
    keyring_package: str
    has_security_folder: bool


DISTRIBUTIONS: Final = {
    "debian": Distribution(
        mirror="http://deb.debian.org/debian",
        ports="http://deb.debian.org/debian",
        security="http://deb.debian.org/debian-security",
        components=("main",),
        optional_components=("contrib", "non-free", "non-free-firmware"),
        keyring="/usr/share/keyrings/debian-archive-keyring.gpg",
        keyring_package="debian-archive-keyring",
        has_security_folder=True,
    ),
    "ubuntu": Distribution(
        mirror="http://archive.ubuntu.com/ubuntu",
        ports="http://ports.ubuntu.com/ubuntu-ports",
        security="http://security.ubuntu.com/ubuntu",
        components=("main", "universe"),
        optional_components=("restricted", "multiverse"),
        keyring="/usr/share/keyrings/ubuntu-archive-keyring.gpg",
        keyring_package="ubuntu-keyring",
        has_security_folder=False,
    ),
}


def keyring_hint(keyring: str) -> str:
    """Return the command or the advice that installs a keyring on this machine, for hints."""
    commands = {distribution.keyring: f"apt-get install {distribution.keyring_package}" for distribution in DISTRIBUTIONS.values()}
    return commands.get(keyring, "install the package that brings it")


@dataclass(frozen=True, kw_only=True)
class NamedRepository:
    """A package repository with its name in locks, which names no mirror host.

    `layer` is the number of the lowest layer that may use it.
    """

    name: str
    source: PackageRepository
    layer: int = 0


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A spec's mirror of the distribution, in place of the public one; empty fields keep the default."""

    url: str = ""
    security: str = ""
    keyring: str = ""


def sources(foundation: Foundation, layers: Sequence[tuple[Path, RecipeLayer]], mirror: Mirror) -> tuple[NamedRepository, ...]:
    """Return a recipe's repositories: the distribution's own, then further components and repositories that its layers add.

    Each layer comes with its recipe's folder. Paths of keys are absolute, because apt takes any other text for a fingerprint.
    """
    distribution = DISTRIBUTIONS[foundation.distribution]
    is_port = foundation.architecture != "amd64"
    archive = mirror.url or (distribution.ports if is_port else distribution.mirror)
    default_security = distribution.ports if is_port and not distribution.has_security_folder else distribution.security
    mirror_security = f"{mirror.url}-security" if distribution.has_security_folder else mirror.url
    security = mirror.security or (mirror_security if mirror.url else default_security)
    suite_urls = {foundation.release: archive, f"{foundation.release}-updates": archive, f"{foundation.release}-security": security}
    archive_keyring = str(Path(mirror.keyring or distribution.keyring).absolute())

    def suites_with(components: Sequence[str], layer: int) -> list[NamedRepository]:
        return [
            NamedRepository(
                name=f"{foundation.distribution} {suite} {' '.join(components)}",
                source=PackageRepository(url=url, suite=suite, components=tuple(components), keyring=archive_keyring),
                layer=layer,
            )
            for suite, url in suite_urls.items()
        ]

    enabled = list(distribution.components)
    repositories = suites_with(distribution.components, 0)
    for index, (folder, layer) in enumerate(layers):
        if added := [component for component in layer.components if component not in enabled]:
            enabled += added
            repositories += suites_with(added, index)
        for repo in layer.sources:
            keyring = (folder / repo.keyring).absolute()
            source = PackageRepository(url=repo.url, suite=repo.suite, components=repo.components, keyring=str(keyring))
            repositories += [NamedRepository(name=" ".join([layer.name, repo.suite, *repo.components]), source=source, layer=index)]
    return tuple(repositories)


def resolve(
    foundation: Foundation, repositories: Sequence[NamedRepository], wanted: Sequence[Sequence[str]], folder: Path, kept: KeptLock
) -> list[list[Package]]:
    """Return the packages that each layer adds, with the dependencies that layers below lack: the newest, or those of `kept`.

    `wanted` are package names by layer. `folder` is empty and may be removed afterwards. Raises BuildError, or FetchError if a
    mirror is away.
    """
    layers = [list(layer) for layer in kept.layers]
    root: apt_solver.AptRoot | None = None
    installer: PackageInstaller | None = None
    source_lines: tuple[str, ...] = ()
    keyring_files = keyring_paths((repository.source.keyring for repository in repositories), folder / "keys")
    for index, packages in list(enumerate(wanted))[len(layers) :]:
        lines = tuple(_source_line(repo.source, keyring_files[repo.source.keyring]) for repo in repositories if repo.layer <= index)
        if root is None or installer is None or lines != source_lines:
            lower_status = root.status if root else ""
            root, source_lines = apt_solver.AptRoot(folder / f"layer{index}", foundation.architecture, lines), lines
            root.update()
            installer = PackageInstaller(kept, root, [pkg for pkg in kept.packages if repositories[pkg.source].layer <= index])
            if index == len(kept.layers):
                root.installed([as_apt_package(package) for layer in kept.layers for package in layer])
            else:
                root.status = lower_status
        layers.append(_install_layer(root, installer, packages, repositories, kept, first=index == 0))
    return layers


def _install_layer(
    root: apt_solver.AptRoot,
    installer: PackageInstaller,
    wanted: Sequence[str],
    repositories: Sequence[NamedRepository],
    kept: KeptLock,
    *,
    first: bool,
) -> list[Package]:
    essential = installer.install([apt_solver.ESSENTIAL, *([_USR_IS_MERGED] if root.has(_USR_IS_MERGED) else [])]) if first else []
    requested = installer.install(wanted) if wanted else []
    locked = [_locked_package(package, repositories, wanted, kept, essential=True) for package in essential]
    locked += [_locked_package(package, repositories, wanted, kept, essential=False) for package in requested]
    versions = root.source_versions
    return sorted((replace(pkg, source_version=versions.get(pkg.sha256, "")) for pkg in locked), key=lambda pkg: pkg.name)


def _source_line(source: PackageRepository, key: str) -> str:
    return " ".join(["deb", f"[signed-by={key}]", source.url, source.suite, *source.components])


def _locked_package(
    package: AptPackage, repositories: Sequence[NamedRepository], wanted: Iterable[str], kept: KeptLock, *, essential: bool
) -> Package:
    if locked := kept.locked(package):  # a mirror may have it in another place by now, or no longer
        return replace(locked, asked=package.name in set(wanted), essential=essential)
    urls = [repository.source.url for repository in repositories]
    matches = [index for index, url in enumerate(urls) if package.url.startswith(f"{url}/")]
    if not matches:
        raise BuildError(f"{package.name} comes from {package.url}, which is below no source of the recipe")
    source = max(matches, key=lambda index: (len(urls[index]), -index))
    return Package(
        name=package.name,
        version=package.version,
        architecture=package.architecture,
        sha256=package.sha256,
        size=package.size,
        path=package.url.removeprefix(f"{urls[source]}/"),
        source=source,
        asked=package.name in set(wanted),
        essential=essential,
    )


def kernel(wanted: str, locked: Iterable[Package]) -> str:
    """Return the name of the kernel's package: `wanted`, or the versioned one in the lock. Raises BuildError unless that is one."""
    if KERNEL.match(wanted):
        return wanted
    kernels = sorted(package.name for package in locked if KERNEL.match(package.name))
    if len(kernels) != 1:
        listed = ", ".join(kernels) or "none"
        raise BuildError(f"the lock has {listed} as kernel of {wanted}", hint="ask for one kernel, and lock again")
    return kernels[0]


_UNQUOTED_PATH: Final = re.compile(r"/[\w/.+~@:=-]*")
"""Path that sources.list can hold; any other one must be copied, because a blank or a comma ends a path and cannot be quoted."""
_ARMOURED_SUFFIX: Final = ".asc"
"""File suffix by which alone apt recognises an armoured key."""


def keyring_paths(keyrings: Iterable[str], folder: Path) -> Mapping[str, str]:
    """Return what sources.list names for each keyring: its own path, or a copy in `folder` if the path needs quoting.

    Makes the folder. Raises BuildError for a key that cannot be read.
    """
    folder.mkdir(exist_ok=True)
    return {path: path if _UNQUOTED_PATH.fullmatch(path) else _copy_keyring(path, folder) for path in dict.fromkeys(keyrings)}


def _copy_keyring(keyring: str, folder: Path) -> str:
    copy = folder / f"{len(list(folder.iterdir()))}{_ARMOURED_SUFFIX if keyring.endswith(_ARMOURED_SUFFIX) else '.gpg'}"
    try:
        shutil.copyfile(keyring, copy)
    except OSError as error:
        raise BuildError(f"{keyring}, the key of a repository, cannot be read: {error.strerror}") from error
    return str(copy)
