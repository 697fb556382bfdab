"""Differences between two images, by file and package."""

import msgspec

from steps.nodeimage.contract import image_difference
from steps.nodeimage.contract.image_difference import FileOf, ImageContent
from steps.nodeimage.contract.image_manifest import ImageFile, LayerOf, Manifest, PackageOf
from steps.nodeimage.contract.image_tests import ImageTestOutcome

BASE = Manifest(
    name="compute",
    key="1" * 64,
    recipe="sha256:" + "1" * 64,
    distribution="debian",
    release="bookworm",
    architecture="amd64",
    epoch=1,
    kernel="6.1.0-35",
    kernel_arguments=("quiet",),
    parts=tuple(ImageFile(name=name, digest=f"sha256:{name}", size=9) for name in ("root.squashfs", "vmlinuz", "initrd.img")),
    layers=(LayerOf(name="base", key="2" * 64, digest="sha256:b", size=1, files=1),),
    packages=(
        PackageOf(name="gcc", version="12.2", architecture="amd64", sha256="a", layer="hpc"),
        PackageOf(name="make", version="4.3", architecture="amd64", sha256="b", layer="hpc"),
        PackageOf(name="old", version="1", architecture="amd64", sha256="c", layer="base"),
    ),
    tools={"mksquashfs": "4.5.1"},
)
GCC = FileOf("file", 0o755, "0:0", 5, 100, "aa")
MOTD = FileOf("file", 0o644, "0:0", 5, 3, "bb")
ROOT = {"usr/bin/gcc": GCC, "usr/bin/old": GCC, "etc/motd": MOTD, "bin": FileOf("link", 0o777, "0:0", 5, link="usr/bin")}


def later(**changes: object) -> Manifest:
    part = msgspec.structs.replace(BASE.parts[0], digest="sha256:other")
    return msgspec.structs.replace(BASE, parts=(part, *BASE.parts[1:]), **changes)


def test_equal_images_are_said_to_be_equal() -> None:
    found = image_difference.compare(ImageContent(manifest=BASE), ImageContent(manifest=BASE))
    assert found == image_difference.ImageDifference(same=True)
    assert image_difference.sentence(found) == "the images are bit for bit the same"


def test_an_image_and_its_published_versions_are_the_same() -> None:
    published = (
        msgspec.structs.replace(BASE, origin=commit, outcomes={"image_sandbox.tests": {"gcc": ImageTestOutcome.PASS}})
        for commit in ("3f2a", "9b1c")
    )
    for one in published:
        assert image_difference.compare(
            ImageContent(manifest=BASE), ImageContent(manifest=one)
        ) == image_difference.ImageDifference(same=True)


def test_packages_that_came_went_changed_and_were_built_anew() -> None:
    packages = (
        msgspec.structs.replace(BASE.packages[0], version="12.3", sha256="d"),
        msgspec.structs.replace(BASE.packages[1], sha256="e"),
        PackageOf(name="htop", version="3.2", architecture="amd64", sha256="f", layer="site"),
    )
    found = image_difference.compare(ImageContent(manifest=BASE), ImageContent(manifest=later(packages=packages)))
    assert [(one.name, one.before, one.after, one.layer, one.rebuilt) for one in found.packages] == [
        ("gcc", "12.2", "12.3", "hpc", False),
        ("htop", "", "3.2", "site", False),
        ("make", "4.3", "4.3", "hpc", True),
        ("old", "1", "", "base", False),
    ]


def test_files_say_what_differs_and_whose_they_are() -> None:
    root = {
        "usr/bin/gcc": FileOf("file", 0o4755, "0:7", 6, 150, "cc"),
        "etc/motd": ROOT["etc/motd"],
        "bin": FileOf("link", 0o777, "0:0", 5, link="usr/sbin"),
        "usr/bin/htop": FileOf("file", 0o755, "0:0", 5, 10, "dd"),
    }
    before = ImageContent(manifest=BASE, root=ROOT, owners={"usr/bin/old": "old", "usr/bin/gcc": "gcc"})
    found = image_difference.compare(
        before, ImageContent(manifest=later(), root=root, owners={"usr/bin/htop": "htop", "usr/bin/gcc": "gcc"})
    )
    shown = {one.path: (one.how, one.what, one.grew, one.package) for one in found.root}
    assert shown == {
        "bin": ("changed", ("link",), 0, ""),
        "usr/bin/gcc": ("changed", ("content", "mode", "owner", "time"), 50, "gcc"),
        "usr/bin/htop": ("added", (), 10, "htop"),
        "usr/bin/old": ("removed", (), -100, "old"),
    }
    assert found.grew == -40
    assert list(image_difference.by_package(found.root)) == ["gcc", "htop", "old", ""]
    assert [one.name for one in found.parts] == ["root.squashfs"]


def test_settings_layers_and_tools_are_told() -> None:
    layers = (*BASE.layers, LayerOf(name="site", key="3" * 64, digest="sha256:s", size=1, files=1))
    other = later(kernel="6.1.0-36", kernel_arguments=("quiet", "iommu=pt"), layers=layers, tools={"mksquashfs": "4.6"})
    found = image_difference.compare(ImageContent(manifest=BASE), ImageContent(manifest=other))
    assert {one.name: (one.before, one.after) for one in found.values} == {
        "kernel": ("6.1.0-35", "6.1.0-36"),
        "kernel arguments": ("quiet", "quiet iommu=pt"),
        "tool mksquashfs": ("4.5.1", "4.6"),
    }
    assert [(one.name, one.before, one.after) for one in found.layers] == [("site", "", "sha256:s")]


def test_where_no_byte_of_a_file_differs_it_is_said() -> None:
    other = msgspec.structs.replace(BASE, recipe="sha256:other", key="9" * 64)
    found = image_difference.compare(ImageContent(manifest=BASE), ImageContent(manifest=other))
    assert not found.same
    assert image_difference.sentence(found) == "root, kernel and initrd are bit for bit the same; what differs: recipe"
