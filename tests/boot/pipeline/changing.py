"""Recipes of small layers on a base that is built already, changed in one thing at a time; which layers a build makes of them."""

import copy
import shutil
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from steps.nodeimage.contract import build_keys
from tests.boot.pipeline.site import BRINGUP, Site

ROOT: Final = Path(__file__).parents[3]

LAYERS: Final[list[dict[str, Any]]] = [
    {"name": "low", "files": [{"path": "/etc/low", "content": "low\n"}]},
    {"name": "high", "commands": [{"run": "cat /etc/low > /opt/high"}], "budget_mib": 5},
]
"""Of a recipe whose lowest layer is that of base."""
Change = Callable[[list[dict[str, Any]]], object]
CHANGES: Final[dict[str, tuple[Change, set[str]]]] = {
    "nothing": (lambda layers: None, set()),
    "a file": (lambda layers: layers[0]["files"][0].update(content="other\n"), {"low", "high"}),
    "the rights of a file": (lambda layers: layers[0]["files"][0].update(mode="0600"), {"low", "high"}),
    "a user": (lambda layers: layers[0].update(users=[{"name": "ada", "uid": 2001}]), {"low", "high"}),
    "a service": (lambda layers: layers[0].update(services={"masked": ["fstrim.timer"]}), {"low", "high"}),
    "a command": (lambda layers: layers[1]["commands"][0].update(run="cat /etc/low /etc/low > /opt/high"), {"high"}),
    "a command more": (lambda layers: layers[1]["commands"].append({"run": "true"}), {"high"}),
    "a kernel argument": (lambda layers: layers[1].update(kernel_arguments=["quiet"]), set()),
    "a budget": (lambda layers: layers[1].update(budget_mib=6), set()),
    "a layer between": (lambda layers: layers.insert(1, {"name": "between", "commands": [{"run": "true"}]}), {"between", "high"}),
}
"""Name of a change → the function that makes it, and the layers that are rebuilt: the changed one and all above it."""
FAT: Final = "yes | head -c 3M > /opt/fat"
HANGS: Final = "touch /opt/begun; sleep 1000"


def one(run: str, **more: Any) -> list[dict[str, Any]]:
    """A single layer, always of the same name, so that one lock is good for all."""
    return [{"name": "only", "commands": [{"run": run}], "budget_mib": 1, **more}]


def on_base(shared: Path, folder: Path, layers: list[dict[str, Any]], **more: Any) -> Site:
    """A site with a recipe of these layers on base, locked; packages and layers are those of a store that has base built."""
    site = Site(folder, shared / "archive", recipe="ours.yaml", **more)
    (site.images / "layers").symlink_to(shared / "layers")
    write(site, layers)
    site.lock()
    return site


def write(site: Site, layers: list[dict[str, Any]]) -> None:
    """The recipe."""
    told = {"apiVersion": "bringup/v1", "kind": "ImageRecipe", "name": "ours", "description": "base with more.", "extends": "base"}
    (site.folder / "ours.yaml").write_text(yaml.safe_dump({**told, "layers": layers}))


def changed(change: Change) -> list[dict[str, Any]]:
    """The layers with one change."""
    layers = copy.deepcopy(LAYERS)
    change(layers)
    return layers


def built(site: Site) -> set[str]:
    """Return the layers that the newest run built, without those that it found in the cache."""
    folder = site.home / "store/runs" / site.runs[-1] / "evidence/image_layers"
    names = [path.name for path in folder.glob("layer_*")]
    made = [name for name in names if not site.records("image_layers", name)[-1]["observation"].get("cached")]
    return {name.removeprefix("layer_") for name in made}


def with_another_builder(folder: Path) -> Path:
    """The program of what this checkout would be after its builder's version is raised, installed in an environment of its own."""
    for room in ("steps", "workflows", "images", "playbooks"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / Path(build_keys.__file__).relative_to(ROOT)
    before, after = (f"BUILDER: Final = {version}\n" for version in (build_keys.BUILDER, build_keys.BUILDER + 1))
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    venv.create(folder / "venv", symlinks=True)
    (installed,) = (folder / "venv/lib").glob("python*/site-packages")
    (installed / "release.pth").write_text(f"{folder}\n{sysconfig.get_path('purelib')}\n")
    program = folder / "venv/bin/bringup"
    program.write_text(BRINGUP.read_text().replace(sys.executable, str(folder / "venv/bin/python")))
    program.chmod(0o755)
    return program
