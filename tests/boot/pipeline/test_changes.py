"""Builds after a change of a recipe, and messages of builds that end early: by the command line, on a base that exists."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from steps.contract.exit import ExitCode
from tests.boot.builder import shipped, vendor
from tests.boot.builder.started import mounts
from tests.boot.pipeline import by_ci, changing
from tests.boot.pipeline.changing import CHANGES, FAT, HANGS, LAYERS, on_base, one
from tests.boot.pipeline.site import BRINGUP, LOCK, SECONDS, Site
from tests.hosts.hostlab.waiting import until


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has base's layer."""
    return shipped.store(tmp_path_factory.getbasetemp(), "base")[0]


def failures(site: Site) -> list[str]:
    """Return the failure messages of report.xml, the file that CI servers read."""
    return [one.get("message", "") for one in ElementTree.parse(site.folder / "report.xml").getroot().iter("failure")]


@pytest.mark.sampled("images published")
def test_a_job_that_is_superseded_ends_and_one_over_its_budget_says_its_figures(shared: Path, tmp_path: Path) -> None:
    """A push while the build of the one before it goes on."""
    site, log = on_base(shared, tmp_path / "site", one(HANGS)), tmp_path / "older"
    with by_ci.start("gitlab", site, log) as older:
        try:
            begun = "layers/.*.part*/tree/opt/begun"
            assert until(lambda: older.poll() is not None or any(site.images.glob(begun)), SECONDS), log.read_text()
            changing.write(site, one(FAT))
            code, said = by_ci.run("github", site, tmp_path / "newer")
            assert older.wait(SECONDS) == ExitCode.GATE_FAILED, log.read_text()
        finally:
            older.kill()
    assert "is superseded, and is being cancelled" in said
    assert "(a newer build)" in log.read_text(), "whoever reads its log learns why it ended"
    assert code == ExitCode.GATE_FAILED, said
    (failure,) = set(failures(site))  # of the step, and of the gate of the stage
    assert "layer only adds 3 MiB" in failure
    assert "at most 1 MiB" in failure
    assert "layer only adds 3 MiB" in said
    assert mounts(site.folder) == []
    assert not list(site.tree.rglob("*"))


@pytest.mark.sampled("images published")
@pytest.mark.parametrize(
    ("server", "more", "code", "sentence"),
    [
        ("gitlab", {"recipe": "none.yaml"}, ExitCode.USAGE, "none.yaml"),
        ("github", {"mirror": "http://127.0.0.1:9/debian"}, ExitCode.TEMPORARY, "127.0.0.1:9"),
    ],
)
def test_a_job_ends_with_the_code_that_its_table_says(
    server: str, more: dict[str, str], code: int, sentence: str, shared: Path, tmp_path: Path
) -> None:
    site = on_base(shared, tmp_path / "site", one("true"))
    (site.images / "archive").unlink()
    site.write(**{"recipe": "ours.yaml", **more})
    ended, said = by_ci.run(server, site, tmp_path / "log")
    assert ended == code, said
    assert sentence in said
    assert not list(site.tree.rglob("*"))


@pytest.mark.long
def test_a_layer_is_built_anew_where_it_or_one_below_it_changed(shared: Path, tmp_path: Path) -> None:
    """Each change alone; tests, budgets and kernel arguments are no part of a layer."""
    site = on_base(shared, tmp_path / "site", LAYERS)
    site.run("image", "build", "--until", "image_layers")
    found = {}
    for name, (change, _) in CHANGES.items():
        changing.write(site, changing.changed(change))
        site.lock()
        site.run("image", "build", "--until", "image_layers")
        found[name] = changing.built(site)
    assert found == {name: wanted for name, (_, wanted) in CHANGES.items()}


@pytest.mark.long
def test_a_release_with_another_builder_builds_every_layer_anew(shared: Path, tmp_path: Path) -> None:
    layers = [{"name": name, "commands": [{"run": f"echo of every release > /opt/{name}"}]} for name in ("low", "high")]
    site = on_base(shared, tmp_path / "site", layers)
    site.run("image", "build", "--until", "image_layers")
    assert changing.built(site) == {"low", "high"}
    site.program = changing.with_another_builder(tmp_path / "release")
    site.run("image", "build", "--until", "image_layers")
    assert changing.built(site) == {"base", "low", "high"}
    site.program = BRINGUP
    site.run("image", "build", "--until", "image_layers")
    assert changing.built(site) == set(), "what the release before made is there for it still"


def tool(version: str) -> vendor.Stand:
    """A package of a site's own."""
    files = {"/usr/bin/tool": f"#!/bin/sh\necho {version}\n", "/usr/share/tool/same": "as before\n"}
    return vendor.Stand(name="site-tool", version=version, files=files, modes={"/usr/bin/tool": "0755"})


@pytest.mark.long
def test_a_package_of_a_newer_version_is_told_and_rebuilds_its_layer_and_those_above(shared: Path, tmp_path: Path) -> None:
    with vendor.repository(tmp_path / "vendor", (tool("1.0"),)) as repository:
        source = {"url": repository.url, "suite": "/", "keyring": str(repository.key)}
        layers = [
            {"name": "below", "commands": [{"run": "echo 1 > /opt/below"}]},
            {"name": "tools", "sources": [source], "packages": ["site-tool"]},
            {"name": "above", "commands": [{"run": "tool > /opt/above"}]},
        ]
        site = on_base(shared, tmp_path / "site", layers)
        before = assembled(site)
        locked = (site.folder / LOCK).read_bytes()
        repository.publish((tool("2.0"),))
        told = json.loads(site.run("image", "update", "image.yaml", "-o", "json"))
        assert (site.folder / LOCK).read_bytes() == locked
        assert [(one["package"], one["before"], one["after"]) for one in told["changes"]] == [("site-tool", "1.0", "2.0")]
        site.run("image", "update", "image.yaml", "--write")
        assert (site.folder / LOCK).read_bytes() != locked
        after = assembled(site)
    assert changing.built(site) == {"tools", "above"}
    found = json.loads(site.run("image", "diff", str(before), str(after), "-o", "json"))
    assert [(one["name"], one["before"], one["after"], one["layer"]) for one in found["packages"]] == [
        ("site-tool", "1.0", "2.0", "tools")
    ]
    assert {one["name"] for one in found["layers"]} == {"tools", "above"}
    files = {one["path"]: one.get("package", "") for one in found["root"]}
    assert (files["usr/bin/tool"], files["opt/above"]) == ("site-tool", "")
    assert "usr/share/tool/same" not in files


def assembled(site: Site) -> Path:
    """Build an image, and where it lies."""
    site.run("image", "build", "--until", "image_assemble")
    return site.images / "assembled" / str(site.records("image_assemble", "outputs")[-1]["observation"]["key"])
