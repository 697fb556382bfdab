"""The shipped recipes on the Debian after the one that they name: locked, built, within their budgets, booted, published."""

import shutil
from pathlib import Path

import pytest

from tests.boot.pipeline.site import Site

RELEASE = {"release": "trixie"}
BOOT = {"firmware": ["bios", "uefi"], "memory_mib": 2560, "timeout": "10m"}


def outcomes(site: Site, stage: str, task: str) -> set[str]:
    """Return the different outcomes of a task's tests, in the root or on the machines that booted."""
    (record,) = site.records(stage, task)
    seen = record["observation"]
    reports = [one["report"] for one in seen["boots"]] if "boots" in seen else [seen]
    return {one["outcome"] for report in reports for one in report["results"]}


@pytest.mark.long
def test_compute_is_published_after_it_booted(tmp_path: Path) -> None:
    site = Site(tmp_path / "site", recipe="compute", variables=RELEASE, boot=BOOT)
    site.lock()
    site.run("image", "build")
    assert outcomes(site, "image_sandbox", "tests") == {"pass"}
    assert outcomes(site, "image_boot", "boot_bios") == outcomes(site, "image_boot", "boot_uefi") == {"pass"}
    site.run("image", "verify", "image.yaml")
    shutil.rmtree(tmp_path)


@pytest.mark.long
def test_with_the_kernel_of_racked_machines_it_is_within_its_budgets(tmp_path: Path) -> None:
    site = Site(tmp_path / "site", recipe="compute", variables={**RELEASE, "kernel": "linux-image-amd64"}, boot=BOOT)
    site.lock()
    site.run("image", "build", "--until", "image_sandbox")
    assert outcomes(site, "image_sandbox", "tests") == {"pass"}
    shutil.rmtree(tmp_path)
