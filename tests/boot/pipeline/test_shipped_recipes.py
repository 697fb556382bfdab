"""Shipped recipes with the kernel of racked machines: they have the drivers, fit their budgets, and boot."""

import shutil
from pathlib import Path

import pytest

from tests.boot.pipeline.site import Site

KERNEL = {"kernel": "linux-image-amd64"}
BOOT = {"firmware": ["uefi"], "memory_mib": 2048, "timeout": "10m"}
DRIVERS = {"bnxt_en", "i40e", "ice", "igb", "ixgbe", "megaraid_sas", "mlx5_core", "nvme", "tg3"}
"""Of what racked machines have, and virtual ones do not."""


@pytest.mark.long
@pytest.mark.parametrize(("recipe", "until"), [("base", "image_sandbox"), ("compute", "image_boot")])
def test_they_are_within_their_budgets_and_have_drivers(recipe: str, until: str, tmp_path: Path) -> None:
    site = Site(tmp_path / "site", recipe=recipe, variables=KERNEL, boot=BOOT)
    site.lock()
    site.run("image", "build", "--until", until)
    modules = {
        path.name.partition(".")[0] for path in (site.images / "layers").glob("*/tree/usr/lib/modules/*/kernel/drivers/**/*.ko*")
    }
    assert modules >= DRIVERS
    (packed,) = site.records("image_assemble", "outputs")
    assert "unracked" not in packed["observation"], "nothing is to be told of its network cards"
    (record,) = site.records("image_sandbox", "tests")
    assert {one["outcome"] for one in record["observation"]["results"]} == {"pass"}
    shutil.rmtree(tmp_path)
