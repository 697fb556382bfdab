"""`bringup image diff` on images whose files are alike: what there is to say without reading a root."""

import json
from pathlib import Path
from typing import Any

import msgspec

from steps.contract.canonical import digest_bytes
from steps.nodeimage.contract import image_manifest
from steps.nodeimage.contract.image_manifest import MANIFEST, PARTS, ImageFile, Manifest, PackageOf

IMAGE = Manifest(
    name="compute",
    key="1" * 64,
    recipe="sha256:" + "a" * 64,
    distribution="debian",
    release="bookworm",
    architecture="amd64",
    epoch=1,
    kernel="6.1.0-35",
    kernel_arguments=("quiet",),
    parts=tuple(ImageFile(name=name, digest=digest_bytes(name.encode()), size=len(name)) for name in PARTS),
    layers=(),
    packages=(PackageOf(name="gcc", version="12", architecture="amd64", sha256="b", layer="hpc"),),
)


def written(folder: Path, image: Manifest) -> Path:
    folder.mkdir(parents=True)
    for name in PARTS:
        (folder / name).write_bytes(name.encode())
    (folder / MANIFEST).write_bytes(image_manifest.encode(image))
    return folder


def test_equal_images_are_equal_and_end_with_0(machine: Any, tmp_path: Path) -> None:
    one, other = written(tmp_path / "one", IMAGE), written(tmp_path / "other", IMAGE)
    done = machine.call("image", "diff", one, other, "--exit-code")
    assert (done.code, done.out.strip()) == (0, "the images are bit for bit the same")


def test_what_differs_is_told_and_scripts_may_ask_for_65(machine: Any, tmp_path: Path) -> None:
    later = msgspec.structs.replace(IMAGE, key="2" * 64, kernel_arguments=("quiet", "iommu=pt"), packages=())
    one, other = written(tmp_path / "one", IMAGE), written(tmp_path / "other", later)
    done = machine.call("image", "diff", one, other)
    assert done.code == 0
    assert "bit for bit the same; what differs: kernel arguments" in done.out
    assert "iommu=pt" in done.out
    assert "gcc" in done.out
    asked = machine.call("image", "diff", one, other, "--exit-code", "-o", "json")
    assert asked.code == 65
    assert json.loads(asked.out)["packages"] == [{"name": "gcc", "before": "12", "layer": "hpc"}]


def test_a_version_of_a_published_tree_and_digits_of_a_key_name_an_image(machine: Any, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    written(tree / "compute/versions/0001-aaaaaaaaaaaa", IMAGE)
    (tree / "compute/current").symlink_to("versions/0001-aaaaaaaaaaaa")
    for number in ("1", "0001"):
        assert machine.call("image", "diff", "compute", f"compute/{number}", "--tree", tree).code == 0
    assert machine.call("image", "diff", "compute", "compute/2", "--tree", tree).code == 64
    written(machine.home / "store/images/assembled" / IMAGE.key, IMAGE)
    for named in ("compute", "compute/0001-aaaaaaaaaaaa"):
        done = machine.call("image", "diff", named, "1111", "--tree", tree)
        assert "bit for bit the same" in done.out, done.err


def test_an_image_that_is_not_there_or_damaged_is_one_sentence(machine: Any, tmp_path: Path) -> None:
    one = written(tmp_path / "one", IMAGE)
    missing = machine.call("image", "diff", one, "compute")
    assert missing.code == 64
    assert "no image compute: no folder compute with manifest.json" in missing.err
    (one / "vmlinuz").write_bytes(b"other")
    damaged = machine.call("image", "diff", one, one)
    assert damaged.code == 64
    assert "vmlinuz not as the manifest says" in damaged.err
