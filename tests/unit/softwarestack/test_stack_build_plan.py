"""The plan of a stack build: what is built, what travels beside the tasks, and what is refused before a run."""

import base64
import random
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.contract import task as tasks
from steps.contract.detachment import NO_FACTORY
from steps.softwarestack.contract import stack_input
from steps.softwarestack.contract.stack_input import StackBatch, StackInputError
from tests.unit import small_stack
from tests.unit.factories.conftest import STARTER
from tests.unit.small_stack import hash_of
from workflows import stack as pipeline
from workflows.plan.model import Plan, PlanError
from workflows.render.bundle import render
from workflows.softwarestack import stack_resolution
from workflows.softwarestack.build_graph import LockError
from workflows.softwarestack.stack_build_plan import compile_stack
from workflows.spec import SpecErrors
from workflows.stages import STACK_ORDER

SEED = 20261129


def plan(folder: Path, cached: tuple[str, ...] = (), until: str = "", **more: Any) -> Plan:
    spec, resolved = small_stack.resolved(folder, **more)
    return compile_stack(spec, resolved, resolved.planned([hash_of(name) for name in cached]), until)


def stack_of(planned: Plan) -> stack_input.StackInput:
    return stack_input.decode(planned.archives[stack_input.FILE])


def test_every_stage_is_planned_and_every_task_names_the_stack_beside_it(tmp_path: Path) -> None:
    planned = plan(tmp_path)
    assert tuple(stage.id for stage in planned.stages) == STACK_ORDER
    stack = stack_of(planned)
    named = {entry.arguments["stack"] for entry in planned.tasks if "stack" in entry.arguments}
    assert named == {stack.digest}
    assert {package.name for package in stack.packages} == set(small_stack.PACKAGES)
    files = stack_input.decode_files(planned.archives[stack_input.FILES])
    assert set(files.values()) == {small_stack.easyconfig(name) for name in small_stack.PACKAGES if name != "GCC"}
    assert all(len(data) <= tasks.MAX_BYTES for data in planned.task_files.values())
    back = planned.stages[-1].rollback
    assert back == "if its version is current: bringup stack rollback --tree /srv/stacks --stack lab-tools"


def test_a_stack_knows_the_names_and_addresses_of_the_factory_that_its_spec_names(tmp_path: Path) -> None:
    with pytest.raises(SpecErrors, match=r"cannot read .*factory\.yaml"):
        plan(tmp_path, factory="factory.yaml")
    (tmp_path / "factory.yaml").write_text(STARTER.read_text())
    plain, checked = stack_of(plan(tmp_path)), stack_of(plan(tmp_path, factory="factory.yaml"))
    assert plain.factory == NO_FACTORY
    assert {"factory01", "factory04", "10.20.0.11", "registry.registry.svc"} < set(checked.factory.hosts)
    assert checked.key == plain.key, "a published version is the same one"
    assert checked.digest != plain.digest


def test_builds_wait_for_what_they_need_and_cached_ones_are_left_out(tmp_path: Path) -> None:
    (build,) = (step for step in plan(tmp_path).stages[0].steps if step.graph)
    stack = stack_of(plan(tmp_path))
    shards = {stack.by_hash[stack.batches[entry.shard].packages[0]].name: entry for entry in build.graph}
    assert set(shards) == {"zlib", "libpng", "lz4"}
    assert shards["libpng"].after == (shards["zlib"].name,)
    (check,) = plan(tmp_path).stages[0].steps[-1].task.arguments["checks"]
    assert check["records"] == len(stack.batches)

    later = stack_of(plan(tmp_path, cached=("zlib",)))
    assert {later.by_hash[batch.packages[0]].name for batch in later.batches} == {"libpng", "lz4"}
    assert later.packages == stack.packages
    assert later.key == stack.key


def test_the_largest_build_decides_the_memory_limit_of_all(tmp_path: Path) -> None:
    spec, resolved = small_stack.resolved(tmp_path)
    packages = [msgspec.structs.replace(package, memory_mib=32 << 10) for package in resolved.stack.packages]
    large = replace(resolved, stack=msgspec.structs.replace(resolved.stack, packages=tuple(packages)))
    limits = []
    for stack in (resolved, large):
        planned = compile_stack(spec, stack, stack.planned(()))
        templates = render(planned, pipeline.build).template["spec"]["templates"]
        (package,) = (entry["container"] for entry in templates if entry["name"] == "stack-build-package")
        limits.append((package["resources"]["requests"]["memory"], package["resources"]["limits"]["memory"]))
    assert limits == [("1024Mi", "8192Mi"), ("1024Mi", "32768Mi")]


def test_a_stack_whose_packages_are_all_cached_is_only_installed_and_tested(tmp_path: Path) -> None:
    everything = tuple(small_stack.PACKAGES)
    planned = plan(tmp_path, cached=everything)
    assert [stage.id for stage in planned.stages] == list(STACK_ORDER[1:])
    with pytest.raises(PlanError, match="there is nothing to build"):
        plan(tmp_path, cached=everything, until="stack_build")
    with pytest.raises(PlanError, match="'stack_view' is no stage of a stack"):
        plan(tmp_path, until="stack_view")


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = plan(tmp_path / "a"), plan(tmp_path / "b")
    assert (first.digest, first.inputs, first.task_files) == (second.digest, second.inputs, second.task_files)


def test_secrets_reach_only_the_tasks_that_need_them(tmp_path: Path) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000"
    publish = {"root": "/srv/stacks", "sign": {"file": "./sign"}, "signers": [key]}
    signing = {"sign": {"file": "./package"}, "signers": [key]}
    planned = plan(tmp_path, publish=publish, package_signing=signing, approval={"approvers": ["ada@example.org"]})
    assert [file.name for file in planned.secrets] == ["package_sign_key", "stack_sign_key"]
    texts = {entry.name: msgspec.json.encode(entry).decode() for entry in planned.tasks}
    assert [name for name, text in texts.items() if '"package_sign_key"' in text] == ["package"]
    assert [name for name, text in texts.items() if '"stack_sign_key"' in text] == ["version"]
    assert planned.stages[-1].approval is not None


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"target": "zen4"}, "it was made for target x86_64_v3, and the spec says zen4"),
        ({"reframe": ["tests/none.py"]}, "tests/none.py: cannot be read"),
        ({"lock": "none.json"}, "none.json: the lock of this stack is not there"),
    ],
    ids=["target", "reframe", "lock"],
)
def test_a_lock_that_does_not_fit_is_refused(tmp_path: Path, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LockError, match=sentence):
        plan(tmp_path, **more)


EASYCONFIGS = tuple(f"easyconfigs/{name}-1.0.eb" for name in ("libpng", "lz4", "zlib"))


@pytest.mark.parametrize(
    ("easyconfigs", "sentence"),
    [
        (EASYCONFIGS, r"made without easyconfigs/zlib-1\.0\.eb, which the spec names"),
        (EASYCONFIGS[:1], r"made for lz4-1\.0\.eb, which the spec does not name any more"),
        ((*EASYCONFIGS[:2], "easyconfigs/none.eb"), r"none\.eb: cannot be read: No such file"),
    ],
    ids=["added", "removed", "missing"],
)
def test_a_lock_for_other_easyconfigs_than_the_spec_names_is_refused(tmp_path: Path, easyconfigs: Any, sentence: str) -> None:
    with pytest.raises(LockError, match=sentence):
        plan(tmp_path, easybuild={"release": "5.4.1", "easyconfigs": list(easyconfigs)})


def test_an_easyconfig_that_was_edited_after_the_lock_is_refused(tmp_path: Path) -> None:
    spec, _ = small_stack.resolved(tmp_path)
    (tmp_path / "easyconfigs/zlib-1.0.eb").write_text("name = 'other'\n")
    with pytest.raises(LockError, match=r"zlib-1\.0\.eb: it is another one than the lock names"):
        stack_resolution.resolve(spec, tmp_path)


def test_large_stacks_are_packed_and_larger_ones_refused_with_a_sentence(tmp_path: Path) -> None:
    spec, resolved = small_stack.resolved(tmp_path)
    stack = resolved.stack
    print(f"seed {SEED}")
    noise = random.Random(SEED)
    many = tuple(msgspec.structs.replace(stack.packages[1], hash=f"{noise.getrandbits(160):040x}") for _ in range(2000))
    large = msgspec.structs.replace(stack, packages=(*stack.packages, *many))
    packed = stack_input.encode(large)
    assert len(packed) < stack_input.MAX_BYTES < len(msgspec.json.encode(large))
    assert stack_input.decode(packed).digest == large.digest
    files = (noise.randbytes(stack_input.MAX_BYTES),)
    with pytest.raises(PlanError, match="split it into several stacks"):
        compile_stack(spec, stack_resolution.ResolvedStack(stack=large, graph=resolved.graph, files=files), resolved.planned(()))


@pytest.mark.parametrize("place", ["name", "root", "hash", "easyconfig", "needs", "batch", "bomb", "cut"])
def test_a_hostile_stack_beside_a_task_is_refused(tmp_path: Path, place: str) -> None:
    _, resolved = small_stack.resolved(tmp_path)
    stack, replace = resolved.stack, msgspec.structs.replace
    package = stack.packages[1]
    hostile = {
        "name": lambda: replace(stack, name="../x"),
        "root": lambda: replace(stack, root="/srv/$(id)"),
        "hash": lambda: replace(stack, packages=(replace(package, hash="../../etc"),)),
        "easyconfig": lambda: replace(stack, packages=(stack.packages[0], replace(package, easyconfig="../../x.eb"))),
        "needs": lambda: replace(stack, packages=stack.packages[::-1]),
        "batch": lambda: replace(stack, batches=(StackBatch(packages=("f" * 32,)),)),
    }
    if place == "bomb":
        bomb = base64.b64encode(zlib.compress(bytes(stack_input.LARGEST_BYTES + 1), 9)).decode()
        data = msgspec.json.encode({"zlib": bomb})
    elif place == "cut":
        data = stack_input.encode(stack)[:-20]
    else:
        data = stack_input.encode(hostile[place]())
    with pytest.raises(StackInputError):
        stack_input.decode(data)
