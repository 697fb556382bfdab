"""`bringup image build RECIPE` where that was built and tested already: it says so, writes nothing and boots nothing again."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.runs import evidence
from steps.nodeimage.contract import build_keys, image_manifest
from tests.unit.clients.published.published_trees import image
from workflows.app.images import image_pipeline, image_specs, shipped_recipes
from workflows.app.run_options import Wish

RUN = "base-20261126-101500-3f2a"
Leave = Callable[..., Path]


@pytest.fixture
def built(machine: Any, monkeypatch: pytest.MonkeyPatch) -> Leave:
    """Leaves what a build of the shipped `base` by its name leaves, as far as the next build looks: the folder of the image."""
    monkeypatch.setenv("BRINGUP_HOME", str(machine.home))

    def left(name: str = RUN, status: str = "pass", plan: str = "") -> Path:
        path, loaded = image_pipeline.IMAGE.read(str(shipped_recipes.of_recipe("base")))
        found = image_specs.check(path, loaded, None)
        wish = Wish(until="image_boot")
        planned = image_pipeline.of_image(path, loaded, found).plan(path, loaded, wish)
        store = Store(machine.home / "store")
        header = run_records.Header(
            run=name, engine="local", plan=plan or planned.digest, cluster="base", owner="hpc", revision="1"
        )
        store.write(run_records.header_key(name), msgspec.json.encode(header))
        told = {"status": status, "gate": "g/g", "reason": "so", "failure_class": None if status == "pass" else "runtime"}
        record = {"run": name, "stage": "image_boot", "task": "judge", "verb": "judge", "input_digest": "d", "engine": "local"}
        times = {"started": 1.0, "finished": 2.0, "attempt": 1, "shard": 0, "verdict": told}
        store.write(evidence.key(name, "image_boot", "judge", 0, 1), msgspec.json.encode(record | times))
        (machine.home / "engine" / name).mkdir(parents=True)
        return image(machine.home / "store/images/assembled" / build_keys.image(found.recipe), "base", name="base")

    return left


def starts(machine: Any, *words: str) -> None:
    """A run begins, which is ended then."""
    started = machine.start("image", "build", "base", *words)
    started.say(" stages, plan sha256:")
    started.send(signal.SIGINT)
    started.end()


def test_where_it_was_tested_already_that_is_said_and_nothing_is_written(machine: Any, built: Leave) -> None:
    folder = built()
    before = {path: path.stat().st_mtime_ns for path in machine.home.rglob("*")}
    done = machine.call("image", "build", "base", "--junit", "report.xml")
    assert done.code == 0, done.err
    assert done.out.startswith(f"nothing changed: base was built from this recipe and lock, and passed its tests in run {RUN}\n")
    assert f"image    {folder}\n" in done.out
    assert {path: path.stat().st_mtime_ns for path in machine.home.rglob("*")} == before
    (case,) = ElementTree.parse(machine.folder / "report.xml").getroot().iter("testcase")
    assert (case.get("name"), list(case)) == (f"base passed its tests in run {RUN}: nothing changed", [])


def test_where_it_is_asked_for_again_it_is_tested_again(machine: Any, built: Leave) -> None:
    built()
    starts(machine, "--again")


@pytest.mark.parametrize("why", ["it failed", "another plan", "the image is gone", "the image is cut"])
def test_what_was_not_tested_whole_is_tested(machine: Any, built: Leave, why: str) -> None:
    folder = built(status="fail" if why == "it failed" else "pass", plan="sha256:0" if why == "another plan" else "")
    if why == "the image is gone":
        (folder / image_manifest.MANIFEST).unlink()
    if why == "the image is cut":
        (folder / image_manifest.ROOT).write_bytes(b"")
    starts(machine)


def test_a_later_run_that_failed_hides_none_that_passed(machine: Any, built: Leave) -> None:
    built()
    built("base-20261126-111500-0000", status="fail")
    assert f"in run {RUN}\n" in machine.call("image", "build", "base").out
