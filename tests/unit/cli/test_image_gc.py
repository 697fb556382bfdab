"""`bringup image gc`: what recipes, published trees, runs and pins reach stays; what goes is told, with its size."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.contract import paths
from steps.nodeimage.contract import build_keys, image_manifest, resolved_recipe
from steps.nodeimage.contract.image_manifest import LayerOf, Manifest
from workflows import examples
from workflows.nodeimage import recipe_resolution
from workflows.render.building import CAPABILITIES
from workflows.render.steps import Settings

GONE, KEPT = "a" * 64, "b" * 64
OLD = time.time() - 30 * 86_400


@pytest.fixture
def images(machine: Any) -> Path:
    """A store with two layers that nobody used for a month."""
    images: Path = machine.home / "store/images"
    for key in (GONE, KEPT):
        tree = images / "layers" / key / "tree"
        tree.mkdir(parents=True)
        (tree / "file").write_text("x" * (3 << 20))
        (tree.parent / "entry.json").write_text("{}")
    for path in images.rglob("*"):
        os.utime(path, (OLD, OLD))
    return images


def layers(images: Path) -> set[str]:
    return {path.name for path in (images / "layers").iterdir() if path.is_dir()}


def made_of(key: str) -> Manifest:
    """An image with one layer."""
    return Manifest(
        name="compute",
        key="c" * 64,
        recipe="sha256:x",
        distribution="debian",
        release="bookworm",
        architecture="amd64",
        epoch=1,
        kernel="6.1",
        kernel_arguments=(),
        parts=(),
        layers=(LayerOf(name="base", key=key, digest="sha256:x", size=1, files=1),),
        packages=(),
    )


def test_says_what_would_go_and_removes_nothing(machine: Any, images: Path) -> None:
    done = machine.call("image", "gc", "--dry-run", "--pin", KEPT)
    assert done.code == 0, done.text
    assert "1 thing of 3.0 MiB would go, 1 kept" in done.out
    assert GONE[:24] in done.out
    assert layers(images) == {GONE, KEPT}


def test_removes_what_nothing_reaches(machine: Any, images: Path) -> None:
    found = json.loads(machine.call("image", "gc", "--pin", KEPT, "-o", "json").out)
    assert [(one["kind"], one["name"]) for one in found["removed"]] == [("layers", GONE)]
    assert found["removed"][0]["bytes"] >= 3 << 20
    assert layers(images) == {KEPT}
    assert "0 things of 0.0 MiB removed, 1 kept" in machine.call("image", "gc", "--pin", KEPT).out


def test_keeps_layers_of_shipped_recipes(machine: Any, images: Path) -> None:
    key = build_keys.layers(recipe_resolution.resolve(recipe_resolution.recipe_request("base", Path())).recipe)["base"]
    (images / "layers" / KEPT).rename(images / "layers" / key)
    assert machine.call("image", "gc").code == 0
    assert layers(images) == {key}


@pytest.fixture
def package(images: Path) -> Path:
    """A package of a site's own recipe, fetched a month ago."""
    path = images / "archive/aa" / f"{GONE}.deb"
    path.parent.mkdir(parents=True)
    path.write_text("x")
    os.utime(path, (OLD, OLD))
    return path


@pytest.mark.parametrize("arguments", [(), ("base",)], ids=["no-recipe", "recipe"])
def test_packages_stay_and_that_is_said(machine: Any, package: Path, arguments: tuple[str, ...]) -> None:
    done = machine.call("image", "gc", "--days", "0", *arguments)
    assert done.code == 0, done.text
    assert package.exists()
    assert [line for line in done.out.splitlines() if line.startswith("packages stay; --packages ")]


def test_packages_go_where_asked_with_what_stays(machine: Any, package: Path) -> None:
    refused = machine.call("image", "gc", "--packages")
    assert refused.code == 64
    assert "--packages goes with every RECIPE or SPEC whose packages stay" in refused.text
    assert package.exists()
    assert machine.call("image", "gc", "--packages", "base", "--pin", GONE).code == 0
    assert package.exists()
    done = machine.call("image", "gc", "--packages", "base")
    assert "packages stay" not in done.out
    assert not package.exists()


@pytest.mark.parametrize("below", ["", "/compute"])
def test_keeps_what_is_published(machine: Any, images: Path, below: str) -> None:
    version = machine.folder / "tree/compute/versions/0001-aaaaaaaaaaaa"
    version.mkdir(parents=True)
    (version / image_manifest.MANIFEST).write_bytes(image_manifest.encode(made_of(KEPT)))
    assert machine.call("image", "gc", "--published", machine.folder / f"tree{below}").code == 0
    assert layers(images) == {KEPT}


def test_a_spec_names_the_tree_that_it_publishes_to(machine: Any, images: Path) -> None:
    told = {
        "apiVersion": "bringup/v1",
        "kind": "Image",
        "name": "compute",
        "owner": "hpc@example.org",
        "revision": "1",
        "recipe": "base",
        "publish": {"root": str(machine.folder / "tree"), "url": "http://boot", "groups": {"default": {}}},
    }
    (machine.folder / "image.yaml").write_text(json.dumps(told))
    version = machine.folder / "tree/compute/versions/0001-aaaaaaaaaaaa"
    version.mkdir(parents=True)
    done = machine.call("image", "gc", "--published", "image.yaml")
    assert (done.code, "manifest.json is missing, or cannot be read" in done.err) == (64, True), done.text
    assert layers(images) == {GONE, KEPT}
    (version / image_manifest.MANIFEST).write_bytes(image_manifest.encode(made_of(KEPT)))
    assert machine.call("image", "gc", "--published", "image.yaml").code == 0
    assert layers(images) == {KEPT}


@pytest.fixture
def own(machine: Any, images: Path) -> str:
    """Key of a layer that image.yaml of the folder has and no shipped recipe: its store has it beside the two."""
    told = {"apiVersion": "bringup/v1", "kind": "Image", "name": "ours", "owner": "hpc", "revision": "1", "recipe": "ours.yaml"}
    publish = {"root": str(machine.folder / "tree"), "url": "http://boot", "groups": {"default": {}}}
    (machine.folder / "image.yaml").write_text(json.dumps({**told, "lock": "ours.lock.json", "publish": publish}))
    shipped = recipe_resolution.recipe_request("base", Path())
    text = shipped.chain().top.path.read_text().replace("name: base\n", "name: ours\n", 1).replace("|\n          node\n", "ours\n")
    (machine.folder / "ours.yaml").write_text(text)
    lock = json.loads(shipped.lock_path(shipped.chain()).read_text())
    (machine.folder / "ours.lock.json").write_text(json.dumps({**lock, "recipe": "ours"}))
    (key,) = build_keys.layers(
        recipe_resolution.resolve(recipe_resolution.recipe_request("ours.yaml", machine.folder)).recipe
    ).values()
    tree = images / "layers" / key / "tree"
    tree.mkdir(parents=True)
    (tree.parent / "entry.json").write_text("{}")
    for path in (tree, tree.parent / "entry.json", tree.parent):
        os.utime(path, (OLD, OLD))
    return key


def test_keeps_the_spec_of_the_folder_and_what_it_has_published(machine: Any, images: Path, own: str) -> None:
    (machine.folder / "tree").mkdir()
    done = machine.call("image", "gc", "--pin", KEPT)
    assert done.code == 0, done.text
    assert layers(images) == {own, KEPT}
    last = done.out.splitlines()[-1]
    assert last == "kept for image.yaml, which lies here: what it is made of; name a RECIPE or SPEC to keep that alone"
    version = machine.folder / "tree/ours/versions/0001-aaaaaaaaaaaa"
    version.mkdir(parents=True)
    (version / image_manifest.MANIFEST).write_bytes(image_manifest.encode(made_of(KEPT)))
    done = machine.call("image", "gc")
    assert "what it is made of and the 1 version that it has published;" in done.out.splitlines()[-1]
    assert layers(images) == {own, KEPT}
    assert machine.call("image", "gc", "base").code == 0
    assert layers(images) == set(), "what is named stays, and that alone"


def test_a_spec_of_the_folder_without_its_lock_keeps_what_it_has_published_and_that_is_said(
    machine: Any, images: Path, own: str
) -> None:
    (machine.folder / "ours.lock.json").unlink()
    absent = machine.call("image", "gc")
    assert (absent.code, "there is no such folder that can be entered" in absent.err) == (64, True), absent.text
    assert "bringup image gc RECIPE (not image.yaml, which has no lock), which asks no tree" in absent.err
    (machine.folder / "tree").mkdir()
    done = machine.call("image", "gc", "--dry-run", "--pin", KEPT)
    assert done.code == 0, done.text
    lacks = "its lock ours.lock.json is not there, so it is made of nothing yet; name a RECIPE or SPEC to keep that alone"
    assert done.out.splitlines()[-1] == f"kept for image.yaml, which lies here: nothing, as {lacks}"
    version = machine.folder / "tree/ours/versions/0001-aaaaaaaaaaaa"
    version.mkdir(parents=True)
    (version / image_manifest.MANIFEST).write_bytes(image_manifest.encode(made_of(KEPT)))
    done = machine.call("image", "gc")
    assert done.code == 0, done.text
    said = f"kept for image.yaml, which lies here: the 1 version that it has published, as {lacks}"
    assert (done.out.splitlines()[-1], layers(images)) == (said, {KEPT})


@pytest.mark.parametrize("lock", ["damaged", "elsewhere"])
def test_removes_nothing_where_the_lock_of_the_folders_spec_cannot_be_read(machine: Any, images: Path, own: str, lock: str) -> None:
    (machine.folder / "tree").mkdir()
    (machine.folder / "ours.lock.json").unlink()
    if lock == "damaged":
        (machine.folder / "ours.lock.json").write_text("{")
    else:
        (machine.folder / "ours.lock.json").symlink_to("disk/that/is/not/mounted.json")
    done = machine.call("image", "gc")
    assert (done.code, "make it: bringup image lock image.yaml" in done.err) == (64, True), done.text
    assert layers(images) == {own, GONE, KEPT}


def test_removes_nothing_where_the_published_tree_cannot_be_asked(machine: Any, images: Path, own: str) -> None:
    absent = machine.call("image", "gc")
    assert (absent.code, "there is no such folder that can be entered" in absent.err) == (64, True), "a disk that is not mounted"
    spec = json.loads((machine.folder / "image.yaml").read_text())
    spec["publish"]["ssh"] = {"host": "boot.example.org", "user": "images", "key": {"file": "./none"}, "known_hosts": "./none"}
    (machine.folder / "image.yaml").write_text(json.dumps(spec))
    done = machine.call("image", "gc")
    assert (done.code, "image.yaml lies here, and where it publishes to cannot be asked" in done.err) == (64, True), done.text
    assert layers(images) == {own, GONE, KEPT}
    assert machine.call("image", "gc", "image.yaml").code == 0
    assert layers(images) == {own}


def test_removes_nothing_where_a_tree_tells_less_than_it_should(machine: Any, images: Path) -> None:
    version = machine.folder / "tree/compute/versions/0001-aaaaaaaaaaaa"
    version.mkdir(parents=True)
    done = machine.call("image", "gc", "--published", machine.folder / "tree")
    assert done.code != 0
    assert "manifest.json: is missing" in done.err
    assert "nothing was removed" in done.err
    done = machine.call("image", "gc", "--published", machine.folder / "tree/compute/versions")
    assert done.code == 64
    assert "it holds no version of an image; name the folder that nodes boot from" in done.err
    assert layers(images) == {GONE, KEPT}


def test_keeps_what_a_run_of_late_is_made_of(machine: Any, images: Path) -> None:
    one = recipe_resolution.resolve(recipe_resolution.recipe_request("base", Path())).recipe
    changed = resolved_recipe.decode(
        resolved_recipe.encode(one).replace(b'"name":"base","packages"', b'"name":"ours","packages"', 1)
    )
    key = next(iter(build_keys.layers(changed).values()))
    (images / "layers" / KEPT).rename(images / "layers" / key)
    (machine.home / "engine/run-1").mkdir(parents=True)
    tasks = machine.home / "inputs/run-1/tasks"
    tasks.mkdir(parents=True)
    (tasks / resolved_recipe.FILE).write_bytes(resolved_recipe.encode(changed))
    assert machine.call("image", "gc").code == 0
    assert layers(images) == {key}


def test_removes_nothing_where_something_that_stays_cannot_be_read(machine: Any, images: Path) -> None:
    version = machine.folder / "tree/compute/versions/0001-aaaaaaaaaaaa"
    version.mkdir(parents=True)
    (version / image_manifest.MANIFEST).write_text("{")
    done = machine.call("image", "gc", "--published", machine.folder / "tree")
    assert done.code != 0
    assert "nothing was removed" in done.err
    assert machine.call("image", "gc", "no-such-recipe").code != 0
    assert machine.call("image", "gc", "--published", machine.folder / "none").code != 0
    assert layers(images) == {GONE, KEPT}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give its rights away, and owns what builds of pods leave")
def test_the_pod_for_a_home_cluster_does_it_with_the_rights_that_it_has(machine: Any, images: Path) -> None:
    pod = yaml.safe_load((Path(examples.__file__).parent / "images/collect.yaml").read_text())["spec"]
    (container,) = pod["containers"]
    rights = container["securityContext"]["capabilities"]["add"]
    assert set(rights) <= set(CAPABILITIES), "no more than pods that build"
    assert container["image"] == Settings().builder
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == Settings().store_claim
    (home,) = [one["value"] for one in container["env"]]
    assert home == paths.ROOT
    assert container["volumeMounts"] == [{"name": "store", "mountPath": f"{home}/store"}]
    tree = images / "layers" / GONE / "tree"
    (tree / "file").chmod(0o400)
    os.chown(tree / "file", 1234, 1234)
    os.chown(tree, 1234, 1234)
    tree.chmod(0o500)
    for path in images.rglob("*"):
        os.utime(path, (OLD - 86_400, OLD - 86_400))
    machine.home.chmod(0o555)
    keep = ["setpriv", "--bounding-set", ",".join(["-all", *(f"+{name.lower()}" for name in rights)])]
    command = [*keep, sys.executable, *container["command"][1:]]
    own = {"PATH": os.environ["PATH"], "BRINGUP_HOME": str(machine.home)}
    done = subprocess.run(command, cwd=Path(__file__).parents[3], env=own, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "2 things of 6.0 MiB removed" in done.stdout
    assert layers(images) == set()
    assert [path.name for path in machine.home.iterdir()] == ["store"], "nothing is written beside the claim"
