"""A tiny recipe of two layers, locked from the machine's own package sources: the essential packages, and one small one on top.

It is locked anew in each test run, so that no test depends on a version that the mirror has dropped.
"""

import functools
import hashlib
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from steps.nodeimage.contract.resolved_recipe import LayerCommand, LayerUser, Package, PlacedFile, Recipe, ResolvedLayer
from steps.nodeimage.layer import layer_cache, package_archive
from steps.stages.image_layers.contract import Built
from workflows.nodeimage import package_resolution
from workflows.nodeimage.lock_update import KeptLock
from workflows.nodeimage.package_resolution import Mirror
from workflows.nodeimage.recipe_spec import Foundation

EPOCH = 1_700_000_000
SMALL = "tree"
"""A package of 0.1 MB without dependencies that the essential ones do not have."""
NOTE = b"a file of the recipe\n"
NOTE_DIGEST = hashlib.sha256(NOTE).hexdigest()
DRIVER = [sys.executable, "-m", "tests.boot.builder.driver"]


def files() -> dict[str, bytes]:
    """The recipe's own files."""
    return {NOTE_DIGEST: NOTE}


@functools.cache
def recipe() -> Recipe:
    """The recipe, with the newest packages that the machine's sources have."""
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    foundation = Foundation(distribution="debian", release=release, epoch=EPOCH, kernel="linux-image-cloud-amd64")
    named = package_resolution.sources(foundation, [], _mirror(release))
    with tempfile.TemporaryDirectory() as folder:
        ground, top = package_resolution.resolve(foundation, named, [(), (SMALL,)], Path(folder), KeptLock())
    return Recipe(
        name="tiny",
        distribution="debian",
        release=release,
        architecture="amd64",
        epoch=EPOCH,
        sources=tuple(one.source for one in named),
        layers=(_ground(tuple(ground)), ResolvedLayer(name="top", packages=tuple(top))),
        kernel="linux-image-cloud-amd64",
    )


def _ground(brought: tuple[Package, ...]) -> ResolvedLayer:
    return ResolvedLayer(
        name="ground",
        packages=brought,
        users=(LayerUser(name="alice", uid=2001, gid=2001, groups=("adm",), keys=("ssh-ed25519 AAAA alice",)),),
        files=(
            PlacedFile(path="/etc/bringup/note", sha256=NOTE_DIGEST, mode=0o640, gid=4),
            PlacedFile(path="/etc/bringup/link", link="note"),
            PlacedFile(path="/var/lib/bringup", mode=0o750, uid=2001, gid=2001),
        ),
        commands=(LayerCommand(run="date > /var/log/made; mkdir -p /srv/data; echo built > /srv/data/note; rm /etc/issue.net"),),
    )


def _mirror(release: str) -> Mirror:
    """The mirrors that the machine itself uses for its release."""
    form = "$(REPO_URI)|$(CODENAME)"
    told = subprocess.run(
        ["apt-get", "indextargets", "--format", form, "Identifier: Packages", "Origin: Debian"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = {name: url.rstrip("/") for url, _, name in (line.partition("|") for line in told.splitlines())}
    return Mirror(url=found.get(release, ""), security=found.get(f"{release}-security", ""))


def with_layer(layer: ResolvedLayer) -> Recipe:
    """The recipe with another layer on the ground."""
    return msgspec.structs.replace(recipe(), layers=(recipe().layers[0], layer))


def filled(images: Path) -> Path:
    """A store with the recipe's packages, and nothing built."""
    images.mkdir(parents=True, exist_ok=True)
    found = package_archive.fill(images, recipe(), lambda line: None)
    assert not found.missing, found.problems
    return images


def build(images: Path, wanted: Recipe, layer: str, secrets: Path = Path("/nonexistent")) -> Built:
    """A layer, built in this process."""
    return layer_cache.build(images, wanted, files(), layer, secrets, lambda line: None)
