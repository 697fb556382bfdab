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
from workflows.nodeimage.lock_update import Keeping, KeptPackages, as_found
from workflows.nodeimage.recipe_spec import Foundation, RecipeLayer
from workflows.podimage import apt_solver
from workflows.podimage.apt_solver import AptPackage
from workflows.podimage.errors import BuildError

KERNEL: Final = re.compile(r"linux-image-(unsigned-)?\d(?!.*-dbg(sym)?$)")
"""Name of a package with a kernel of one version: neither a metapackage nor debug symbols (`-dbg` in Debian, `-dbgsym` in Ubuntu).
"""
_MERGED: Final = "usr-is-merged"
"""Package chosen over `usrmerge`, which would bring Perl into every image: roots have merged /usr from the start."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A distribution's mirrors, components and keyring.

    `ports` is the mirror of architectures other than amd64, `security` that of security updates. With `beside`, mirrors have
    security updates in a folder beside the archive, else in the archive itself, as `ports` has. `components` are always used,
    `further` ones only if a layer asks for them. `signer` is the package that brings the keyring.
    """

    mirror: str
    ports: str
    security: str
    components: tuple[str, ...]
    further: tuple[str, ...]
    keyring: str
    signer: str
    beside: bool


DISTRIBUTIONS: Final = {
    "debian": Distribution(
        mirror="http://deb.debian.org/debian",
        ports="http://deb.debian.org/debian",
        security="http://deb.debian.org/debian-security",
        components=("main",),
        further=("contrib", "non-free", "non-free-firmware"),
        keyring="/usr/share/keyrings/debian-archive-keyring.gpg",
        signer="debian-archive-keyring",
        beside=True,
    ),
    "ubuntu": Distribution(
        mirror="http://archive.ubuntu.com/ubuntu",
        ports="http://ports.ubuntu.com/ubuntu-ports",
        security="http://security.ubuntu.com/ubuntu",
        components=("main", "universe"),
        further=("restricted", "multiverse"),
        keyring="/usr/share/keyrings/ubuntu-archive-keyring.gpg",
        signer="ubuntu-keyring",
        beside=False,
    ),
}


def brought_by(keyring: str) -> str:
    """Return the command or the advice that installs a keyring on this machine, for hints."""
    known = {one.keyring: f"apt-get install {one.signer}" for one in DISTRIBUTIONS.values()}
    return known.get(keyring, "install the package that brings it")


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


def sources(foundation: Foundation, layers: Sequence[tuple[Path, RecipeLayer]], own: Mirror) -> tuple[NamedRepository, ...]:
    """Return a recipe's repositories: the distribution's own, then further components and repositories that its layers add.

    Each layer comes with its recipe's folder. Paths of keys are absolute, because apt takes any other text for a fingerprint.
    """
    known = DISTRIBUTIONS[foundation.distribution]
    is_port = foundation.architecture != "amd64"
    usual = own.url or (known.ports if is_port else known.mirror)
    updates = known.ports if is_port and not known.beside else known.security
    own_security = f"{own.url}-security" if known.beside else own.url
    security = own.security or (own_security if own.url else updates)
    places = {foundation.release: usual, f"{foundation.release}-updates": usual, f"{foundation.release}-security": security}
    signed = str(Path(own.keyring or known.keyring).absolute())

    def of_it(components: Sequence[str], layer: int) -> list[NamedRepository]:
        return [
            NamedRepository(
                name=f"{foundation.distribution} {suite} {' '.join(components)}",
                source=PackageRepository(url=url, suite=suite, components=tuple(components), keyring=signed),
                layer=layer,
            )
            for suite, url in places.items()
        ]

    taken = list(known.components)
    found = of_it(known.components, 0)
    for index, (folder, layer) in enumerate(layers):
        if more := [one for one in layer.components if one not in taken]:
            taken += more
            found += of_it(more, index)
        for one in layer.sources:
            keyring = (folder / one.keyring).absolute()
            source = PackageRepository(url=one.url, suite=one.suite, components=one.components, keyring=str(keyring))
            found.append(NamedRepository(name=" ".join([layer.name, one.suite, *one.components]), source=source, layer=index))
    return tuple(found)


def resolve(
    foundation: Foundation, named: Sequence[NamedRepository], wanted: Sequence[Sequence[str]], folder: Path, keeping: Keeping
) -> list[list[Package]]:
    """Return the packages that each layer adds, with the dependencies that layers below lack: the newest, or those of `keeping`.

    `wanted` are package names by layer. `folder` is empty and may be removed afterwards. Raises BuildError, or FetchError if a
    mirror is away.
    """
    layers = [list(one) for one in keeping.layers]
    root: apt_solver.AptRoot | None = None
    held: KeptPackages | None = None
    repositories: tuple[str, ...] = ()
    keys = keyring_paths((one.source.keyring for one in named), folder / "keys")
    for index, packages in list(enumerate(wanted))[len(layers) :]:
        lines = tuple(_line(one.source, keys[one.source.keyring]) for one in named if one.layer <= index)
        if root is None or held is None or lines != repositories:
            below = root.status if root else ""
            root, repositories = apt_solver.AptRoot(folder / f"layer{index}", foundation.architecture, lines), lines
            root.update()
            held = KeptPackages(keeping, root, [one for one in keeping.packages if named[one.source].layer <= index])
            if index == len(keeping.layers):
                root.installed([as_found(one) for layer in keeping.layers for one in layer])
            else:
                root.status = below
        layers.append(_layer(root, held, packages, named, keeping, first=index == 0))
    return layers


def _layer(
    root: apt_solver.AptRoot,
    held: KeptPackages,
    packages: Sequence[str],
    named: Sequence[NamedRepository],
    keeping: Keeping,
    *,
    first: bool,
) -> list[Package]:
    essential = held.install([apt_solver.ESSENTIAL, *([_MERGED] if root.has(_MERGED) else [])]) if first else []
    brought = held.install(packages) if packages else []
    found = [_package(one, named, packages, keeping, essential=True) for one in essential]
    found += [_package(one, named, packages, keeping, essential=False) for one in brought]
    versions = root.source_versions
    return sorted((replace(one, source_version=versions.get(one.sha256, "")) for one in found), key=lambda one: one.name)


def _line(source: PackageRepository, key: str) -> str:
    return " ".join(["deb", f"[signed-by={key}]", source.url, source.suite, *source.components])


def _package(
    found: AptPackage, named: Sequence[NamedRepository], asked: Iterable[str], keeping: Keeping, *, essential: bool
) -> Package:
    if locked := keeping.locked(found):  # a mirror may have it in another place by now, or no longer
        return replace(locked, asked=found.name in set(asked), essential=essential)
    urls = [one.source.url for one in named]
    fits = [index for index, url in enumerate(urls) if found.url.startswith(f"{url}/")]
    if not fits:
        raise BuildError(f"{found.name} comes from {found.url}, which is below no source of the recipe")
    source = max(fits, key=lambda index: (len(urls[index]), -index))
    return Package(
        name=found.name,
        version=found.version,
        architecture=found.architecture,
        sha256=found.sha256,
        size=found.size,
        path=found.url.removeprefix(f"{urls[source]}/"),
        source=source,
        asked=found.name in set(asked),
        essential=essential,
    )


def kernel(asked: str, locked: Iterable[Package]) -> str:
    """Return the name of the kernel's package: `asked`, or the versioned one in the lock. Raises BuildError unless that is one."""
    if KERNEL.match(asked):
        return asked
    found = sorted(one.name for one in locked if KERNEL.match(one.name))
    if len(found) != 1:
        many = ", ".join(found) or "none"
        raise BuildError(f"the lock has {many} as kernel of {asked}", hint="ask for one kernel, and lock again")
    return found[0]


_PLAIN: Final = re.compile(r"/[\w/.+~@:=-]*")
"""Path that sources.list can hold; any other one must be copied, because a blank or a comma ends a path and cannot be quoted."""
_ARMOURED: Final = ".asc"
"""File suffix by which alone apt recognises an armoured key."""


def keyring_paths(keyrings: Iterable[str], folder: Path) -> Mapping[str, str]:
    """Return what sources.list names for each keyring: its own path, or a copy in `folder` if the path needs quoting.

    Makes the folder. Raises BuildError for a key that cannot be read.
    """
    folder.mkdir(exist_ok=True)
    return {one: one if _PLAIN.fullmatch(one) else _copied(one, folder) for one in dict.fromkeys(keyrings)}


def _copied(keyring: str, folder: Path) -> str:
    copy = folder / f"{len(list(folder.iterdir()))}{_ARMOURED if keyring.endswith(_ARMOURED) else '.gpg'}"
    try:
        shutil.copyfile(keyring, copy)
    except OSError as error:
        raise BuildError(f"{keyring}, the key of a repository, cannot be read: {error.strerror}") from error
    return str(copy)
