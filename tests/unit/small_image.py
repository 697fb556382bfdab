"""A small image spec and its resolved recipe, as data: two layers, four packages, one test of each kind."""

import base64
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import yaml

from steps.nodeimage.contract import resolved_recipe as contract
from steps.nodeimage.contract.image_tests import ImageTest, Where
from workflows.nodeimage.image_spec import ImageSpec, load_image

TEXT = b"nodes of the lab\n"
SPEC: dict[str, Any] = {
    "apiVersion": "bringup/v1",
    "kind": "Image",
    "name": "lab-nodes",
    "owner": "hpc-software@example.org",
    "revision": "2026-11-21.1",
    "recipe": "base",
    "boot": {"firmware": ["bios", "uefi"], "nodes": 2, "timeout": "4m"},
    "publish": {
        "root": "/srv/images",
        "url": "http://boot.example.org/images",
        "groups": {"default": {}, "gpu": {"kernel_arguments": ["iommu=pt"], "nodes": {"52:54:00:12:34:56": "gpu001"}}},
    },
}


def spec(folder: Path, **more: Any) -> ImageSpec:
    """The spec as a file would be loaded; `more` replaces top-level keys."""
    path = folder / "image.yaml"
    path.write_text(yaml.safe_dump({**SPEC, **more}))
    return load_image(path)


def fleet(machines: int) -> dict[str, str]:
    """So many machines of a group: MAC address → host name."""
    numbers = (number.to_bytes(3).hex(":") for number in range(machines))
    return {f"52:54:00:{tail}": f"node{number:05}" for number, tail in enumerate(numbers)}


def package(name: str, **more: Any) -> contract.Package:
    """A locked package of that name."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    at = f"pool/main/{name[0]}/{name}/{name}_1.0_amd64.deb"
    return contract.Package(name=name, version="1.0", architecture="amd64", sha256=digest, size=1000, path=at, **more)


def recipe(**more: Any) -> contract.Recipe:
    """The resolved recipe; `more` replaces its fields."""
    base = contract.ResolvedLayer(
        name="base",
        packages=(package("dash", essential=True), package("linux-image", asked=True)),
        services=(contract.LayerService(unit="systemd-networkd.service"),),
    )
    placed = contract.PlacedFile(path="/etc/motd", sha256=hashlib.sha256(TEXT).hexdigest())
    hpc = contract.ResolvedLayer(
        name="hpc", packages=(package("gcc", asked=True), package("binutils")), files=(placed,), budget_mib=500
    )
    tests = (
        ImageTest(name="compiles", incident="gcc came without binutils", run="gcc --version"),
        ImageTest(name="clock", incident="nodes came up in 1970", run="date", where=Where.BOOT, seconds=5),
    )
    made = contract.Recipe(
        name="lab-nodes",
        distribution="debian",
        release="bookworm",
        architecture="amd64",
        epoch=1_700_000_000,
        sources=(contract.PackageRepository(url="https://mirror.example.org/debian", suite="bookworm"),),
        layers=(base, hpc),
        kernel="linux-image",
        kernel_arguments=("console=ttyS0",),
        tests=tests,
        budget_mib=300,
    )
    return msgspec.structs.replace(made, **more)


def files() -> dict[str, bytes]:
    """Return the files that the recipe places, by digest."""
    return {hashlib.sha256(TEXT).hexdigest(): TEXT}


def unpacked(data: bytes) -> dict[str, bytes]:
    """The files that travel with the tasks, by digest."""
    return {digest: base64.b64decode(text) for digest, text in msgspec.json.decode(data, type=dict[str, str]).items()}
