"""Stacks of EasyBuild are locked by the real EasyBuild; locks are read back, and hostile ones are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.softwarestack.builds import builder_cpu
from steps.softwarestack.contract import cpu_targets
from tests.unit.cli.conftest import Machine
from workflows.softwarestack import easybuild_lock
from workflows.softwarestack.build_graph import LockError
from workflows.softwarestack.easybuild_lock import LockedEasyconfig

SPEC = """\
apiVersion: bringup/v1
kind: Stack
name: tools
owner: hpc@example.org
revision: "1"
easybuild:
  release: 5.4.1
  easyconfigs: [easyconfigs/app-1.0-gompi-2022.12.eb, easyconfigs/libbsd-0.11.7.eb]
builder: registry.example.org/builder:2026.11
cache: /srv/buildcache
publish: {root: /srv/stacks}
"""
DIGEST = "ab" * 32


def easyconfig(name: str, version: str, toolchain: str = "SYSTEM", easyblock: str = "ConfigureMake", **fields: Any) -> str:
    """Return the text of an easyconfig; `toolchain` is SYSTEM, or name and version, such as `GCC 12.2.0`."""
    chosen = toolchain if toolchain == "SYSTEM" else repr(dict(zip(("name", "version"), toolchain.split(), strict=True)))
    given = {"easyblock": easyblock, "name": name, "version": version, "homepage": "https://example.org", "description": "A test"}
    lines = [f"{key} = {value!r}" for key, value in (given | {"moduleclass": "lib"} | fields).items()]
    return "\n".join([*lines, f"toolchain = {chosen}", ""])


FILES = {
    "GCC-12.2.0.eb": easyconfig("GCC", "12.2.0", easyblock="SystemCompiler", generate_standalone_module=True),
    "OpenMPI-4.1.4-GCC-12.2.0.eb": easyconfig("OpenMPI", "4.1.4", "GCC 12.2.0", easyblock="SystemMPI"),
    "gompi-2022.12.eb": easyconfig(
        "gompi", "2022.12", easyblock="Toolchain", dependencies=[("GCC", "12.2.0"), ("OpenMPI", "4.1.4", "", ("GCC", "12.2.0"))]
    ),
    "zlib-1.2.13.eb": easyconfig("zlib", "1.2.13", sources=["zlib.tar.gz"], checksums=[DIGEST]),
    "libbsd-0.11.7.eb": easyconfig(
        "libbsd", "0.11.7", sources=["libbsd.tar.xz"], checksums=[DIGEST], builddependencies=[("zlib", "1.2.13")]
    ),
    "app-1.0-gompi-2022.12.eb": easyconfig(
        *("app", "1.0", "gompi 2022.12"),
        sources=["app.tar.gz"],
        patches=["app.patch"],
        checksums=[{"app.tar.gz": DIGEST}, ("sha256", "cd" * 32)],
    ),
}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "stack.yaml").write_text(SPEC)
    (tmp_path / "easyconfigs").mkdir()
    for name, text in FILES.items():
        (tmp_path / "easyconfigs" / name).write_text(text)
    return Machine(tmp_path)


def test_a_stack_is_locked_planned_and_locked_again(machine: Machine) -> None:
    done = machine.call("stack", "lock")
    assert (done.code, done.err) == (0, "")
    assert "+ MPI/GCC/12.2.0/OpenMPI/4.1.4/app/1.0" in done.out.splitlines()
    lock = easybuild_lock.read(machine.folder / "stack.lock.json")
    packages = {package.name: package for package in lock.packages}
    assert set(lock.roots) == {packages["libbsd"].hash, packages["app"].hash}
    assert packages["libbsd"].build == (packages["zlib"].hash,)
    assert packages["app"].runtime == (packages["gompi"].hash,)
    assert [source.sha256 for source in (*packages["app"].sources, *packages["app"].patches)] == [DIGEST, "cd" * 32]

    plan = json.loads(machine.call("stack", "plan", "-o", "json").out)
    assert plan["longest_chain"] == ["GCC@12.2.0", "OpenMPI@4.1.4", "gompi@2022.12", "app@1.0"]
    assert machine.call("stack", "lock").out.endswith("stack.lock.json: unchanged, 6 packages\n")


def test_each_cpu_target_has_its_packages_with_the_hashes_of_a_lock_for_it_alone(machine: Machine) -> None:
    several = "targets: [x86_64_v3, zen4]\nbuilder:"
    limit = "  only_for: [{easyconfigs: [easyconfigs/libbsd-0.11.7.eb], targets: [zen4]}]\n"
    (machine.folder / "stack.yaml").write_text(SPEC.replace("builder:", f"{limit}{several}", 1))
    assert "+ zen4/Core/libbsd/0.11.7" in machine.call("stack", "lock").out.splitlines()
    lock = easybuild_lock.read(machine.folder / "stack.lock.json")
    assert (lock.target, lock.targets, len(lock.roots)) == ("", ("x86_64_v3", "zen4"), 3)
    toolchain = {"GCC", "OpenMPI", "gompi"}
    for target, names in (("x86_64_v3", {"app"}), ("zen4", {"app", "libbsd", "zlib"})):
        own = [package for package in lock.packages if package.target == target]
        assert {package.name for package in own} == names | toolchain
        hashes = {package.hash for package in own}
        alone = msgspec.structs.replace(
            lock,
            target=target,
            targets=(),
            roots=tuple(root for root in lock.roots if root in hashes),
            packages=tuple(msgspec.structs.replace(package, target="") for package in own),
        )
        assert easybuild_lock.parse(easybuild_lock.text(alone).encode(), target) == alone  # hashes are compared there

    plan = json.loads(machine.call("stack", "plan", "-o", "json").out)
    assert plan["targets"] == {"x86_64_v3": 4, "zen4": 6}
    lines = machine.call("stack", "plan").out.splitlines()
    assert any(line.startswith("app@1.0 zen4") for line in lines)
    assert "CPU targets: x86_64_v3 (4 packages), zen4 (6 packages)" in lines
    assert any("/current/modules/best`, `module load target-tools`" in line for line in lines)
    not_run = [line for line in lines if line.startswith("not tested if this machine builds: commands of zen4, because the CPU ")]
    assert bool(not_run) == bool(cpu_targets.missing_features("zen4", builder_cpu.read()))


def test_a_changed_easyconfig_changes_what_needs_it_and_no_write_leaves_the_lock(machine: Machine) -> None:
    assert machine.call("stack", "lock").code == 0
    before = (machine.folder / "stack.lock.json").read_bytes()
    with (machine.folder / "easyconfigs/zlib-1.2.13.eb").open("a") as file:
        file.write("# a comment\n")
    done = machine.call("stack", "lock", "--no-write")
    assert done.out.splitlines()[:2] == [
        "~ Core/zlib/1.2.13: its easyconfig changed",
        "~ Core/libbsd/0.11.7: something that it needs changed",
    ]
    assert (machine.folder / "stack.lock.json").read_bytes() == before


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        (
            "zlib-1.2.13.eb",
            easyconfig("zlib", "1.2.13", sources=["zlib.tar.gz"]),
            "zlib-1.2.13.eb has no SHA-256 for zlib.tar.gz",
        ),
        (
            "zlib-1.2.13.eb",
            easyconfig("zlib", "1.2.13", sources=[{"filename": "zlib.tar.gz", "git_config": {"url": "https://x", "tag": "v1"}}]),
            "zlib-1.2.13.eb takes its source from Git, which no checksum fixes",
        ),
        (
            "libbsd-0.11.7.eb",
            easyconfig("libbsd", "0.11.7", dependencies=[("none", "1.0")]),
            "Failed to find easyconfig file 'none-1.0",
        ),
        ("zlib-1.2.13.eb", "name = (", "EasyBuild cannot resolve the easyconfigs: "),
    ],
    ids=["no-checksum", "git", "no-dependency", "no-python"],
)
def test_what_cannot_be_locked_is_said_with_its_easyconfig(machine: Machine, file: str, text: str, sentence: str) -> None:
    (machine.folder / "easyconfigs" / file).write_text(text)
    done = machine.call("stack", "lock")
    assert done.code == 64
    assert sentence in done.err
    assert not (machine.folder / "stack.lock.json").exists()


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("release: 5.4.1", "release: 5.0.0", "EasyBuild 5.4.1 is installed, the stack names 5.0.0"),
        ("easyconfigs/libbsd-0.11.7.eb", "other/libbsd-0.11.7.eb", "easyconfig other/libbsd-0.11.7.eb is in no robot folder"),
        ("easyconfigs/libbsd-0.11.7.eb", "easyconfigs/none-1.eb", "none-1.eb is not there"),
        ("easyconfigs/libbsd-0.11.7.eb", "../libbsd-0.11.7.eb", "leads outside"),
        (
            "easybuild:\n",
            "spack: {url: 'https://example.org/spack.git', revision: v1, environment: spack.yaml}\neasybuild:\n",
            "both",
        ),
    ],
    ids=["release", "robot", "missing", "outside", "both"],
)
def test_specs_that_cannot_be_locked_are_refused(machine: Machine, before: str, after: str, sentence: str) -> None:
    (machine.folder / "stack.yaml").write_text(SPEC.replace(before, after))
    done = machine.call("stack", "lock")
    assert done.code == 64
    assert sentence in done.err


def _hashed(builder: tuple[str, ...], **fields: Any) -> dict[str, Any]:
    locked: dict[str, Any] = msgspec.to_builtins(easybuild_lock.with_hash(builder, LockedEasyconfig(**fields)))
    return locked


def _lock() -> dict[str, Any]:
    builder = ("5.4.1", "HierarchicalMNS", "x86_64_v3")
    fixed = {"hash": "", "version": "1", "sha256": DIGEST}
    base = _hashed(builder, name="base", module="Core/base/1", easyconfig="base-1.eb", **fixed)
    app = _hashed(builder, name="app", module="Core/app/1", easyconfig="a/app-1.eb", runtime=(base["hash"],), **fixed)
    head = dict(zip(("easybuild", "naming", "target"), builder, strict=True))
    return {"kind": "easybuild", "schema": 2, **head, "roots": [app["hash"]], "packages": [base, app]}


def test_equal_locks_are_equal_bytes_and_read_back() -> None:
    lock = easybuild_lock.parse(json.dumps(_lock()).encode(), "stack.lock.json")
    text = easybuild_lock.text(lock)
    assert easybuild_lock.parse(text.encode(), "stack.lock.json") == lock
    assert easybuild_lock.text(easybuild_lock.parse(text.encode(), "again")) == text
    assert len(easybuild_lock.graph(lock, "stack.lock.json").order) == 2


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(lock: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        holder: Any = lock
        for key in parents:
            holder = holder[int(key)] if key.isdigit() else holder[key]
        holder[last] = value

    return change


def _with_targets(*targets: str) -> Callable[[dict[str, Any]], None]:
    """A lock for several targets, of which one package is built for the first, and one that needs it for the second."""

    def change(lock: dict[str, Any]) -> None:
        lock.update(targets=list(targets), target="")
        for package, target in zip(lock["packages"], targets, strict=True):
            package["target"] = target

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_set("schema", 1), "schema 1; this version reads easybuild, 2"),
        (_set("easybuild", "5.4.1; rm"), "is no release"),
        (_set("naming", "MyMNS"), "naming 'MyMNS' is none of"),
        (_set("target", "../x"), "is no CPU target"),
        (_set("syntax", "python"), "syntax 'python' is none of lua, tcl"),
        (_set("syntax", "tcl"), "package base: its hash is"),
        (_set("packages.0.module", "../Core/base"), "is no module name"),
        (_set("packages.0.easyconfig", "../base.eb"), "is no relative path of plain names"),
        (_set("packages.0.sha256", "x"), "is no digest of 64 hexadecimal digits"),
        (_set("packages.1.sources", [{"name": "../x", "sha256": DIGEST}]), "is no file name"),
        (_set("packages.1.sha256", "cd" * 32), "package app: its hash is"),
        (_set("packages.0.version", "2"), "package base: its hash is"),
        (_set("packages.1.sources", [{"name": "app.tar.gz", "sha256": DIGEST}]), "package app: its hash is"),
        (_set("packages.0.external", True), "package base: its hash is"),
        (_set("packages.1.module", "Core/base/1"), "module Core/base/1 is made by two packages"),
        (_set("packages.1.unknown", 1), "unknown"),
        (_set("targets", ["x86_64_v3", "zen4"]), "it has targets beside a target, one target alone, or a target twice"),
        (_set("packages.1.target", "zen4"), "package 'app' has the target 'zen4', which the lock does not"),
        (_with_targets("x86_64_v3", "x86_64_v3"), "a target twice"),
        (_with_targets("x86_64_v3", "../zen4"), "target '../zen4' is no CPU target"),
        (_with_targets("x86_64_v3", "zen4"), "package 'app' needs one that is built for another CPU target"),
    ],
    ids=[
        "schema",
        "release",
        "naming",
        "target",
        "language",
        "other-language",
        "module",
        "easyconfig",
        "digest",
        "source",
        "content",
        "version",
        "sources",
        "external",
        "twice",
        "key",
        "targets",
        "no-target",
        "target-twice",
        "target-path",
        "crossed",
    ],
)
def test_hostile_locks_are_refused(change: Callable[[dict[str, Any]], None], sentence: str) -> None:
    lock = _lock()
    change(lock)
    with pytest.raises(LockError) as refused:
        easybuild_lock.parse(json.dumps(lock).encode(), "stack.lock.json")
    assert sentence in str(refused.value)
