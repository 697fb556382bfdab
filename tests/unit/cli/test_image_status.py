"""Builds of an image that is published already, on a boot server by SSH: the command asks first, and a run does, and then nothing
is done at all."""

import json
import os
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from steps.nodeimage.contract import build_keys
from steps.nodeimage.publishing import image_publication
from steps.nodeimage.publishing.image_kind import local_tree
from tests.unit.cli.test_ci_snippets import IMAGES
from tests.unit.clients.published import published_trees
from workflows.nodeimage import recipe_resolution
from workflows.nodeimage.image_spec import load_image
from workflows.nodeimage.publish_targets import publish_target
from workflows.stages import IMAGE_ORDER

SSH = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'
"""Stands for the way to the boot server, which is this machine: runs what the real one would run there."""
SPEC = {"apiVersion": "bringup/v1", "kind": "Image", "name": "lab", "owner": "hpc", "revision": "1", "recipe": "base"}
NOWHERE = "http://127.0.0.1:9/debian"
UV_OF_HERE = {"UV_NO_PROJECT": "1", "UV_OFFLINE": "1", "VIRTUAL_ENV": sys.prefix}
"""uv runs what is installed."""
TESTED = {f"image_boot.boot_{firmware}": published_trees.RESULTS["sandbox"] for firmware in ("bios", "uefi")}


@pytest.fixture
def site(machine: Any) -> Any:
    """A machine with an image spec, and a boot server whose tree is empty."""
    tree, way = machine.folder / "tree", machine.folder / "bin/ssh"
    tree.mkdir()
    way.parent.mkdir()
    way.write_text(SSH)
    way.chmod(0o755)
    for name in ("key", "known_hosts"):
        (machine.folder / name).write_text("unused\n")
    server = {"host": "boot.example.org", "user": "images", "key": {"file": "./key"}, "known_hosts": "./known_hosts"}
    published = {"root": str(tree), "url": "http://boot.example.org/images", "ssh": server}
    (machine.folder / "image.yaml").write_text(yaml.safe_dump({**SPEC, "mirror": NOWHERE, "publish": published}))
    return machine


def publish(site: Any, content: str, key: str = "") -> str:
    """Publish an image as a run of this spec would, where no key says otherwise; its version."""
    spec = load_image(site.folder / "image.yaml")
    recipe = recipe_resolution.resolve(recipe_resolution.spec_request(spec, site.folder)).recipe
    made = published_trees.image(site.folder / content, content, name=recipe.name, key=key or build_keys.image(recipe))
    where = published_trees.order(publish_target(spec), made).target
    return published_trees.published(where, made, results=TESTED).version


def build(site: Any, *words: str) -> Any:
    return site.call("image", "build", "image.yaml", *words, PATH=f"{site.folder / 'bin'}:{os.environ['PATH']}")


def test_what_would_change_is_told_before_anybody_approves_it(site: Any) -> None:
    """Also of a run that only asks."""
    version = publish(site, "a", key="1" * 64)
    done = build(site, "--until", "image_status")
    assert done.code == 0, done.text
    assert f"to be built: {version} is another image" in done.out
    (record,) = (site.runs[-1] / "evidence/image_status/tree").rglob("*.json")
    seen = json.loads(record.read_text())["observation"]
    assert (seen["answer"], seen["version"]) == ("changed", version)
    assert any(one.startswith("bash=") for one in seen["packages_added"]), "the stand-in image has none"
    found = report(site)["image"]
    assert (found["version"], found["before"], found["added"]) == ("", version, seen["packages_added"])
    page = (site.runs[-1] / "report/report.html").read_text()
    assert f"Packages against {version}" in page


def test_a_boot_server_whose_disk_is_not_mounted_is_told_before_anything_is_built(site: Any) -> None:
    version = publish(site, "a", key="1" * 64)
    assert build(site, "--until", "image_status").code == 0
    (site.folder / "tree").rename(site.folder / "disk")
    (site.folder / "tree").mkdir()
    done = build(site)
    assert done.code == 65, done.text
    assert f"it has no version of lab, but {version} was published there; is it mounted?" in done.text
    assert "bringup image build --again" in done.text, "what a person does about a tree made anew"
    assert not (site.home / "store/images").exists()


def report(site: Any) -> Any:
    return json.loads((site.runs[-1] / "report/report.json").read_text())


def test_no_run_begins_where_nothing_changed(site: Any) -> None:
    version = publish(site, "a")
    before = published_trees.state(site.folder / "tree")
    done = build(site, "--junit", "report.xml")
    assert (done.code, done.out.startswith(f"nothing changed: {version} of lab is published")) == (0, True), done.text
    assert published_trees.state(site.folder / "tree") == before
    assert not site.home.exists()
    (case,) = ElementTree.parse(site.folder / "report.xml").getroot().iter("testcase")
    assert list(case) == []


@pytest.mark.long  # three retries of a temporary failure take 70 s
def test_a_server_that_does_not_answer_is_told_by_the_run(site: Any) -> None:
    publish(site, "a")
    (site.folder / "bin/ssh").write_text(
        "#!/bin/sh\necho ssh: connect to host boot.example.org port 22: Connection refused >&2\nexit 255\n"
    )
    done = build(site)
    assert done.code != 0
    assert "boot.example.org" in done.text
    assert "nothing changed" not in done.text


def test_nothing_is_fetched_built_booted_or_written_by_a_run_where_nothing_changed(site: Any) -> None:
    """A command that cannot reach the boot server leaves the question to the run, which skips all stages if nothing changed."""
    version = publish(site, "a")
    before = published_trees.state(site.folder / "tree")
    (site.folder / "bin/ssh").write_text(SSH.replace("for", f"test -d '{site.home}' || exit 255\nfor", 1))
    done = build(site, "--junit", "report.xml")
    assert done.code == 0, done.text
    sentence = f"nothing changed: version {version} is this image"
    assert f"lab: pass: {sentence}" in done.out
    assert published_trees.state(site.folder / "tree") == before
    assert not (site.home / "store/images").exists()
    told = report(site)
    assert (told["status"], told["sentence"]) == ("pass", sentence)
    assert {stage["id"]: stage["status"] for stage in told["stages"]} == {
        "image_status": "pass",
        **dict.fromkeys(IMAGE_ORDER[1:], "skipped"),
    }
    assert {stage["reason"] for stage in told["stages"][1:]} == {sentence}
    assert (told["image"]["version"], told["image"]["unchanged"]) == (version, True)
    assert (site.runs[-1] / "report/report.txt").read_text().rstrip().endswith(sentence), "also its last line"
    assert sorted(path.name for path in (site.runs[-1] / "evidence").iterdir()) == ["image_status", "run"]
    every = ElementTree.parse(site.folder / "report.xml").getroot().iter("testcase")
    assert not [case for case in every if case.find("failure") is not None]
    shown = site.call("status").out
    assert sentence in shown
    assert site.call("verify", site.runs[-1]).code == 0


@pytest.mark.parametrize("server", IMAGES)
def test_a_job_of_ci_passes_and_does_nothing_where_nothing_changed(site: Any, server: str) -> None:
    """The shell of both snippets, as it stands."""
    version = publish(site, "a")
    before = published_trees.state(site.folder / "tree")
    script, given = IMAGES[server]()
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    settings = {**given, **UV_OF_HERE, "PATH": f"{site.folder / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(bash, cwd=site.folder, env=site.environment(settings), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"nothing changed: {version} of lab is published" in done.stdout
    assert published_trees.state(site.folder / "tree") == before
    assert not (site.home / "store/images").exists()
    every = list(ElementTree.parse(site.folder / "report.xml").getroot().iter("testcase"))
    assert every
    assert not [case for case in every if case.find("failure") is not None]


def test_what_a_rollback_left_ends_the_run_at_once(site: Any) -> None:
    publish(site, "a", key="f" * 64)
    left = publish(site, "b")
    spec = load_image(site.folder / "image.yaml")
    name = recipe_resolution.resolve(recipe_resolution.spec_request(spec, site.folder)).recipe.name
    image_publication.roll_back(local_tree(site.folder / "tree"), name, "", "rollback by ada@boot")
    done = build(site)
    assert done.code == 65
    assert f"image_status: {left} was left by a rollback (by ada@boot, " in report(site)["sentence"].replace("tree: ", "")
    assert "bringup image build --again" in done.out
    assert sorted(path.name for path in (site.runs[-1] / "evidence").iterdir()) == ["image_status", "run"]
