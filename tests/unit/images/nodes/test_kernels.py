"""Which kernel an image starts."""

import pytest

from steps.contract.image.recipe import Package
from workflows.images.errors import BuildError
from workflows.images.nodes import packages


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
    assert packages.kernel("linux-image-amd64", found) == packages.kernel(kernel, found) == kernel


def test_of_two_kernels_none_is_chosen() -> None:
    found = of_names("linux-image-6.1.0-36-amd64", "linux-image-6.1.0-37-amd64", "linux-image-6.1.0-37-amd64-dbg")
    with pytest.raises(BuildError, match=r"has linux-image-6\.1\.0-36-amd64, linux-image-6\.1\.0-37-amd64 as kernel") as caught:
        packages.kernel("linux-image-amd64", found)
    assert caught.value.hint == "ask for one kernel, and lock again"
