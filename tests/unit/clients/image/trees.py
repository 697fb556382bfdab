"""Small trees as layers have them."""

import os
import stat
from pathlib import Path

import msgspec

from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.layer import layer_cache, layer_content
from steps.nodeimage.layer.layer_build import LIST, TREE


def write(path: Path, text: str = "", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def whiteout(path: Path) -> None:
    """Hide what lies below, as overlayfs writes it down."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR, 0)


def small(tree: Path) -> Path:
    """A layer with one entry of each kind."""
    tree.mkdir(parents=True)
    tree.chmod(0o755)
    write(tree / "etc/motd", "hello\n")
    write(tree / "usr/bin/run", "#!/bin/sh\n", 0o755)
    os.link(tree / "usr/bin/run", tree / "usr/bin/walk")
    (tree / "usr/bin/link").symlink_to("run")
    whiteout(tree / "etc/gone")
    (tree / "opt").mkdir()
    os.setxattr(tree / "opt", layer_content.OPAQUE, b"y")
    for folder, folders, _ in os.walk(tree):
        for name in folders:
            Path(folder, name).chmod(0o755)
    return tree


def opaque(path: Path) -> bool:
    return layer_content.attributes(path).get(layer_content.OPAQUE) == b"y"


def store(images: Path, recipe: Recipe, tools: dict[str, str] | None = None) -> Path:
    """A cache with the layers of a recipe, built by those versions of tools."""
    for name, key in build_keys.layers(recipe).items():
        folder = layer_cache.shelf(images) / key
        small(folder / TREE)
        found = layer_content.read(folder / TREE, folder / LIST)
        told = layer_cache.LayerEntry(key=key, name=name, content=found, seconds=1.0, installed=(), user=0, tools=tools or {})
        (folder / layer_cache.ENTRY).write_bytes(msgspec.json.encode(told))
    return images
