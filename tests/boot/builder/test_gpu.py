"""The shipped recipe `gpu`, built with its real command lines: DKMS compiles stand-ins of the driver for the image's kernel."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.image_tests import ExpectedTest, ImageTestOutcome
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.layer import layer_cache
from steps.nodeimage.sandbox import sandbox_tests as sandbox
from steps.stages.image_sandbox import gate as image_sandbox
from steps.stages.image_sandbox.contract import SandboxExpectation
from tests.boot.builder import disturbing, shipped, vendor
from tests.boot.builder.disturbing import Fault
from tests.boot.pipeline.site import Site
from workflows.nodeimage import recipe_resolution
from workflows.nodeimage.image_spec import load_image

FAULTS = disturbing.FILE.with_name("faults_gpu.yaml")
BOOT = {"firmware": ["uefi"], "memory_mib": 2048, "timeout": "10m"}
CLOUD = {"kernel": "linux-image-cloud-amd64", "kernel_headers": "linux-headers-cloud-amd64"}


@pytest.fixture(scope="module")
def nvidia(tmp_path_factory: pytest.TempPathFactory) -> Iterator[vendor.Repository]:
    with vendor.repository(tmp_path_factory.mktemp("vendor")) as served:
        yield served


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, nvidia: vendor.Repository) -> Site:
    """Built as a user builds it, as far as its sandbox tests."""
    common = shipped.common(tmp_path_factory.getbasetemp())
    made = locked(tmp_path_factory.mktemp("gpu"), common, nvidia, **CLOUD)
    made.run("image", "build", "--until", "image_sandbox")
    return made


def locked(folder: Path, common: Path, nvidia: vendor.Repository, **values: str) -> Site:
    """A site with a lock of the recipe, which keeps its layers in the common folder."""
    variables = {"nvidia_repository": nvidia.url, "nvidia_key": str(nvidia.key), **values}
    made = Site(folder, common / "archive", recipe="gpu", variables=variables, boot=BOOT)
    (made.images / "layers").symlink_to(common / "layers")
    made.lock()
    return made


@pytest.fixture(scope="module")
def recipe(site: Site) -> Recipe:
    return recipe_resolution.resolve(recipe_resolution.spec_request(load_image(site.folder / "image.yaml"), site.folder)).recipe


def test_it_is_built_and_passes_its_tests(site: Site, recipe: Recipe) -> None:
    (record,) = site.records("image_sandbox", "tests")
    named = {one["name"]: one["outcome"] for one in record["observation"]["results"]}
    wanted = {"driver_modules", "driver_is_of_one_version", "toolkit_compiles", "no_module_signing_key", "setuid_files"}
    assert wanted <= named.keys()
    assert set(named.values()) == {"pass"}, named
    (layer,) = site.records("image_layers", "layer_gpu")
    assert layer["verdict"]["status"] == "pass"
    assert {f"{one.name}={one.version}" for one in vendor.stands()} <= set(layer["observation"]["installed"])
    modules = shipped.tree(site.images, recipe, "gpu").glob("usr/lib/modules/*/updates/dkms/*.ko")
    assert {path.name for path in modules} == {"nvidia.ko", "nvidia-uvm.ko", "nvidia-modeset.ko"}


@pytest.mark.sampled("equal bytes")
def test_the_driver_compiled_again_elsewhere_gives_the_same_bytes(site: Site, recipe: Recipe, tmp_path: Path) -> None:
    found, other = build_keys.layers(recipe), tmp_path / "another/place"
    (other / "layers").mkdir(parents=True)
    (other / "archive").symlink_to(site.images / "archive")
    for name in recipe.names[:-1]:
        (other / "layers" / found[name]).symlink_to(site.images / "layers" / found[name])
    files = recipe_resolution.resolve(recipe_resolution.spec_request(load_image(site.folder / "image.yaml"), site.folder)).files
    again = layer_cache.build(other, recipe, files, "gpu", shipped.NO_SECRETS, shipped.quiet)
    assert (again.failed, again.cached) == ("", False), again.output
    assert again.digest == layer_cache.build(site.images, recipe, files, "gpu", shipped.NO_SECRETS, shipped.quiet).digest


@pytest.mark.parametrize("fault", disturbing.faults(FAULTS), ids=lambda fault: fault.name)
def test_a_fault_is_caught(fault: Fault, site: Site, recipe: Recipe, tmp_path: Path) -> None:
    test = next(test for test in recipe.tests if test.name == fault.caught_by)
    stack, upper = layer_cache.stack(site.images, recipe), shipped.upper(tmp_path / "upper")
    disturbing.disturb(fault, stack, upper)
    seen = sandbox.run_on((upper, *stack), (test,), "key")
    assert seen.results[0].outcome is ImageTestOutcome.FAIL, seen
    assert re.search(fault.says, seen.results[0].output), seen.results[0].output
    verdict = image_sandbox.tests(
        seen, SandboxExpectation(key="key", tests=(ExpectedTest(name=test.name, incident=test.incident),))
    )
    assert test.incident.rstrip(".") in verdict.reason


@pytest.mark.long
def test_it_boots_where_no_gpu_is(site: Site) -> None:
    """NVIDIA's daemons end with an error on a machine without GPUs, and still no systemd unit may fail in a test boot."""
    site.run("image", "build", "--until", "image_boot")
    (record,) = site.records("image_boot", "boot_uefi")
    assert record["verdict"]["status"] == "pass"
    (one,) = record["observation"]["boots"]
    assert not one["report"].get("failed_units")


@pytest.mark.long
def test_headers_of_another_kernel_are_told(
    nvidia: vendor.Repository, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    common = shipped.common(tmp_path_factory.getbasetemp())
    site = locked(tmp_path, common, nvidia, **{**CLOUD, "kernel_headers": "linux-headers-rt-amd64"})
    site.run("image", "build", "--until", "image_sandbox", code=65)
    (layer,) = site.records("image_layers", "layer_gpu")
    assert layer["verdict"]["status"] == "fail"
    assert re.search(r"headers .*cannot be found|headers .*do not seem to be installed", layer["observation"]["output"])


@pytest.mark.long
def test_the_kernel_that_the_recipe_names_itself(nvidia: vendor.Repository, tmp_path: Path) -> None:
    """The recipe also builds with the kernel that it names itself: the one for physical machines, four times as large."""
    site = locked(tmp_path / "site", shipped.common(tmp_path), nvidia)
    site.run("image", "build", "--until", "image_sandbox")
    (record,) = site.records("image_sandbox", "tests")
    assert {one["outcome"] for one in record["observation"]["results"]} == {"pass"}
    shutil.rmtree(tmp_path)
