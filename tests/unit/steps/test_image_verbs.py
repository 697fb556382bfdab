"""Verbs of a node image: what they refuse, what they publish, and whose boots they take over."""

import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps import timeouts
from steps.clients.environment import read
from steps.clients.releases import release_lease
from steps.contract.canonical import canonical
from steps.contract.run_records import Header, header_key
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass, Verdict, failed, passed
from steps.nodeimage import garbage_collection, image_parts, tasks
from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract import image_manifest as manifests
from steps.nodeimage.contract import resolved_recipe as contract
from steps.nodeimage.contract.boot_tests import Firmware, MachineBoot, NodeReport
from steps.nodeimage.contract.boot_tree import GROUPS, BootGroup, PublishTarget, encode_groups, machine_name
from steps.nodeimage.contract.image_tests import ImageTest, ImageTestOutcome, ImageTestResult, Where
from steps.nodeimage.garbage_collection import Collected, Roots
from steps.nodeimage.publishing import image_publication
from steps.nodeimage.publishing.image_kind import local_tree
from steps.runtime.context import Context
from steps.stages.image_boot import gate as boot_gate
from steps.stages.image_boot.contract import Booted
from steps.stages.image_boot.contract import BootsExpectation as BootsWanted
from steps.stages.image_sandbox.contract import Sandboxed
from tests.unit import small_image
from tests.unit.clients.published import published_trees
from workflows.nodeimage.image_plan import compile_image
from workflows.stages import image_site

RECIPE = small_image.recipe(origin="3f2a, on bringup 1")
KEY = build_keys.image(RECIPE)
GOOD = (ImageTestResult(name="compiles", outcome=ImageTestOutcome.PASS, seconds=0.2),)
MAC = "52:54:00:00:00:01"


@pytest.fixture
def image(desk: Any) -> Any:
    """A run `r1` with the recipe beside its tasks, and the packed image in its store."""
    (desk.root / "tasks" / contract.FILE).write_bytes(contract.encode(RECIPE))
    folder = published_trees.image(desk.root / "store/images/assembled" / KEY, "first", name=RECIPE.name)
    path = folder / manifests.MANIFEST
    path.write_bytes(manifests.encode(msgspec.structs.replace(manifests.decode(path.read_bytes()), key=KEY)))
    (desk.root / "published").mkdir()
    head(desk, "r1")
    return desk


def last(desk: Any, stage: str, name: str) -> Evidence:
    """The record of its last attempt."""
    found: Evidence = desk.store.records("r1", stage, name)[-1]
    return found


def head(desk: Any, run: str, cluster: str = RECIPE.name) -> None:
    made = Header(run=run, engine="local", plan="sha256:p", cluster=cluster, owner="hpc", revision="1", target_uid="")
    desk.store.write(header_key(run), canonical(made))


def record(desk: Any, stage: str, name: str, seen: object, verdict: Verdict, run: str = "r1", digest: str = "sha256:0") -> None:
    made = Evidence(
        run=run, stage=stage, task=name, verb="build", shard=0, attempt=1, input_digest=digest, engine="local",
        started=1.0, finished=2.0, verdict=verdict, observation=msgspec.to_builtins(seen),
    )  # fmt: skip
    desk.store.write_evidence(made, canonical)


def show(desk: Any, key: str = KEY, judged: Verdict | None = None) -> None:
    """Both test stages of run `r1`."""
    boot = MachineBoot(name="bios1", firmware=Firmware.BIOS, mac=MAC, seconds=40.0, ended="report", report=report())
    for stage, name, seen in (
        ("image_sandbox", "tests", Sandboxed(key=key, results=GOOD)),
        ("image_boot", "boot_bios", Booted(key=key, boots=(boot,))),
    ):
        record(desk, stage, name, seen, passed(f"{stage}/x", "good"))
        record(desk, stage, "judge", None, judged or passed(f"{stage}/judge", "all gates passed"))


def report() -> NodeReport:
    return NodeReport(mac=MAC, address="10.0.2.15", kernel="6.1", root="overlay", clock=100.0, uptime=20.0, results=GOOD)


def placed(desk: Any, place: PublishTarget) -> dict[str, Any]:
    """Arguments that name the place, with the file of its groups beside the tasks."""
    (desk.root / "tasks" / GROUPS).write_bytes(encode_groups(place.groups))
    return image_site.publish_arguments(place)


def publication(desk: Any, *groups: BootGroup) -> Task:
    place = published_trees.place(desk.root / "published", *groups)
    told = {"recipe": RECIPE.digest, "gate": "image_publish/tree", **placed(desk, place)}
    wanted = {"groups": [group.name for group in place.groups], "keep": 3}
    return Task(stage="image_publish", name="tree", verb=Verb.PUBLISH, arguments=told, expectations=wanted)


def test_a_tested_image_is_published_with_its_results(image: Any) -> None:
    show(image)
    done = image.run(publication(image))
    assert done.returncode == 0, done.stderr
    kept = last(image, "image_publish", "tree")
    assert kept.verdict.is_pass, kept.verdict.reason
    version = image.root / "published" / RECIPE.name / "versions" / kept.observation["version"]
    tested = json.loads((version / "tests.json").read_text())
    assert sorted(tested["results"]) == ["image_boot.boot_bios", "image_sandbox.tests"]
    told = json.loads((version / "manifest.json").read_text())
    assert tested["origin"] == told["origin"] == kept.observation["origin"] == "3f2a, on bringup 1"
    assert {task: [one["name"] for one in results] for task, results in tested["results"].items()} == {
        task: list(outcomes) for task, outcomes in told["outcomes"].items()
    }
    assert kept.changes == (f"published {RECIPE.name} {version.name}",)
    made = json.loads((version / "provenance.json").read_text())["predicate"]
    assert made["runDetails"]["metadata"]["invocationId"] == kept.run
    assert {
        test.partition(": ")[0] for test in json.loads((version / "test-result.json").read_text())["predicate"]["passedTests"]
    } == {
        "image_boot.boot_bios",
        "image_sandbox.tests",
    }


def test_a_publisher_that_vanished_elsewhere_is_outwaited(image: Any) -> None:
    show(image)
    lock = image.root / "published" / RECIPE.name / "incoming/.lock.1"
    lock.parent.mkdir(parents=True)
    gone = release_lease.Holder(token="feed", host="pod-7", machine="another one", process=1, started="1", since=1.0, by="run r-6")
    lock.write_bytes(canonical(gone))
    then = time.time() - timeouts.PUBLISH_LEASE + 5  # a step that starts later finds it lapsed
    os.utime(lock, (then, then))
    done = image.run(publication(image))
    assert done.returncode == 0, done.stderr
    assert "process 1 on pod-7 (run r-6) publishes into" in done.stdout + done.stderr
    assert last(image, "image_publish", "tree").verdict.is_pass


def test_a_fleet_of_a_thousand_machines_is_published(image: Any) -> None:
    """A task file has no room for them."""
    show(image)
    nodes = small_image.fleet(1_000)
    done = image.run(publication(image, BootGroup(name="gpu", nodes=nodes), BootGroup(name="default")))
    assert done.returncode == 0, done.stderr
    kept = last(image, "image_publish", "tree")
    assert kept.verdict.is_pass, kept.verdict.reason
    entries = {path.name for path in (image.root / "published/boot").iterdir()}
    assert entries == {*(f"{machine_name(mac)}.ipxe" for mac in nodes), "boot.ipxe", "default.ipxe", "gpu.ipxe"}


def test_groups_of_another_plan_are_refused(image: Any) -> None:
    show(image)
    for damaged in (b"[]", b"", None):
        task = publication(image)
        file = image.root / "tasks" / GROUPS
        file.unlink() if damaged is None else file.write_bytes(damaged)
        done = image.run(task)
        assert done.returncode == 64
        assert GROUPS in done.stderr
    assert list((image.root / "published").iterdir()) == []


class Collecting(Context):
    """A task that collects garbage when it first says something: it copies then."""

    found: Collected | None = None

    def say(self, text: str) -> None:
        self.found = self.found or garbage_collection.collect(self.environment.store / "images", Roots(), recent=0, dry_run=False)


def test_what_is_published_is_not_collected(image: Any) -> None:
    show(image)
    context = Collecting(publication(image), read(image.environment))
    assert tasks.publish(context) == 0
    assert context.found is not None
    assert [used.name for used in context.found.in_use] == [KEY]
    assert last(image, "image_publish", "tree").verdict.is_pass


def test_once_more_is_no_change(image: Any) -> None:
    show(image)
    image.run(publication(image))
    before = published_trees.state(image.root / "published")
    assert image.run(publication(image)).returncode == 0
    assert published_trees.state(image.root / "published") == before
    kept = last(image, "image_publish", "tree")
    assert kept.observation["unchanged"]
    assert kept.changes == ()


def test_what_no_stage_has_tested_is_not_published(image: Any) -> None:
    done = image.run(publication(image))
    assert done.returncode == 65
    assert "stage image_sandbox of this run has not passed" in done.stderr
    assert list((image.root / "published").iterdir()) == []


def test_what_failed_is_not_published(image: Any) -> None:
    told = {"seen": "it broke", "expected": "it works", "next_step": "mend it"}
    show(image, judged=failed("image_sandbox/judge", FailureClass.HEALTH, **told))
    assert image.run(publication(image)).returncode == 65
    assert list((image.root / "published").iterdir()) == []


def test_one_boot_of_two_that_did_not_come_up_ends_the_stage_and_is_not_published(image: Any) -> None:
    """The judge of the real plan, over what the gate says of two firmwares: nothing is set aside of an image."""
    plan = compile_image(small_image.spec(image.root), small_image.recipe(), small_image.files())
    judge = next(task for task in plan.tasks if (task.stage, task.name) == ("image_boot", "judge"))
    show(image)
    silent = MachineBoot(name="uefi1", firmware=Firmware.UEFI, mac=MAC, seconds=300.0, ended="time", report=None)
    seen = Booted(key=KEY, boots=(silent,), root_digest="sha256:" + "9" * 64, root_size=9, kernel="6.1")
    verdict = boot_gate.boots(seen, BootsWanted(key=KEY, firmware=Firmware.UEFI, machines=1))
    assert [row.node for row in verdict.nodes] == ["uefi1"], "the gate names the machine"
    record(image, "image_boot", "boot_uefi", seen, verdict)
    image.hosts([])
    done = image.run(judge)
    assert done.returncode == 65, done.stderr
    kept = last(image, "image_boot", "judge").verdict
    assert "uefi1" in kept.reason
    assert image.run(publication(image)).returncode == 65
    assert list((image.root / "published").iterdir()) == []


def test_a_test_that_failed_is_not_published_whatever_the_judge_said(image: Any) -> None:
    show(image)
    told = {"seen": "it broke", "expected": "it works", "next_step": "mend it"}
    broke = failed("image_sandbox/tests", FailureClass.HEALTH, **told)
    record(image, "image_sandbox", "tests", Sandboxed(key=KEY, results=GOOD), broke)
    done = image.run(publication(image))
    assert done.returncode == 65
    assert "image_sandbox.tests: it broke" in done.stderr
    assert list((image.root / "published").iterdir()) == []


def test_tests_of_another_image_prove_nothing(image: Any) -> None:
    show(image, key="f" * 64)
    done = image.run(publication(image))
    assert done.returncode == 65
    assert f"image_sandbox.tests tested image ffffffffffff, this is {KEY[:12]}" in done.stderr


def test_a_root_of_other_bytes_than_were_booted_is_not_published(image: Any) -> None:
    """Two stores, or tools of another version, give other bytes of the same key."""
    show(image)
    boot = MachineBoot(name="bios1", firmware=Firmware.BIOS, mac=MAC, seconds=40.0, ended="report", report=report())
    seen = Booted(key=KEY, boots=(boot,), root_digest="sha256:" + "9" * 64)
    record(image, "image_boot", "boot_uefi", seen, passed("image_boot/x", "good"))
    done = image.run(publication(image))
    assert done.returncode == 65
    assert "image_boot.boot_uefi booted a root of sha256:999999999999" in done.stderr
    assert list((image.root / "published").iterdir()) == []


def building(part: str, **more: Any) -> Task:
    told = {"part": part, "recipe": RECIPE.digest, "gate": "image_boot/boots", **more}
    wanted = {"key": KEY, "firmware": "bios", "machines": 1, "seconds": 60.0}
    return Task(stage="image_boot", name="boot_bios", verb=Verb.BUILD, arguments=told, expectations=wanted)


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        (building("bake"), "part 'bake' of an image is not one of lock, layer, assemble, sandbox, boot"),
        (building("boot", recipe="sha256:9"), "the task was made for sha256:9"),
        (building("boot", oven=1), "unknown field `oven`"),
    ],
    ids=["part", "recipe", "argument"],
)
def test_a_task_that_does_not_fit_is_refused(image: Any, task: Task, sentence: str) -> None:
    done = image.run(task)
    assert done.returncode == 64
    assert sentence in done.stderr
    assert not last(image, "image_boot", "boot_bios").verdict.is_pass


def test_a_recipe_that_cannot_be_read_is_refused(image: Any) -> None:
    (image.root / "tasks" / contract.FILE).write_text('{"name": 7}')
    done = image.run(building("boot"))
    assert done.returncode == 64
    assert "image.recipe.json: " in done.stderr


def test_boots_that_an_earlier_run_showed_of_this_image_are_taken_over(image: Any) -> None:
    case = json.loads((Path(__file__).parents[2] / "gates/image_boot/pass.json").read_text())
    tests = tuple(ImageTest(name=one["name"], incident="", run="true", where=Where.BOOT) for one in case["want"]["tests"])
    recipe = small_image.recipe(tests=tests)
    (image.root / "tasks" / contract.FILE).write_bytes(contract.encode(recipe))
    task = building("boot", recipe=recipe.digest)
    task = msgspec.structs.replace(task, expectations={**task.expectations, "key": build_keys.image(recipe)})
    head(image, "r0")
    seen = {**case["seen"], "key": build_keys.image(recipe)}
    record(image, "image_boot", "boot_bios", seen, passed("image_boot/boots", "good"), run="r0", digest=task.input_digest)
    image.environment["BRINGUP_REUSE"] = "r0"
    done = image.run(task)
    assert done.returncode == 0, done.stderr
    now = last(image, "image_boot", "boot_bios")
    assert now.verdict is not None
    assert now.verdict.is_pass, now.verdict.reason
    assert now.reused == "r0"


def test_boots_of_other_bytes_are_not_taken_over(image: Any) -> None:
    """An image that was packed anew with other bytes boots again: publishing would refuse the earlier boots."""
    task = building("boot")
    head(image, "r0")
    root = image_parts.packed_root(Context(task, read(image.environment)), RECIPE)
    assert root
    here = Context(task, read({**image.environment, "BRINGUP_REUSE": "r0"}))
    for digest, taken in ((root, True), ("sha256:" + "9" * 64, False)):
        seen = Booted(key=KEY, root_digest=digest)
        record(image, "image_boot", "boot_bios", seen, passed("g/x", "good"), run="r0", digest=task.input_digest)
        assert (image_parts.earlier_boot(here, root) is not None) is taken


def test_boots_of_another_image_or_spec_are_not(image: Any, tmp_path: Path) -> None:
    task = building("boot")
    head(image, "r0", cluster="other-nodes")
    record(
        image, "image_boot", "boot_bios", Booted(key=KEY), passed("image_boot/boots", "good"), run="r0", digest=task.input_digest
    )
    head(image, "r2")
    record(image, "image_boot", "boot_bios", Booted(key=KEY), passed("image_boot/boots", "good"), run="r2", digest="sha256:other")
    for run in ("r0", "r2", "r9", "none"):
        here = read({**image.environment, "BRINGUP_REUSE": run})
        assert image_parts.earlier_boot(Context(task, here), "") is None, run


def asking(desk: Any, **more: Any) -> Task:
    place = placed(desk, published_trees.place(desk.root / "published"))
    told = {"recipe": RECIPE.digest, "gate": "image_status/tree", "image": RECIPE.name, "key": KEY, **place, **more}
    wanted = {"key": told["key"]}
    told.setdefault("firmware", ["bios"])
    return Task(stage="image_status", name="tree", verb=Verb.PUBLISH, arguments=told, expectations=wanted)


def image_status(desk: Any, **more: Any) -> tuple[str, Evidence]:
    """The output of a task that asks the tree, and its record."""
    done = desk.run(asking(desk, **more))
    assert done.returncode == 0, done.stderr
    return (desk.root / "out/status").read_text(), last(desk, "image_status", "tree")


def test_a_tree_is_asked_before_anything_is_built(image: Any) -> None:
    said, kept = image_status(image)
    assert (said, kept.verdict.reason) == ("changed", f"to be built: {image.root / 'published'} has no version of it yet")
    show(image)
    image.run(publication(image))
    version = last(image, "image_publish", "tree").observation["version"]
    before = published_trees.state(image.root / "published")
    said, kept = image_status(image)
    assert (said, kept.verdict.reason) == ("current", f"nothing changed: version {version} is this image")
    assert published_trees.state(image.root / "published") == before
    assert kept.changes == ()
    said, kept = image_status(image, key="f" * 64)
    assert (said, kept.verdict.reason) == ("changed", f"to be built: {version} is another image")
    assert image_status(image, firmware=["uefi"])[1].verdict.reason == f"to be built: {version} was not booted by uefi"
    assert image_status(image, signed=True)[1].verdict.reason == f"to be built: {version} is not signed as the spec asks for"


def away(desk: Any) -> Path:
    """The mount of the tree goes, and below it lies an empty folder. Returns where its files are now."""
    there = desk.root / "published"
    there.rename(desk.root / "unmounted")
    there.mkdir()
    return desk.root / "unmounted"


def test_a_tree_whose_mount_is_away_is_not_taken_for_a_new_one(image: Any) -> None:
    show(image)
    image.run(publication(image))
    version = last(image, "image_publish", "tree").observation["version"]
    mounted = away(image)
    for task in (asking(image), asking(image, key="f" * 64), publication(image)):
        done = image.run(task)
        assert (done.returncode, f"but {version} was published there; is it mounted?" in done.stderr) == (65, True), done.stderr
    assert list((image.root / "published").iterdir()) == [], "nothing was written"
    (image.root / "published").rmdir()
    mounted.rename(image.root / "published")
    assert image_status(image)[0] == "current"


def test_a_tree_made_anew_is_begun_on_purpose(image: Any) -> None:
    show(image)
    task = publication(image)
    image.run(task)
    away(image)
    again = msgspec.structs.replace(task, arguments={**task.arguments, "again": True})
    assert image.run(again).returncode == 0
    assert last(image, "image_publish", "tree").observation["version"].startswith("0001-")
    assert image.run(task).returncode == 0, "from then on it is the tree that is known"
    assert image_status(image)[0] == "current"


def test_a_store_learns_of_a_tree_by_asking_it(image: Any, tmp_path: Path) -> None:
    """As one does that is newer than the tree, or was written by an older bringup; and the tree of another place is another."""
    place = published_trees.place(image.root / "published")
    for text in "ab":
        published_trees.published(place, published_trees.image(tmp_path / text, text, name=RECIPE.name))
    assert image_status(image)[1].verdict.reason.endswith("is another image")
    other = msgspec.structs.replace(place, root=str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    assert image_status(image, **placed(image, other))[1].verdict.reason.endswith("has no version of it yet")
    away(image)
    published_trees.published(place, tmp_path / "a")
    done = image.run(asking(image))
    assert "its newest version of lab-nodes is 0001-" in done.stderr, done.stderr
    (file,) = (image.root / "store/trees").glob("*/*.json")
    file.write_text("{")
    assert image_status(image)[1].verdict.reason.endswith("is another image"), "what cannot be read says nothing"


def test_what_a_rollback_left_ends_the_run_before_it_builds(image: Any, tmp_path: Path) -> None:
    other = published_trees.image(tmp_path / "before", "before", name=RECIPE.name, key="e" * 64)
    published_trees.published(published_trees.place(image.root / "published"), other)
    show(image)
    image.run(publication(image))
    image_publication.roll_back(local_tree(image.root / "published"), RECIPE.name, "", "rollback by ada@boot")
    said, kept = image_status(image)
    assert said == "changed"
    assert (kept.verdict.status.value, "was left by a rollback (by ada@boot, " in kept.verdict.reason) == ("fail", True)
    assert "bringup image build --again" in kept.verdict.next_step


def test_a_tree_that_cannot_be_asked_ends_it_as_well(image: Any) -> None:
    gone = placed(image, published_trees.place(image.root / "nowhere"))
    assert image.run(asking(image, **gone)).returncode != 0
    assert not last(image, "image_status", "tree").verdict.is_pass
