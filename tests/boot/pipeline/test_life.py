"""The life of an image by the command line: built, booted, published, unchanged, changed, rolled back; nothing stays behind."""

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from steps.nodeimage.contract.image_manifest import ROOT, decode
from steps.nodeimage.contract.image_tests import ImageTestOutcome
from steps.nodeimage.sandbox import sandbox_tests
from tests.boot.builder.started import descendants, mounts
from tests.boot.pipeline import by_ci, canary, checks, given, killed
from tests.boot.pipeline.given import CANARY, FAILING, LEAKS, MORE, OF_SITE, ONE_BOOT, TOKEN
from tests.boot.pipeline.site import ALONE, ELSEWHERE, LOCK, NAME, PUBLISH, SECONDS, Site, by_ssh, same_image, stood, written
from tests.boot.published import ssh_server
from tests.hosts.hostlab.waiting import until
from workflows.nodeimage import recipe_resolution
from workflows.nodeimage.image_spec import load_image

WAITS = re.compile(r"waits for an approval \(bringup approve (\S+) --as NAME --evidence (sha256:[0-9a-f]{64})\)")


def test_an_image_is_published_that_booted_by_bios_and_uefi(first: Site) -> None:
    suites = ElementTree.parse(first.folder / "report.xml").getroot()
    assert not list(suites.iter("failure"))
    for firmware in ("bios", "uefi"):
        (record,) = first.records("image_boot", f"boot_{firmware}")
        (one,) = record["observation"]["boots"]
        assert record["verdict"]["status"] == "pass"
        assert (one["firmware"], one["report"]["root"], one["ended"]) == (firmware, "overlay", "report")
    bios, uefi = (first.records("image_boot", f"boot_{firmware}")[0] for firmware in ("bios", "uefi"))
    assert max(bios["started"], uefi["started"]) < min(bios["finished"], uefi["finished"]), "side by side"
    version = first.tree / NAME / "versions" / first.current
    made = decode((version / "manifest.json").read_bytes())
    assert [layer.name for layer in made.layers] == ["base"]
    assert len(made.packages) > 100
    assert made.outcomes.keys() == {"image_sandbox.tests", "image_boot.boot_bios", "image_boot.boot_uefi"}
    assert {name for ended in made.outcomes.values() for name in ended} == set(made.tests)
    assert {outcome for ended in made.outcomes.values() for outcome in ended.values()} == {ImageTestOutcome.PASS}
    assert {path.name for path in (version / "boot").iterdir()} == {"default.ipxe", "compute.ipxe"}
    assert "are whole" in first.run("image", "verify", "image.yaml") or "is whole" in first.run("image", "verify", "image.yaml")
    first.run("image", "detach-check", "image.yaml")


def test_the_report_shows_layers_tests_and_boots(first: Site) -> None:
    page, told = first.report(first.runs[0])
    for text in ("<h2>Layers</h2>", "<h2>Tests</h2>", "<h2>Boots</h2>", "root.squashfs", "the first version", first.current):
        assert text in page, text
    assert re.search(r"script \d+\.\d s → kernel", page)
    assert checks.LAYER.findall(page) == [("base", "built")]
    assert [(layer["name"], layer["cached"]) for layer in told["image"]["layers"]] == [("base", False)]
    first.run("verify", str(first.home / "store/runs" / first.runs[0]))


def test_where_nothing_changed_nothing_is_written(first: Site) -> None:
    checks.nothing_changes(first)


@pytest.mark.parametrize("server", by_ci.SERVERS)
def test_the_job_for_ci_passes_where_nothing_changed_and_says_so(server: str, first: Site, tmp_path: Path) -> None:
    before = stood(first.home), stood(first.tree)
    code, said = by_ci.run(server, first, tmp_path / "log")
    assert (code, f"nothing changed: {first.current} of {NAME} is published" in said) == (0, True), said
    (case,) = ElementTree.parse(first.folder / "report.xml").getroot().iter("testcase")
    assert list(case.iter("failure")) == []
    assert (stood(first.home), stood(first.tree)) == before


def test_what_leads_into_the_factory_is_found_in_a_published_tree(first: Site, tmp_path: Path) -> None:
    checks.a_way_into_the_factory_is_told(first, shutil.copytree(first.tree, tmp_path / "tree", symlinks=True))


@pytest.mark.sampled("images published")
def test_an_image_is_published_once_it_is_approved_on_what_its_tests_showed(first: Site, tmp_path: Path) -> None:
    site, log = same_image(first, tmp_path / "site"), tmp_path / "log"
    site.write(approval={"approvers": ["ada@example.org"], "timeout": "10m"})
    build = site.start("image", "build", "--reuse", first.runs[0], log=log)
    try:
        assert until(lambda: build.poll() is not None or WAITS.search(log.read_text()), SECONDS)
        waits = WAITS.search(log.read_text())
        assert waits, log.read_text()[-6000:]
        run, evidence = waits.groups()
        assert list(site.tree.iterdir()) == []
        site.run("approve", run, "--as", "eve@example.org", "--evidence", evidence, code=64)
        site.run("approve", run, "--as", "ada@example.org", "--evidence", "sha256:" + "0" * 64, code=64)
        assert (build.poll(), list(site.tree.iterdir())) == (None, [])
        site.run("approve", run, "--as", "ada@example.org", "--evidence", evidence)
        assert build.wait(SECONDS) == 0, log.read_text()[-6000:]
    finally:
        build.kill()
        build.wait()
    assert site.published() == first.published(first.versions[0])
    (answer,) = json.loads(site.run("report", run, "-o", "json"))["approvals"]
    assert (answer["approver"], answer["decision"], answer["evidence"]) == ("ada@example.org", "pass", evidence)


def test_one_package_more_is_built_on_what_there_is_published_and_rolled_back(first: Site) -> None:
    earlier, before = first.current, written(first.tree / NAME / "versions" / first.current)
    (first.folder / "more.yaml").write_text(yaml.safe_dump(MORE))
    (first.folder / "token").write_bytes(CANARY + b"\n")
    first.write(recipe="more.yaml", lock="more.lock.json", boot=ONE_BOOT, secrets=TOKEN)
    assert "site 1" in first.lock()
    commit = first.commit()
    first.run("image", "build")
    base, site = (first.records("image_layers", f"layer_{name}")[0]["observation"] for name in ("base", "site"))
    assert base["cached"]
    assert not site.get("cached")
    assert site["size"] < 5e6
    later = first.current
    assert later != earlier
    (record,) = first.records("image_publish", "tree")
    assert [name.partition("=")[0] for name in record["observation"]["packages_added"]] == ["less"]
    checks.is_told_of(first, commit, earlier, record["observation"]["packages_added"])
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


@pytest.mark.sampled("images published")
def test_an_image_that_fails_a_boot_test_is_not_published_and_the_report_says_why(first: Site, tmp_path: Path) -> None:
    site = same_image(first, tmp_path / "site")
    (site.folder / "failing.yaml").write_text(yaml.safe_dump(given.failing()))
    site.write(recipe="failing.yaml", boot=ONE_BOOT)
    site.run("image", "build", "--junit", "report.xml", code=65)
    assert list(site.tree.iterdir()) == []
    assert site.records("image_publish", "tree") == []
    (record,) = site.records("image_assemble", "outputs")
    assert (site.images / "assembled" / record["observation"]["key"] / ROOT).stat().st_nlink > 1, (
        "that of the first, not packed anew"
    )
    checks.a_failed_boot_test_is_told(site, FAILING["name"], "no rack is known of this node")


def test_a_build_secret_is_in_nothing_that_the_run_left(first: Site) -> None:
    """Layers, packed images, initrds, archives, the published tree, evidence, logs, report, journal, and what is packed in them."""
    search = canary.Search([CANARY])
    earlier, later = (f"published/{NAME}/versions/{name}" for name in first.versions)
    assert "/opt/length" in first.run("image", "diff", earlier, later), "the secret was used"
    assert canary.left(first.home, CANARY) == []
    assert list(search.below(first.tree)) == []
    print(f"{search.files} files, opened {search.packed}")
    assert {"squashfs", "cpio", "tar", "zstd"} <= search.packed.keys()


@pytest.mark.sampled_rows(1)
@pytest.mark.parametrize("leak", list(LEAKS))
def test_a_build_that_would_leak_its_secret_fails_and_leaves_none(leak: str, first: Site, tmp_path: Path) -> None:
    site = Site(tmp_path, first.images / "archive", recipe="leak.yaml", secrets=TOKEN)
    (site.images / "layers").mkdir()
    for layer in (path for path in first.images.glob("layers/*") if len(path.name) == 64):
        (site.images / "layers" / layer.name).symlink_to(layer)
    layers = [{"name": leak, "commands": [{"run": LEAKS[leak], "secrets": ["token"]}]}]
    (tmp_path / "leak.yaml").write_text(yaml.safe_dump({**MORE, "name": "leak", "layers": layers}))
    (tmp_path / "token").write_bytes(CANARY + b"\n")
    site.lock()
    said = site.run("image", "build", code=65)
    assert CANARY.decode() not in said
    assert canary.left(site.home, CANARY) == []
    assert not list(site.tree.rglob("*"))


@pytest.mark.sampled("images published")
def test_it_is_published_listed_verified_and_rolled_back_by_ssh(first: Site, tmp_path: Path) -> None:
    site, home = same_image(first, tmp_path / "site"), tmp_path / "ssh"
    home.mkdir()
    with ssh_server.running(home) as server:
        publish = by_ssh(site, home, server.port)
        site.write(publish=publish)
        site.run("image", "build", "--reuse", first.runs[0])
        earlier = site.current
        assert site.published() == first.published(first.versions[0])
        checks.nothing_changes(site)
        checks.images_of_a_spec_are_kept(site)
        site.write(publish={**publish, "groups": {**PUBLISH["groups"], "default": {"kernel_arguments": ["console=ttyS0"]}}})
        site.run("image", "build", "--reuse", first.runs[0])
        later = site.current
        assert later != earlier
        parts = decode((site.tree / NAME / "current/manifest.json").read_bytes()).parts
        checks.a_node_reports(site, "node001", "52:54:00:00:00:01", next(one.digest for one in parts if one.name == ROOT))
        checks.a_node_reports(site, "node002", "52:54:00:00:00:02", "sha256:" + "0" * 64)
        rows = json.loads(site.run("image", "nodes", "-o", "json"))
        assert {row["node"]: row["stand"] for row in rows} == {"node001": "current", "node002": "unknown"}
        assert [row["version"] for row in json.loads(site.run("image", "list", "-o", "json"))] == [later, earlier]
        site.run("image", "rollback")
        assert site.current == earlier
        assert "are whole" in site.run("image", "verify")
        checks.a_wrong_signature_is_told(site, later)
        said = json.loads(site.run("image", "detach-check", "-o", "json", code=65))
        assert (said["problems"], len(said["unread"])) == ([], 1), "packed roots of another machine are not read"
        site.run("image", "detach-check", "--unread-ok")
        (site.tree / NAME / "versions" / later / "vmlinuz").unlink()
        assert "vmlinuz" in site.run("image", "verify", code=65)
    private = [max((home / name).read_bytes().splitlines()[3:-1], key=len) for name in ("key", "stranger")]
    assert canary.left(site.home, *private) == [], "neither key lies in what the runs left"


@pytest.mark.sampled("images published")
def test_compute_is_built_and_passes_its_tests(first: Site, tmp_path: Path) -> None:
    site = Site(tmp_path / "site", first.images / "archive", recipe="compute")
    (site.images / "layers").symlink_to(first.images / "layers")
    site.lock()
    site.run("image", "build", "--until", "image_sandbox")
    (record,) = site.records("image_sandbox", "tests")
    named = {one["name"]: one["outcome"] for one in record["observation"]["results"]}
    assert {"compiler_runs", "mpi_compiles_and_runs", "modules_load"} <= named.keys()
    assert set(named.values()) == {"pass"}
    built, below = (site.records("image_layers", f"layer_{name}")[0]["observation"] for name in ("hpc", "base"))
    again = Site(tmp_path / "an other/x", first.images / "archive", recipe="site", variables=OF_SITE)
    again.lock()
    again.environment |= {**ELSEWHERE, "TMPDIR": str(tmp_path / "an other")}
    again.within = ALONE
    (again.images / "layers").mkdir()
    (again.images / "layers" / below["key"]).symlink_to(first.images / "layers" / below["key"])
    again.run("image", "build", "--until", "image_layers")
    other, top = (again.records("image_layers", f"layer_{name}")[0]["observation"] for name in ("hpc", "site"))
    assert not other.get("cached")
    assert (other["key"], other["digest"]) == (built["key"], built["digest"])
    assert [name.partition("=")[0] for name in top["installed"] if name not in other["installed"]]
    tree = again.images / "layers" / top["key"] / "tree"
    assert (tree / "etc/systemd/timesyncd.conf.d/site.conf").read_text() == f"[Time]\nNTP={OF_SITE['time_server']}\n"
    assert (tree / "home/admin/.ssh/authorized_keys").read_text().splitlines() == [OF_SITE["admin_key"]]
    recipe = recipe_resolution.resolve(recipe_resolution.spec_request(load_image(again.folder / "image.yaml"), again.folder)).recipe
    seen = sandbox_tests.run(again.images, recipe, print)
    assert {one.name for one in seen.results} > named.keys()
    assert [one for one in seen.results if one.outcome is not ImageTestOutcome.PASS] == []


@pytest.mark.long
@pytest.mark.sampled("images published")
def test_the_example_of_a_sites_own_layer_boots(first: Site, tmp_path: Path) -> None:
    boot = {**ONE_BOOT, "memory_mib": 2048}
    site = Site(tmp_path / "site", first.images / "archive", recipe="site", variables=OF_SITE, boot=boot)
    (site.images / "layers").symlink_to(first.images / "layers")
    site.lock()
    site.run("image", "build", "--until", "image_boot")
    (record,) = site.records("image_boot", "boot_bios")
    (one,) = record["observation"]["boots"]
    named = {result["name"]: result["outcome"] for result in one["report"]["results"]}
    assert (record["verdict"]["status"], named["ssh_answers"]) == ("pass", "pass")


@pytest.mark.sampled("kills of image builds")
@pytest.mark.parametrize("wanted", [6, pytest.param(30, marks=pytest.mark.long)])
def test_killed_at_random_points_it_ends_in_the_same_bytes(first: Site, tmp_path: Path, wanted: int) -> None:
    """Boots are those of the first image, which is the same to the byte: the runs here reuse them, as a person would."""
    luck, number = killed.chance(), 0
    kills: list[str] = []
    while len(kills) < wanted or set(kills) != set(killed.STAGES):
        assert number <= wanted, f"{len(kills)} kills in {number} builds: {', '.join(kills)}"
        folder, log = tmp_path / f"site{number}", tmp_path / f"log{number}"
        site = Site(folder, first.images / "archive")
        shutil.copy(first.folder / LOCK, folder)
        shutil.copytree(first.home / "store/runs" / first.runs[0], site.home / "store/runs" / first.runs[0])
        stages = killed.places(number, wanted - len(kills), kills)
        kills += killed.disturbed(site, first.runs[0], luck, stages, log)
        number += 1
        assert site.published() == first.published(first.versions[0])
        killed.is_whole(site)
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


@pytest.mark.long
def test_killed_while_a_machine_boots_it_boots_again_and_ends_in_the_same_bytes(first: Site, tmp_path: Path) -> None:
    site = Site(tmp_path / "site", first.images / "archive", boot=ONE_BOOT)
    shutil.copy(first.folder / LOCK, site.folder)
    killed.in_a_boot(site, killed.chance(), tmp_path / "log")
    whole = first.published(first.versions[0])
    differing = [name for name, digest in site.published().items() if digest != whole[name]]
    assert differing == ["manifest.json"], "that one names the boots, of which there was one here and two there"
    killed.is_whole(site)
    gone = until(lambda: not [pid for pid in descendants(1) if killed.works_in(pid, site.folder)], 30)
    assert gone, "a process lives on"
    assert mounts(site.folder) == []


def test_a_collection_leaves_all_that_published_versions_are_made_of(first: Site) -> None:
    checks.garbage_is_what_no_version_is_made_of(first)


def test_nothing_stays_behind(first: Site) -> None:
    assert mounts(first.folder) == []
    assert [pid for pid in descendants(1) if killed.works_in(pid, first.folder)] == [], "`leftovers` counts for the whole tier"
    left = [path.name for path in first.images.rglob("*.part*")] + [path.name for path in first.images.glob("*/.*new*")]
    assert left == []
