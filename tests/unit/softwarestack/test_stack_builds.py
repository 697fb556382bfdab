"""`bringup stack build` before a run: nothing changed, nothing to build, and what cannot be built from here; `init --stack`."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from steps.contract import release_layout
from steps.contract.canonical import digest_bytes
from steps.contract.release_layout import Switch
from steps.softwarestack.contract import stack_input, stack_release
from steps.softwarestack.contract.stack_input import PACKAGES, package_folder
from steps.softwarestack.contract.stack_release import PackageContent, StackManifest
from tests.unit import small_stack
from tests.unit.cli.conftest import Machine
from workflows import examples
from workflows.app.run_options import StartOptions, Wish
from workflows.app.stacks import stack_builds
from workflows.softwarestack.stack_spec import load_stack
from workflows.spec import SpecErrors

EXAMPLE = Path(examples.__file__).parent / "stacks/stack.yaml"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0000000000000000000000000000000000000000000"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "root").mkdir()
    small_stack.write(tmp_path, publish={"root": str(tmp_path / "root")}, cache=str(tmp_path / "cache"))
    return Machine(tmp_path)


def published(folder: Path) -> Path:
    """Publish what the spec in a folder resolves to, as far as the manifest says it; return the folder of the version."""
    spec, resolved = small_stack.resolved(folder, publish={"root": str(folder / "root")}, cache=str(folder / "cache"))
    stack, root = resolved.stack, folder / "root"
    contents = tuple(
        PackageContent(
            hash=package.hash, name=package.name, version=package.version, folder=package_folder(package), module=package.module
        )
        for package in stack.installed
    )
    for content in contents:
        (root / PACKAGES / content.folder).mkdir(parents=True)
    manifest = StackManifest(
        name=spec.name,
        key=stack.key,
        backend=stack.backend,
        release=stack.release,
        root=stack.root,
        packages=contents,
        files=(),
        view=contents[-1].folder,
    )
    data = stack_release.encode_manifest(manifest)
    version = root / spec.name / release_layout.VERSIONS / release_layout.version_name(1, digest_bytes(data))
    version.mkdir(parents=True)
    (version / stack_release.MANIFEST).write_bytes(data)
    (version / stack_release.VIEW).symlink_to(manifest.links[stack_release.VIEW])
    (root / spec.name / release_layout.CURRENT).symlink_to(f"{release_layout.VERSIONS}/{version.name}")
    return version


def test_what_is_published_already_is_said_in_a_sentence_and_nothing_is_written(machine: Machine) -> None:
    version = published(machine.folder)
    before = sorted(machine.folder.rglob("*"))
    done = machine.call("stack", "build")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"nothing changed: {version.name} of lab-tools is published from this lock and these settings\n"
    assert sorted(machine.folder.rglob("*")) == before
    assert machine.call("stack", "build", "--junit", "report.xml").code == 0
    assert "nothing changed" in (machine.folder / "report.xml").read_text()


def _remove_package(version: Path) -> None:
    next((version.parents[2] / PACKAGES).iterdir()).rmdir()


def _change_manifest(version: Path) -> None:
    path = version / stack_release.MANIFEST
    path.write_bytes(path.read_bytes() + b" ")


def _break_manifest(version: Path) -> None:
    (version / stack_release.MANIFEST).write_bytes(b'{"name": 1}')


def _rename_version(version: Path) -> None:
    version.rename(version.with_name("0002-000000000000"))
    current = version.parents[1] / release_layout.CURRENT
    current.unlink()
    current.symlink_to("versions/0002-000000000000")


def _remove_pointer(version: Path) -> None:
    (version.parents[1] / release_layout.CURRENT).unlink()


def _remove_view(version: Path) -> None:
    (version / stack_release.VIEW).unlink()


def _lead_view_elsewhere(version: Path) -> None:
    _remove_view(version)
    (version / stack_release.VIEW).symlink_to("../../../packages")


@pytest.mark.parametrize(
    "harm",
    [_remove_package, _change_manifest, _break_manifest, _rename_version, _remove_pointer, _remove_view, _lead_view_elsewhere],
    ids=lambda harm: harm.__name__,
)
def test_a_version_that_lacks_anything_is_published_again(
    machine: Machine, harm: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRINGUP_HOME", str(machine.home))
    version, spec = published(machine.folder), str(machine.folder / "stack.yaml")
    assert stack_builds.prepare(spec, StartOptions(), Wish(), 0).unchanged
    assert not stack_builds.prepare(spec, StartOptions(), Wish(again=True), 0).unchanged
    harm(version)
    assert not stack_builds.prepare(spec, StartOptions(), Wish(), 0).unchanged


def test_other_tests_or_a_key_to_sign_with_are_a_change(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINGUP_HOME", str(machine.home))
    published(machine.folder)
    root, cache = str(machine.folder / "root"), str(machine.folder / "cache")
    spec = small_stack.write(machine.folder, publish={"root": root, "keep": 9}, cache=cache, owner="somebody@example.org")
    assert stack_builds.prepare(str(spec), StartOptions(), Wish(), 0).unchanged
    small_stack.write(machine.folder, publish={"root": root}, cache=cache, tests=[])
    assert not stack_builds.prepare(str(spec), StartOptions(), Wish(), 0).unchanged
    signing = {"root": root, "sign": {"file": "./key"}, "signers": [KEY]}
    small_stack.write(machine.folder, publish=signing, cache=cache)
    assert not stack_builds.prepare(str(spec), StartOptions(), Wish(), 0).unchanged


def test_a_stack_that_a_person_rolled_back_from_is_refused_before_anything_is_built(machine: Machine) -> None:
    version = published(machine.folder)
    other = version.with_name("0002-bbbbbbbbbbbb")
    other.mkdir()
    current = version.parents[1] / release_layout.CURRENT
    current.unlink()
    current.symlink_to(f"{release_layout.VERSIONS}/{other.name}")
    switches = (
        Switch(to=version.name, before=other.name, at=1.0, by="run r1"),
        Switch(to=other.name, before=version.name, at=2.0, by="rollback by ada", rollback=True),
    )
    history = version.parents[1] / release_layout.HISTORY
    history.write_bytes(b"".join(map(release_layout.history_line, switches)))
    done = machine.call("stack", "build")
    assert (done.code, done.out) == (64, "")
    assert f"{version.name} was left by a rollback (by ada, 1970-01-01 00:00:02 UTC)" in done.err
    assert "bringup stack build --again" in done.err
    assert not machine.runs
    switches = (*switches, Switch(to=version.name, before=other.name, at=3.0, by="rollback by ada", rollback=True))
    history.write_bytes(b"".join(map(release_layout.history_line, switches)))
    assert "was left by a rollback" not in machine.call("stack", "build", "--jobs-at-once", "0", "--until", "stack_view").err


def test_a_plan_says_that_its_lock_is_stale(machine: Machine) -> None:
    spec = machine.folder / "stack.yaml"
    assert json.loads(machine.call("stack", "plan", "-o", "json").out)["stale"] == ""
    spec.write_text(spec.read_text().replace("- easyconfigs/lz4-1.0.eb", "- easyconfigs/zlib-1.0.eb"))
    done = machine.call("stack", "plan")
    assert done.code == 0
    sentence = "the lock is stale, and a build would refuse it: "
    assert f"{sentence}{machine.folder}/stack.lock.json: it was made without easyconfigs/zlib-1.0.eb" in " ".join(done.out.split())
    assert "`bringup stack lock` makes the lock again" in " ".join(done.out.split())
    assert json.loads(machine.call("stack", "plan", "-o", "json").out)["stale"].startswith(f"{machine.folder}/stack.lock.json: ")


def test_missing_files_and_programs_are_told_with_all_other_errors(machine: Machine) -> None:
    (machine.folder / "stack.lock.json").unlink()
    (machine.folder / "easyconfigs/lz4-1.0.eb").unlink()
    without = {"PATH": str(machine.folder)}
    done = machine.call("validate", "stack.yaml", "-o", "json", **without)
    issues = {issue["path"]: issue["problem"] for issue in json.loads(done.out)["issues"] if issue["severity"] == "error"}
    assert issues.keys() == {"lock", "easybuild.easyconfigs[1]"}
    programs = [issue["problem"] for issue in json.loads(done.out)["issues"] if issue["rule"] == "programs"]
    assert [problem.split()[4].rstrip(",") for problem in programs] == ["zstd", "bwrap"]
    spec = machine.folder / "stack.yaml"
    spec.write_text(spec.read_text() + "jobs: 0\n")
    done = machine.call("validate", "stack.yaml", "-o", "json")
    assert {issue["path"] for issue in json.loads(done.out)["issues"]} >= {"jobs", "lock"}
    assert done.code == 64


def test_an_unchanged_stack_needs_no_models_of_clusters_and_nothing_that_renders(machine: Machine) -> None:
    published(machine.folder)
    code = """
import sys
from workflows.cli.main import run
assert run(["stack", "build"]) == 0
heavy = {"workflows.spec.cluster_spec", "workflows.catalog", "workflows.plan", "workflows.render", "hera", "jinja2", "ansible"}
print(*sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    home = {**os.environ, "BRINGUP_HOME": str(machine.home), "PYTHONPATH": os.getcwd()}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=machine.folder, env=home)
    assert done.stdout.startswith("nothing changed: 0001-")
    assert done.stderr.split() == []


def test_nothing_is_built_if_the_cache_has_everything(machine: Machine) -> None:
    place = machine.folder / "cache" / stack_input.prefix_digest(str(machine.folder / "root"))
    place.mkdir(parents=True)
    for name in small_stack.PACKAGES:
        (place / f"{small_stack.hash_of(name)}.json").touch()
    (place / ".part.json").touch()
    done = machine.call("stack", "build", "--until", "stack_build")
    assert (done.code, done.out) == (0, "nothing to build: the build cache has all packages of lab-tools\n")
    stages = json.loads(machine.call("plan", "stack.yaml", "-o", "json").out)["stages"]
    assert [stage["id"] for stage in stages] == ["stack_tree", "stack_test", "stack_publish"]


def test_the_workflow_of_a_stack_is_rendered(machine: Machine) -> None:
    done = machine.call("render", "stack.yaml", "--out", "rendered")
    assert (done.code, done.err) == (0, "")
    template = yaml.safe_load((machine.folder / "rendered/workflowtemplate.yaml").read_text())
    assert template["metadata"]["labels"]["bringup/pipeline"] == "stack"
    other = machine.call("render", "stack.yaml", "--pipeline", "bringup")
    assert (other.code, other.out) == (64, "")
    assert "is the spec of a software stack: pipeline bringup cannot be rendered from it" in other.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.yaml"], "'none.yaml' is no file"),
        (["cluster.yaml"], "this is the spec of a cluster, and none of a stack"),
        (["--until", "stack_view"], "--until stack_view: a stack has no such stage; stages are stack_build, "),
        (["--engine", "argo"], "pods: they have none of the folder publish.root"),
        (["--engine", "argo", "--until", "stack_test"], "pods: they have none of the folder cache"),
        (["no-root.yaml"], "/nowhere/stacks is no folder of this machine"),
        (["no-lock.yaml"], "none.json: the lock of this stack is not there"),
        (["odd-root.yaml"], "publish.root"),
        (["no-time.yaml"], "timeout is no time in which a test ends"),
        (["fixed-cache.yaml"], "this user may not write to /proc/sys, where the build cache of the spec lies"),
    ],
    ids=["missing", "cluster", "until", "argo", "argo-cache", "root", "lock", "odd-root", "no-time", "fixed-cache"],
)
def test_what_cannot_be_built_is_said_before_a_run(machine: Machine, arguments: list[str], sentence: str) -> None:
    spec = yaml.safe_load((machine.folder / "stack.yaml").read_text())
    variants = {
        "no-root": {"publish": {"root": "/nowhere/stacks"}},
        "no-lock": {"lock": "none.json"},
        "odd-root": {"publish": {"root": "/srv/$HOME"}},
        "no-time": {"tests": [{"name": "none", "command": ["true"], "timeout": "0s"}]},
        "fixed-cache": {"cache": "/proc/sys/cache"},
    }
    for name, keys in variants.items():
        (machine.folder / f"{name}.yaml").write_text(yaml.safe_dump({**spec, **keys}))
    (machine.folder / "cluster.yaml").write_text("apiVersion: bringup/v1\nkind: Cluster\n")
    done = machine.call("stack", "build", *arguments)
    assert (done.code, done.out) == (64, "")
    assert sentence in done.err
    assert not machine.runs


def test_a_test_whose_module_no_package_makes_is_said_at_validate(machine: Machine) -> None:
    known = [{"name": name.lower(), "modules": [name], "command": ["true"]} for name in ("zlib", "GCC")]
    unknown = {"name": "typing_error", "modules": ["GCC/1.0", "libpgn/1.0"], "command": ["true"]}
    root, cache = {"root": str(machine.folder / "root")}, str(machine.folder / "cache")
    small_stack.write(machine.folder, publish=root, cache=cache, tests=known)
    assert machine.call("validate", "stack.yaml").out == "stack.yaml: valid, 0 errors, 0 warnings\n"
    small_stack.write(machine.folder, publish=root, cache=cache, tests=[*known, unknown])
    done = machine.call("validate", "stack.yaml")
    assert done.code == 0
    assert "warning test_modules tests[2].modules" in done.out
    assert "no package of the lock makes the module libpgn/1.0, which test typing_error loads" in done.out
    assert done.out.endswith("stack.yaml: valid, 0 errors, 1 warning\n")


def test_the_starter_spec_is_valid_and_so_is_each_line_in_its_comments(machine: Machine) -> None:
    (machine.folder / "stack.yaml").unlink()
    done = machine.call("init", "--stack")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("wrote stack.yaml and stack.schema.json; ")
    text = (machine.folder / "stack.yaml").read_text()
    assert load_stack(machine.folder / "stack.yaml").easybuild is not None
    turned_on = re.sub(
        r"^( *)# ( *(?:lock|cache|package_signing|sign|signers|sources|proxy|limits|reframe|approval|approvers):)",
        r"\1\2",
        text,
        flags=re.M,
    )
    spec = load_stack(turned_on)
    assert (spec.cache, spec.reframe, spec.approvals[0].before) == ("/srv/bringup/buildcache", ("tests/osu.py",), "stack_publish")
    assert set(spec.secrets) == {"stack_sign_key", "package_sign_key"}
    assert machine.call("init", "--stack").code == 64
    assert "name one of them" in machine.call("init", "--stack", "--image").err


MATRIX = "{packages: [HPL-2.3, zlib-1.3.1], toolchains: [GCC-12.2.0, gompi-2022.12], exclude: EXCLUDE}"


@pytest.mark.parametrize(
    ("exclude", "offered"),
    [
        ("[]", ["HPL-2.3-GCC-12.2.0", "HPL-2.3-gompi-2022.12", "zlib-1.3.1-GCC-12.2.0", "zlib-1.3.1-gompi-2022.12"]),
        ("[{package: zlib-1.3.1, toolchain: gompi-2022.12}, {package: HPL-2.3}]", ["zlib-1.3.1-GCC-12.2.0"]),
        ("[{toolchain: GCC-12.2.0}]", ["HPL-2.3-gompi-2022.12", "zlib-1.3.1-gompi-2022.12"]),
        ("[{}]", r"without package, toolchain and target excludes everything\n *fix +name at least one of them"),
        ("[{package: zlib-1.3}]", "exclude names zlib-1.3, which is none of packages"),
        ("[{package: HPL-2.3}, {package: zlib-1.3.1}]", "nothing is left of the matrix"),
    ],
    ids=["whole", "pair", "toolchain", "empty", "unknown", "nothing"],
)
def test_a_matrix_offers_packages_with_toolchains_but_for_exclusions(exclude: str, offered: list[str] | str) -> None:
    text = EXAMPLE.read_text().replace("[easyconfigs/zlib-1.3.1.eb]", f"[easyconfigs/a.eb]\n  matrix: {MATRIX}")
    if isinstance(offered, str):
        with pytest.raises(SpecErrors, match=offered):
            load_stack(text.replace("EXCLUDE", exclude))
        return
    section = load_stack(text.replace("EXCLUDE", exclude)).easybuild
    assert section is not None
    assert section.offered == ("easyconfigs/a.eb", *(f"easyconfigs/{name}.eb" for name in offered))


SEVERAL = """\
apiVersion: bringup/v1
kind: Stack
name: tools
owner: hpc@example.org
revision: "1"
builder: registry.example.org/builder:2026.11
publish: {root: /srv/stacks}
"""
BUILT = "easybuild: {release: 5.4.1, easyconfigs: [easyconfigs/a.eb]"


@pytest.mark.parametrize(
    ("keys", "offered"),
    [
        (BUILT + "}\ntargets: [x86_64_v3, zen4]", {"x86_64_v3": ["a"], "zen4": ["a"]}),
        (BUILT + "}\ntargets: [zen4]", {"zen4": ["a"]}),
        (
            f"{BUILT}, matrix: {MATRIX.replace('EXCLUDE', '[{package: zlib-1.3.1, target: zen4}, {toolchain: GCC-12.2.0}]')}}}\n"
            "targets: [x86_64_v3, zen4]",
            {"x86_64_v3": ["a", "HPL-2.3-gompi-2022.12", "zlib-1.3.1-gompi-2022.12"], "zen4": ["a", "HPL-2.3-gompi-2022.12"]},
        ),
        (
            "easybuild: {release: 5.4.1, easyconfigs: [easyconfigs/a.eb, easyconfigs/b.eb], "
            "only_for: [{easyconfigs: [easyconfigs/b.eb], targets: [zen4]}]}\ntargets: [x86_64_v3, zen4]",
            {"x86_64_v3": ["a"], "zen4": ["a", "b"]},
        ),
        (BUILT + "}\ntargets: [zen4, zen4]", "has a name twice, or best"),
        (BUILT + "}\ntargets: [zen4, best]", "has a name twice, or best"),
        (BUILT + "}\ntargets: [zen4, '../x']", "targets"),
        (BUILT + "}\ntargets: [zen4, zen_4]", "CPU target zen_4 is unknown, so no node could tell if its CPU runs it"),
        (BUILT + "}\ntargets: [x86_64_v3, power9le]", "CPU target power9le is unknown"),
        (BUILT + "}\ntargets: [zen3, zen4]\ntarget: zen4", "the stack names target and targets"),
        (BUILT + ", only_for: [{easyconfigs: [easyconfigs/a.eb], targets: [zen4]}]}", "zen4 is none of the stack's CPU targets"),
        (
            BUILT + ", only_for: [{easyconfigs: [easyconfigs/a.eb], targets: [zen4]}]}\ntargets: [zen3, zen4]",
            "nothing is left for CPU target zen3",
        ),
        (BUILT + ", only_for: [{easyconfigs: [easyconfigs/x.eb], targets: [zen4]}]}\ntargets: [zen4]", "does not offer"),
        (BUILT + "}\ntests: [{name: run, command: [a], targets: [zen4]}]", "zen4 is none of the stack's CPU targets"),
        (
            "spack: {url: 'https://example.org/spack.git', revision: v1, environment: spack.yaml}\ntargets: [zen3, zen4]",
            "write them in spack.yaml",
        ),
    ],
    ids=[
        *(
            "both",
            "one",
            "matrix",
            "limited",
            "twice",
            "reserved",
            "path",
            "typo",
            "power",
            "target",
            "no_target",
            "empty",
            "unoffered",
            "test",
        ),
        "spack",
    ],
)
def test_cpu_targets_have_what_the_spec_offers_for_them(keys: str, offered: dict[str, list[str]] | str) -> None:
    if isinstance(offered, str):
        with pytest.raises(SpecErrors, match=offered):
            load_stack(SEVERAL + keys)
        return
    spec = load_stack(SEVERAL + keys)
    assert spec.easybuild is not None
    assert spec.several_targets == (spec.cpu_targets if len(offered) > 1 else ())
    names = {target: [Path(path).stem for path in spec.easybuild.offered_for(target)] for target in spec.cpu_targets}
    assert names == offered


def test_a_single_target_that_is_unknown_is_mentioned() -> None:
    assert load_stack(SEVERAL + BUILT + "}\ntarget: zen4").target_notes == ()
    (note,) = load_stack(SEVERAL + BUILT + "}\ntarget: power9le").target_notes
    assert note.startswith("CPU target power9le is unknown: ")


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("  keep: 3", "  keep: 3\n  sign: {file: ./key}", "a signature that nobody is told to trust proves nothing"),
        ("name: tools", "name: packages", "name packages is that of a folder below publish.root"),
        ("name: tools", 'name: tools\nschedule: {cron: "0 2 * * *"}', "pods, which have none of the folder publish.root"),
        ("jobs: 8", "jobs: 8\nlimits: {build: 0s}", "build is no time in which anything ends"),
        ("jobs: 8", "jobs: 8\ncache: oci://registry.example.org/Cache", "is no repository of a registry"),
        ("jobs: 8", "jobs: 8\ncache: s3://bucket/cache", "nothing reads or writes one at s3://"),
        ("target: x86_64_v3", "target: [x86_64_v3, zen4]", "write targets: [x86_64_v3, zen4]"),
        ("jobs: 8", "jobs: 8\nview: {packages: ['../x']}", "view.packages[0]"),
        ("jobs: 8", "jobs: 8\nmodule_system: tcl", "The module system is not named here"),
        ("jobs: 8", "jobs: 8\nmatrix: {}", "write easybuild.matrix, or matrix and exclude in the specs of spack.yaml"),
        ("  keep: 3", "  keep: 3\n  largest_gib: 0", "largest_gib"),
        ("  easyconfigs: [easyconfigs/zlib-1.3.1.eb]", "  #", "the stack offers no package"),
        ("modules: [zlib]", "modules: ['zlib; id']", "modules"),
        ("tests: #", "tests:\n  - {name: zlib_is_there, command: [a]}\n  #", "two tests have the name zlib_is_there"),
    ],
    ids=[
        *("signers", "name", "schedule", "limit", "registry", "bucket", "targets", "view", "tcl", "matrix", "budget", "nothing"),
        *("module", "twice"),
    ],
)
def test_what_no_stack_can_be_is_refused(machine: Machine, before: str, after: str, sentence: str) -> None:
    text = EXAMPLE.read_text()
    assert before in text
    (machine.folder / "stack.yaml").write_text(text.replace(before, after, 1))
    done = machine.call("stack", "build")
    assert done.code == 64
    assert sentence in done.err
