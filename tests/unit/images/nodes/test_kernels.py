"""The kernel that an image starts, and its arguments."""

from pathlib import Path

import msgspec
import pytest

from steps.nodeimage.contract.resolved_recipe import Package
from workflows.nodeimage import lockfile, package_resolution, recipe_files, recipe_resolution
from workflows.podimage.errors import BuildError

OWN = """
apiVersion: bringup/v1
kind: ImageRecipe
name: own
description: A stand-in for a site's recipe.
extends: base
layers:
"""


def test_kernel_arguments_keep_their_order_and_stand_as_often_as_they_are_written(tmp_path: Path) -> None:
    """A kernel reads them by position: without its second `hugepages=16` a node boots without its small pages."""
    pages = "[hugepagesz=1G, hugepages=16, hugepagesz=2M, hugepages=16]"
    lower = f"  - name: lower\n    kernel_arguments: [console=ttyS0]\n  - name: middle\n    kernel_arguments: {pages}\n"
    upper = "  - name: upper\n    kernel_arguments: [console=tty0, console=ttyS0]\n"
    (tmp_path / "own.yaml").write_text(OWN + lower + upper)
    lock = lockfile.read(recipe_files.RECIPES / "base.lock.json", "")
    layers = tuple(lockfile.LockedLayer(name=name, packages=()) for name in ("lower", "middle", "upper"))
    locked = msgspec.structs.replace(lock, recipe="own", layers=(*lock.layers, *layers))
    (tmp_path / "own.lock.json").write_text(lockfile.text(locked))
    words = recipe_resolution.resolve(recipe_resolution.recipe_request("own.yaml", tmp_path)).recipe.kernel_arguments
    assert words[-7:] == (
        *("console=ttyS0", "hugepagesz=1G", "hugepages=16", "hugepagesz=2M", "hugepages=16"),
        *("console=tty0", "console=ttyS0"),
    ), "the last console is /dev/console"


def of_names(*names: str) -> list[Package]:
    return [
        Package(name=name, version="1", architecture="amd64", sha256="0" * 64, size=1, path=f"pool/main/l/linux/{name}.deb")
        for name in names
    ]


@pytest.mark.parametrize(
    ("kernel", "symbols"),
    [
        ("linux-image-6.1.0-37-amd64", "linux-image-6.1.0-37-amd64-dbg"),
        ("linux-image-6.8.0-45-generic", "linux-image-6.8.0-45-generic-dbgsym"),
        ("linux-image-unsigned-6.8.0-45-generic", "linux-image-unsigned-6.8.0-45-generic-dbgsym"),
    ],
)
def test_the_debug_symbols_of_a_kernel_are_no_second_one(kernel: str, symbols: str) -> None:
    """crash, systemtap and the like ask for them on compute nodes."""
    found = of_names("linux-image-amd64", kernel, "linux-image-amd64-dbg", symbols)
    assert package_resolution.kernel("linux-image-amd64", found) == package_resolution.kernel(kernel, found) == kernel


def test_of_two_kernels_none_is_chosen() -> None:
    found = of_names("linux-image-6.1.0-36-amd64", "linux-image-6.1.0-37-amd64", "linux-image-6.1.0-37-amd64-dbg")
    with pytest.raises(BuildError, match=r"has linux-image-6\.1\.0-36-amd64, linux-image-6\.1\.0-37-amd64 as kernel") as caught:
        package_resolution.kernel("linux-image-amd64", found)
    assert caught.value.hint == "ask for one kernel, and lock again"
