"""Makes locks: what the newest packages of a recipe's repositories bring along, layer by layer."""

import tempfile
from pathlib import Path

from workflows.images.errors import BuildError
from workflows.images.nodes import lockfile, packages
from workflows.images.nodes.lockfile import Lock, LockedLayer
from workflows.images.nodes.resolve import Asked, wanted


def newest(asked: Asked) -> Lock:
    """The lock that the repositories give now. Raises SpecErrors, BuildError, FetchError."""
    found = asked.chain()
    named = asked.sources(found)
    for one in named:
        if not Path(one.source.keyring).is_file():
            raise BuildError(
                f"{one.source.keyring}, the key of {one.source.url}, is not on this machine",
                hint=f"{packages.brought_by(one.source.keyring)}, or put it beside the recipe and name it there",
            )
    asks = [wanted(layer, found) for _, layer in found.layers]
    with tempfile.TemporaryDirectory(prefix="bringup-apt-") as folder:
        brought = packages.resolve(found.foundation, named, asks, Path(folder))
    layers = zip((layer for _, layer in found.layers), brought, strict=True)
    return Lock(
        recipe=found.top.spec.name,
        distribution=found.foundation.distribution,
        release=found.foundation.release,
        architecture=found.foundation.architecture,
        sources=tuple(one.name for one in named),
        layers=tuple(LockedLayer(name=layer.name, packages=tuple(brought)) for layer, brought in layers),
    )


def write(lock: Lock, path: Path) -> bool:
    """Write a lock, at once or not at all; whether it is another than before."""
    new = lockfile.text(lock)
    if path.exists() and path.read_text() == new:
        return False
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_text(new)
    unfinished.replace(path)
    return True
