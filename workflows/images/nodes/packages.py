"""Asks a distribution's package manager where packages come from, and what a list of them brings along.

Debian and Ubuntu by apt. What it leaves in a root is said by `contract/image/debian`, how it installs by `clients/image/layer/apt`;
nothing else knows it. Another family is told apart by `Foundation.distribution` here.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from steps.contract.image.recipe import Package, Source
from workflows.images import apt
from workflows.images.apt import Found
from workflows.images.errors import BuildError
from workflows.images.nodes import keyrings
from workflows.images.nodes.keeping import Held, Keeping, as_found
from workflows.spec.recipe import Foundation
from workflows.spec.recipe_layers import RecipeLayer

KERNEL: Final = re.compile(r"linux-image-(unsigned-)?\d(?!.*-dbg(sym)?$)")
"""A package with a kernel of one version: not one that depends on the newest, nor the debug symbols of one (`-dbg` in Debian,
`-dbgsym` in Ubuntu)."""
_MERGED: Final = "usr-is-merged"
"""Chosen over `usrmerge`, which would bring Perl into every image: roots are made with merged /usr from the start."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """What apt is told of a distribution: the public mirror, that of other architectures than amd64 (`ports`), that of security
    updates. `beside`: mirrors have those in a folder beside the archive, else in the archive itself, as `ports` has. `components`
    are taken always, `further` ones where a layer asks for them. `signer` is the package, of Debian and of Ubuntu, that brings the
    keyring."""

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
    """How a key comes onto this machine."""
    known = {one.keyring: f"apt-get install {one.signer}" for one in DISTRIBUTIONS.values()}
    return known.get(keyring, "install the package that brings it")


@dataclass(frozen=True, kw_only=True)
class Named:
    """A source with the name that locks know it by: no mirror's host stands in a lock. `layer` is the lowest that may use it."""

    name: str
    source: Source
    layer: int = 0


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A mirror of the distribution instead of its public one; what is empty is as usual."""

    url: str = ""
    security: str = ""
    keyring: str = ""


def sources(foundation: Foundation, layers: Sequence[tuple[Path, RecipeLayer]], own: Mirror) -> tuple[Named, ...]:
    """The distribution's repositories at its public mirrors or those given, then what each layer takes of them beside, and the
    recipe's own; each layer with its folder. Keys have absolute paths: apt takes any other for a fingerprint."""
    known = DISTRIBUTIONS[foundation.distribution]
    is_port = foundation.architecture != "amd64"
    usual = own.url or (known.ports if is_port else known.mirror)
    updates = known.ports if is_port and not known.beside else known.security
    security = own.security or (_beside(known, own.url) if own.url else updates)
    places = {"": usual, "-updates": usual, "-security": security}
    signed = str(Path(own.keyring or known.keyring).absolute())

    def of_it(components: Sequence[str], layer: int) -> list[Named]:
        return [
            Named(
                name=f"{foundation.distribution} {foundation.release}{suffix} {' '.join(components)}",
                source=Source(url=url, suite=f"{foundation.release}{suffix}", components=tuple(components), keyring=signed),
                layer=layer,
            )
            for suffix, url in places.items()
        ]

    taken = list(known.components)
    found = of_it(known.components, 0)
    for index, (folder, layer) in enumerate(layers):
        if more := [one for one in layer.components if one not in taken]:
            taken += more
            found += of_it(more, index)
        for one in layer.sources:
            keyring = (folder / one.keyring).absolute()
            source = Source(url=one.url, suite=one.suite, components=one.components, keyring=str(keyring))
            found.append(Named(name=" ".join([layer.name, one.suite, *one.components]), source=source, layer=index))
    return tuple(found)


def _beside(known: Distribution, mirror: str) -> str:
    """Where a mirror keeps security updates: Debian's beside the archive, Ubuntu's in it."""
    return f"{mirror}-security" if known.beside else mirror


def resolve(
    foundation: Foundation, named: Sequence[Named], wanted: Sequence[Sequence[str]], folder: Path, keeping: Keeping
) -> list[list[Package]]:
    """What each layer's packages bring along on top of the layers below it, from the newest that the sources have, but for what is
    kept.

    `folder` is empty and may be thrown away afterwards. Raises BuildError, or FetchError where a mirror is away.
    """
    layers = [list(one) for one in keeping.layers]
    root: apt.Root | None = None
    held: Held | None = None
    repositories: tuple[str, ...] = ()
    keys = keyrings.named((one.source.keyring for one in named), folder / "keys")
    for index, packages in list(enumerate(wanted))[len(layers) :]:
        lines = tuple(_line(one.source, keys[one.source.keyring]) for one in named if one.layer <= index)
        if root is None or held is None or lines != repositories:
            below = root.status if root else ""
            root, repositories = apt.Root(folder / f"layer{index}", foundation.architecture, lines), lines
            root.update()
            held = Held(keeping, root, [one for one in keeping.packages if named[one.source].layer <= index])
            if index == len(keeping.layers):
                root.installed([as_found(one) for layer in keeping.layers for one in layer])
            else:
                root.status = below
        layers.append(_layer(root, held, packages, named, keeping, first=index == 0))
    return layers


def _layer(
    root: apt.Root, held: Held, packages: Sequence[str], named: Sequence[Named], keeping: Keeping, *, first: bool
) -> list[Package]:
    essential = held.install([apt.ESSENTIAL, *([_MERGED] if root.has(_MERGED) else [])]) if first else []
    brought = held.install(packages) if packages else []
    found = [_package(one, named, packages, keeping, essential=True) for one in essential]
    found += [_package(one, named, packages, keeping, essential=False) for one in brought]
    versions = root.source_versions
    return sorted((replace(one, source_version=versions.get(one.sha256, "")) for one in found), key=lambda one: one.name)


def _line(source: Source, key: str) -> str:
    return " ".join(["deb", f"[signed-by={key}]", source.url, source.suite, *source.components])


def _package(found: Found, named: Sequence[Named], asked: Iterable[str], keeping: Keeping, *, essential: bool) -> Package:
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
    """The package with the kernel: the one asked for, or that of one version which it depends on. Raises BuildError."""
    if KERNEL.match(asked):
        return asked
    found = sorted(one.name for one in locked if KERNEL.match(one.name))
    if len(found) != 1:
        many = ", ".join(found) or "none"
        raise BuildError(f"the lock has {many} as kernel of {asked}", hint="ask for one kernel, and lock again")
    return found[0]
