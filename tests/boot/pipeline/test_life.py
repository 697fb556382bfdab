"""The life of an image by the command line: built, booted, published, unchanged, changed, rolled back; nothing stays behind."""

import os
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from steps.contract.image.manifest import decode
from tests.boot.builder.started import descendants, mounts
from tests.boot.pipeline import killed
from tests.boot.pipeline.site import LOCK, NAME, Site
from tests.hosts.hostlab.waiting import until

STAGES = ("image_lock", "image_layers", "image_assemble", "image_sandbox", "image_boot", "image_publish")
MORE = {
    "apiVersion": "bringup/v1",
    "kind": "ImageRecipe",
    "name": "more",
    "description": "base with one small package more.",
    "extends": "base",
    "layers": [{"name": "site", "packages": ["less"], "budget_mib": 5}],
}


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder with its time and size."""
    found = (Path(at) / name for at, folders, files in os.walk(folder) for name in (*folders, *files))
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in found}


def test_an_image_is_published_that_booted_by_bios_and_uefi(first: Site) -> None:
    suites = ElementTree.parse(first.folder / "report.xml").getroot()
    assert not list(suites.iter("failure"))
    for firmware in ("bios", "uefi"):
        (record,) = first.records("image_boot", f"boot_{firmware}")
        (one,) = record["observation"]["boots"]
        assert record["verdict"]["status"] == "pass"
        assert (one["firmware"], one["report"]["root"], one["ended"]) == (firmware, "overlay", "report")
    version = first.tree / NAME / "versions" / first.current
    made = decode((version / "manifest.json").read_bytes())
    assert [layer.name for layer in made.layers] == ["base"]
    assert len(made.packages) > 100
    assert {path.name for path in (version / "boot").iterdir()} == {"default.ipxe", "compute.ipxe"}
    assert "are whole" in first.run("image", "verify", "image.yaml") or "is whole" in first.run("image", "verify", "image.yaml")
    first.run("image", "detach-check", "image.yaml")


def test_the_report_shows_layers_tests_and_boots(first: Site) -> None:
    page = (first.home / "store/runs" / first.runs[0] / "report/report.html").read_text()
    for text in ("<h2>Layers</h2>", "<h2>Tests</h2>", "<h2>Boots</h2>", "root.squashfs", "the first version", first.current):
        assert text in page, text
    assert re.search(r"script \d+\.\d s → kernel", page)
    first.run("verify", str(first.home / "store/runs" / first.runs[0]))


def test_where_nothing_changed_nothing_is_written(first: Site) -> None:
    before = written(first.folder)
    said = first.run("image", "build")
    assert said.startswith(f"nothing changed: {first.current} of {NAME} is published")
    assert written(first.folder) == before


def test_one_package_more_is_built_on_what_there_is_published_and_rolled_back(first: Site) -> None:
    earlier, before = first.current, written(first.tree / NAME / "versions" / first.current)
    (first.folder / "more.yaml").write_text(yaml.safe_dump(MORE))
    first.write(recipe="more.yaml", lock="more.lock.json", boot={"firmware": ["bios"], "memory_mib": 1536, "timeout": "10m"})
    assert "site 1" in first.lock()
    first.run("image", "build")
    base, site = (first.records("image_layers", f"layer_{name}")[0]["observation"] for name in ("base", "site"))
    assert base["cached"]
    assert not site.get("cached")
    assert site["size"] < 5e6
    later = first.current
    assert later != earlier
    (record,) = first.records("image_publish", "tree")
    assert [name.partition("=")[0] for name in record["observation"]["packages_added"]] == ["less"]
    assert written(first.tree / NAME / "versions" / earlier) == before, "what is published is never written again"

    listed = first.run("image", "list", "image.yaml")
    assert earlier in listed
    assert later in listed
    first.run("image", "rollback")
    assert first.current == earlier
    first.run("image", "verify", "image.yaml")
    said = first.run("image", "diff", f"published/{NAME}/versions/{earlier}", f"published/{NAME}/versions/{later}")
    assert "less" in said
    assert "/usr/bin/less" in said


def test_compute_is_built_and_passes_its_tests(first: Site, tmp_path: Path) -> None:
    site = Site(tmp_path, first.images / "archive", recipe="compute")
    (site.images / "layers").symlink_to(first.images / "layers")
    site.lock()
    site.run("image", "build", "--until", "image_sandbox")
    (record,) = site.records("image_sandbox", "tests")
    named = {one["name"]: one["outcome"] for one in record["observation"]["results"]}
    assert {"compiler_runs", "mpi_compiles_and_runs", "modules_load"} <= named.keys()
    assert set(named.values()) == {"pass"}


@pytest.mark.parametrize("wanted", [10, pytest.param(30, marks=pytest.mark.long)])
def test_killed_at_random_points_it_ends_in_the_same_bytes(first: Site, tmp_path: Path, wanted: int) -> None:
    """Boots are those of the first image, which is the same to the byte: the runs here reuse them, as a person would."""
    luck, number = killed.chance(), 0
    kills: list[str] = []
    while len(kills) < wanted:
        folder, log = tmp_path / f"site{number}", tmp_path / f"log{number}"
        site = Site(folder, first.images / "archive")
        shutil.copy(first.folder / LOCK, folder)
        shutil.copytree(first.home / "store/runs" / first.runs[0], site.home / "store/runs" / first.runs[0])
        stages = killed.places(number, min(killed.MOST_IN_A_RUN, wanted - len(kills)))
        kills += killed.disturbed(site, first.runs[0], luck, stages, log)
        number += 1
        assert site.published() == first.published(min(path.name for path in (first.tree / NAME / "versions").iterdir()))
        for task in ("image_layers.layer_base", "image_assemble.outputs"):
            seen = [one["observation"] for one in site.records(*task.split(".")) if one.get("observation")]
            made = [one for one in seen if not one.get("cached")]
            assert len(made) <= 1, f"{task} was finished, and made again"
        gone = until(lambda at=site.folder: not [pid for pid in descendants(1) if killed.works_in(pid, at)], 30)
        assert gone, "a process lives on"
        assert mounts(site.folder) == []
        assert not list((site.tree / NAME / "incoming").glob("*")) or site.run("image", "verify", "image.yaml")
        shutil.rmtree(folder)
    print(f"{len(kills)} kills in {number} builds: {', '.join(kills)}")
    assert set(kills) == set(killed.STAGES), "each stage is killed"


def test_nothing_stays_behind(first: Site) -> None:
    assert mounts(first.folder) == []
    running = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(os.getpid()) if Path(f"/proc/{pid}").exists()]
    assert [line for line in running if b"qemu" in line or b"steps" in line] == []
    left = [path.name for path in first.images.rglob("*.part*")] + [path.name for path in first.images.glob("*/.*new*")]
    assert left == []
