"""`bringup stack plan`: tables for people, data for scripts, one sentence for unusable files."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Machine
from tests.unit.softwarestack.small_locks import DATA, chain, lock

SPEC = """\
apiVersion: bringup/v1
kind: Stack
name: tools
owner: hpc@example.org
revision: "1"
spack: {url: https://github.com/spack/spack.git, revision: v0.23.0, environment: spack.yaml}
builder: registry.example.org/builder:2026.11
cache: /srv/buildcache
publish: {root: /srv/stacks}
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "spack.lock").write_bytes(lock(chain(), ["app"]))
    return Machine(tmp_path)


def test_a_plan_is_a_table_and_sentences(machine: Machine) -> None:
    done = machine.call("stack", "plan", "spack.lock", "--slots", "2")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].split() == ["PACKAGE", "HASH", "COMPILER", "CLASS", "TIME", "DEPTH", "PATH"]
    assert [line.split("@")[0] for line in lines[1:5]] == ["base", "lib", "tool", "app"]
    assert lines[5] == "4 builds of 5 packages: 0 are in the cache, 1 come with the system, 0 are not needed"
    assert lines[6] == "depth 3, critical path 6 min: base → lib → app"
    assert lines[7].startswith("2 at a time: 6 min, 1.00 × the least possible")


def test_measured_durations_and_the_cache_change_the_plan(machine: Machine) -> None:
    (machine.folder / "times.json").write_text(json.dumps({"app": 1000, "base": 10}))
    (machine.folder / "cache").mkdir()
    done = machine.call("stack", "plan", "spack.lock", "--durations", "times.json", "--cache", "cache", "-o", "json")
    plan = json.loads(done.out)
    assert (plan["builds"], plan["measured"], plan["critical_path_s"]) == (4, 2, 1000 + 120 + 10 + 3 * 6)
    assert [build["package"] for build in plan["order"]] == ["base@1.0", "lib@1.0", "tool@1.0", "app@1.0"]


def test_the_lock_beside_a_spec_is_planned(machine: Machine) -> None:
    (machine.folder / "stack.yaml").write_text(SPEC)
    assert json.loads(machine.call("stack", "plan", "-o", "json").out)["builds"] == 4


def test_trees_and_graphs_have_every_package(machine: Machine) -> None:
    tree = machine.call("stack", "plan", "spack.lock", "-o", "tree").out
    assert [line.split("@")[0] for line in tree.splitlines()] == ["app", "  lib", "    base", "      libc", "  tool", "    base"]
    assert tree.splitlines()[-1].endswith(" …")
    dot = machine.call("stack", "plan", "spack.lock", "-o", "dot").out
    assert (dot.count("label="), dot.count("->")) == (4, 4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.lock"], "none.lock: cannot be read: No such file or directory"),
        (["spec.yaml"], "spec.yaml: its lock none.lock is not there"),
        (["spack.lock", "--cache", "none"], "none: it is no folder"),
        (["spack.lock", "--durations", "list.json"], "list.json: it is no JSON object"),
        (["spack.lock", "--durations", "words.json"], "words.json: the duration of 'app' is no number of seconds"),
        (["spack.lock", "--slots", "0"], "Invalid value for '--slots': Input should be greater than or equal to 1"),
    ],
    ids=["missing", "no-lock", "no-cache", "list", "words", "no-slots"],
)
def test_unusable_files_are_one_sentence_and_a_hint(machine: Machine, arguments: list[str], sentence: str) -> None:
    (machine.folder / "spec.yaml").write_text(SPEC + "lock: none.lock\n")
    (machine.folder / "list.json").write_text("[]")
    (machine.folder / "words.json").write_text('{"app": "long"}')
    done = machine.call("stack", "plan", *arguments)
    assert (done.code, done.out) == (64, "")
    assert sentence in done.err
    assert "hint: " in done.err


def test_a_published_lock_is_planned_in_each_form(machine: Machine) -> None:
    for form in ("table", "json", "yaml", "tree", "dot"):
        done = machine.call("stack", "plan", DATA / "v6_213specs_cuda_attention.spack.lock", "-o", form)
        assert (done.code, done.err) == (0, "")
