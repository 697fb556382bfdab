"""Longer checks of an image's life: what its manifest and its report page must say, and what a tree's verification must find."""

import html
import json
import re
import shutil
import time
from pathlib import Path
from xml.etree import ElementTree

from steps.clients.releases import publication
from steps.contract.release_layout import SUMS_SIGNATURE
from steps.nodeimage.contract.boot_tests import NodeReport
from steps.nodeimage.contract.image_manifest import SIGNATURE, decode
from steps.nodeimage.contract.image_tests import ImageTestOutcome
from steps.nodeimage.layer import layer_integrity
from steps.nodeimage.publishing import boot_server, image_release
from tests.boot.pipeline.given import ARGUMENT
from tests.boot.pipeline.site import NAME, PUBLISH, Site, stood

LAYER = re.compile(r"<tr><td><strong>(\w+)</strong></td><td>(cached|built)</td>")
"""A layer's row on a report page."""


def is_told_of(site: Site, commit: str, before: str, added: list[str]) -> None:
    """The change in its manifest and on its report page: where it came from, what was built of it, what it differs by, and that its
    kernel argument reached the node."""
    folder = site.tree / NAME / "current"
    made = decode((folder / "manifest.json").read_bytes())
    assert made.origin.startswith(f"{commit}, on bringup ")
    assert made.kernel_arguments == (ARGUMENT,)
    assert all(f" {ARGUMENT} " in script.read_text() for script in (folder / "boot").glob("*.ipxe"))
    assert made.outcomes["image_boot.boot_bios"]["kernel_argument_arrives"] is ImageTestOutcome.PASS
    page, told = site.report(site.runs[-1])
    assert LAYER.findall(page) == [("base", "cached"), ("site", "built")]
    assert f"<h2>Packages against {before}</h2>" in page
    assert f"<summary>1 added</summary><pre>{added[0]}</pre>" in page
    image = told["image"]
    assert (image["origin"], image["before"], image["version"]) == (made.origin, before, site.current)
    assert (image["added"], image["removed"], image["changed"]) == (added, [], [])


def a_failed_boot_test_is_told(site: Site, test: str, said: str) -> None:
    """In the file for CI servers, and on the report page with the end of its console."""
    failures = [one.get("message", "") for one in ElementTree.parse(site.folder / "report.xml").getroot().iter("failure")]
    assert [one for one in failures if test in one and said in one], failures
    page, told = site.report(site.runs[-1])
    assert LAYER.findall(page) == [("base", "cached")]
    assert [one["name"] for one in told["image"]["tests"] if one["outcome"] != "pass"] == [test]
    assert re.search(rf"<td>{test}</td><td>\S+</td><td><span class=\"badge fail\">fail</span></td>", page)
    (machine,) = told["image"]["machines"]
    assert machine["console"]
    assert "<summary>Its console at the end</summary>" in page
    assert html.escape(machine["console"][-1], quote=False) in page


def a_node_reports(site: Site, node: str, mac: str, digest: str) -> None:
    """Have a node say what it runs."""
    told = NodeReport(mac=mac, address="10.0.0.7", kernel="6", root="overlay", clock=1, uptime=9, node=node, image=digest)
    boot_server.keep(site.tree, told, time.time())


def a_wrong_signature_is_told(site: Site, version: str) -> None:
    """One with letters changed, and one that the trusted key made over another file; the right one is whole again."""
    folder = site.tree / NAME / "versions" / version
    path, other = folder / SIGNATURE, (folder / SUMS_SIGNATURE).read_bytes()
    right = path.read_bytes()
    lines = right.splitlines(keepends=True)
    lines[-2] = lines[-2].swapcase()
    for wrong in (b"".join(lines), other):
        assert wrong != right
        path.write_bytes(wrong)
        (problem,) = json.loads(site.run("image", "verify", "-o", "json", code=65))["problems"]
        assert "signature" in problem["why"], problem
    path.write_bytes(right)
    assert "are whole" in site.run("image", "verify")


def a_way_into_the_factory_is_told(site: Site, tree: Path) -> None:
    """A link into the store that the image was built in, and an address on a host of the factory; nothing before they are there."""
    words = ("image", "detach-check", str(tree), "--factory-host", "builder.example.org")
    assert "stands by itself" in site.run(*words)
    (tree / NAME / "layers").symlink_to(site.images / "layers")
    script = tree / NAME / "current/boot/default.ipxe"
    script.write_text(script.read_text().replace(str(PUBLISH["url"]), "http://builder.example.org", 1))
    found = {one["place"]: one["why"] for one in json.loads(site.run(*words, "-o", "json", code=65))["problems"]}
    assert found[f"{NAME}/layers"] == f"leads to {site.images / 'layers'}: a folder of the factory"
    led = f"leads to http://builder.example.org/{NAME}/versions/{site.current}/vmlinuz: a host of the factory"
    assert found[f"{NAME}/versions/{site.current}/boot/default.ipxe"] == led
    assert len(found) == 2


def nothing_changes(site: Site) -> None:
    """A build of what is published says so, and writes nothing."""
    before = stood(site.folder)
    said = site.run("image", "build")
    assert said.startswith(f"nothing changed: {site.current} of {NAME} is published")
    assert stood(site.folder) == before


def images_of_a_spec_are_kept(site: Site) -> None:
    """Check that `image gc` keeps a published image if the spec in the folder, or one given with `--published`, publishes it."""
    key = decode((site.tree / NAME / "current/manifest.json").read_bytes()).key
    words = ("image", "gc", "--days", "0", "--dry-run", "-o", "json")
    kept = (("base",), (), ("base", "--published", "image.yaml"))
    gone = [{one["name"] for one in json.loads(site.run(*words, *more))["removed"]} for more in kept]
    assert [key in names for names in gone] == [True, False, False], "the spec of the folder is kept where no other is named"


def garbage_is_what_no_version_is_made_of(site: Site) -> None:
    """Real layers, of which one is no version's; that of a version which a rollback left stays too, and all that stays is whole."""
    made = [decode((site.tree / NAME / "versions" / version / "manifest.json").read_bytes()) for version in site.versions]
    needed = {layer.key for image in made for layer in image.layers}
    assert len(made) > 1 < len(needed)
    shelf, orphan = site.images / "layers", "0" * 64
    shutil.copytree(shelf / made[-1].layers[-1].key, shelf / orphan, symlinks=True)
    words = ("image", "gc", "base", "--days", "0", "--published", str(site.tree), "-o", "json")
    gone = {one["name"] for one in json.loads(site.run(*words))["removed"] if one["kind"] in ("layers", "assembled")}
    assert orphan in gone
    assert not gone & (needed | {image.key for image in made})
    assert not (shelf / orphan).exists()
    assert [layer_integrity.verify(site.images, key) for key in needed] == [""] * len(needed)
    for image in made:
        packed = image_release.load(site.images / "assembled" / image.key)
        publication.examine(packed.folder, packed.manifest.parts)
