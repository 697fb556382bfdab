"""Command lines, environments and configuration of Spack for one hash agree with those of recorded runs of a real one."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from steps.contract.canonical import digest_bytes
from steps.errors import BadTask
from steps.softwarestack.builds.builders import spack_environment, spack_program
from steps.softwarestack.builds.builders.package_builder import BuildCommand, BuildPlace
from steps.softwarestack.builds.builders.spack_program import SpackInstallation, SpackProgram
from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import BuildCacheLocation, SpackFiles, StackInput, StackPackage, StackTestFile
from tests.unit.softwarestack.small_locks import DATA
from workflows.softwarestack import spack_lock

RECORDED = DATA / "real_0.23"
LOCK = (RECORDED / "env_stack.spack.lock").read_bytes()
ZSTD = "rd24mwdkcq4gcneex3hneh25vn4gaw6p"
GLIBC = "jlxwffmgwmoc3zddjme3pzekumwc6b3w"
GCC_RUNTIME = "tchodvtaqxzufupz6ljb42ud3pbs6vew"
RECIPE = b"from spack.package import *\n"
SETTINGS = b'{"packages": {"gmake": {"buildable": false}}}'


def _sha256(data: bytes) -> str:
    return digest_bytes(data).removeprefix("sha256:")


FILES = {_sha256(data): data for data in (LOCK, RECIPE, SETTINGS)}


def _stack(**fields: Any) -> StackInput:
    graph = spack_lock.parse(LOCK, "spack.lock")
    packages = [
        StackPackage(
            hash=node.hash,
            name=node.name,
            version=node.version,
            external=node.external,
            runtime=node.runtime,
            build=node.build,
            jobs=2,
        )
        for node in graph.nodes.values()
    ]
    spack = SpackFiles(
        lock=_sha256(LOCK),
        settings=_sha256(SETTINGS),
        repositories=("site", "/opt/recipes"),
        recipes=(StackTestFile(path="site/packages/zlib/package.py", sha256=_sha256(RECIPE)),),
    )
    settings: dict[str, Any] = {"packages": tuple(packages), "roots": graph.roots, "spack": spack} | fields
    return StackInput(
        name="small", backend="spack", release="0.23.0", root="/srv/stacks", cache=BuildCacheLocation(folder="/cache"), **settings
    )


def _place(folder: Path) -> BuildPlace:
    return BuildPlace(
        workspace=Path("/build"),
        folder=folder,
        packages="/srv/stacks/packages",
        modules="/srv/stacks/small/current/modules",
        sources=Path("/build/shared"),
    )


STACK = _stack()
PROGRAM = SpackProgram(STACK, FILES, SpackInstallation(program="/spack/bin/spack", release="0.23.0"))


def _commands(hash_: str, stack: StackInput = STACK) -> list[BuildCommand]:
    return list(PROGRAM.commands(stack, stack.by_hash[hash_], _place(Path("/nowhere"))))


def _options(command: str) -> list[str]:
    """Return the words of a recorded command from its subcommand on; folders before it are those of the recording."""
    words = command.split()
    return words[words.index("install") :]


def test_a_package_is_installed_by_the_recorded_command() -> None:
    cases = yaml.safe_load((RECORDED / "INDEX.yaml").read_text())["cases"]
    recorded = next(case for case in cases if case["file"] == "install_only_package_gcc_runtime.txt")
    made = list(_commands(GCC_RUNTIME)[-1].arguments)
    assert made[:5] == ["/spack/bin/spack", "-C", "/build/spack-scope", "-e", "/build/spack-env"]
    assert [word for word in made[5:] if word != "-j2"] == _options(recorded["command"])
    in_parallel = next(case for case in cases if case["file"] == "dag_node_readline_install.txt")
    assert "-j2" in _options(in_parallel["command"])


def test_the_form_of_an_install_is_that_of_the_recorded_makefile() -> None:
    makefile = (RECORDED / "env_stack_depfile.mk").read_text()
    assert "install $(SPACK_BUILDCACHE_FLAG) $(SPACK_INSTALL_FLAGS) --only-concrete --only=package" in makefile


def test_only_fetching_has_the_network_and_only_packages_with_dependencies_are_indexed() -> None:
    assert [(command.phase, command.network) for command in _commands(ZSTD)] == [
        ("fetch", True),
        ("reindex", False),
        ("install", False),
    ]
    assert [command.phase for command in _commands(GCC_RUNTIME)] == ["fetch", "install"]


def test_settings_of_users_and_the_system_do_not_reach_a_build() -> None:
    environment = _commands(ZSTD)[0].environment
    assert environment["SPACK_DISABLE_LOCAL_CONFIG"] == "1"
    paths = [value for name, value in environment.items() if name.startswith(("HOME", "TMPDIR", "SPACK_USER", "SPACK_GNUPG"))]
    assert len(paths) == 5
    assert all(path.startswith("/build/") for path in paths)


def _written(tmp_path: Path, hash_: str = ZSTD) -> Path:
    PROGRAM.prepare(STACK, STACK.by_hash[hash_], _place(tmp_path))
    return tmp_path


def _section(folder: Path, name: str) -> Any:
    return yaml.safe_load((folder / "spack-scope" / f"{name}.yaml").read_text())[name]


def test_packages_are_built_at_their_published_paths(tmp_path: Path) -> None:
    tree = _section(_written(tmp_path), "config")["install_tree"]
    assert tree == {"root": "/srv/stacks/packages", "projections": {"all": "{name}-{version}-{hash:12}"}}
    assert STACK.package_path(STACK.by_hash[ZSTD]) == f"/srv/stacks/packages/zstd-1.5.4-{ZSTD[:12]}"


def test_modules_of_all_compilers_lie_in_one_folder_and_need_no_module_of_an_external(tmp_path: Path) -> None:
    modules = _section(_written(tmp_path), "modules")["default"]
    assert modules["enable"] == ["lmod", "tcl"]
    place = "/srv/stacks/small/current/modules"
    assert modules["roots"] == {"lmod": f"{place}/all", "tcl": f"{place}/tcl/Core"}
    assert modules["lmod"]["core_compilers"] == ["gcc@12.2.0"]
    assert modules["lmod"]["hierarchy:"] == []  # the colon keeps Spack's own hierarchy by MPI away
    assert modules["tcl"]["projections"] == {"all": "{name}/{version}"}
    for language in ("lmod", "tcl"):
        assert f"glibc/{GLIBC}" in modules[language]["exclude"]
        assert not any(name.startswith("zstd/") for name in modules[language]["exclude"])


def test_repositories_lie_in_the_workspace_or_in_the_builder_image(tmp_path: Path) -> None:
    folder = _written(tmp_path)
    assert _section(folder, "repos") == ["/build/spack-repos/site", "/opt/recipes"]
    assert (folder / "spack-repos/site/packages/zlib/package.py").read_bytes() == RECIPE
    assert Path("/opt/recipes") in PROGRAM.programs


def test_repositories_have_names_since_compilers_are_packages(tmp_path: Path) -> None:
    lock = msgspec.json.encode(json.loads(LOCK) | {"_meta": {"file-type": "spack-lockfile", "lockfile-version": 6}})
    spack = msgspec.structs.replace(STACK.spack or SpackFiles(lock="", settings=""), lock=_sha256(lock))
    program = SpackProgram(
        _stack(spack=spack), FILES | {_sha256(lock): lock}, SpackInstallation(program="/s/bin/spack", release="")
    )
    program.prepare(_stack(spack=spack), STACK.by_hash[ZSTD], _place(tmp_path))
    assert _section(tmp_path, "repos") == {"site": "/build/spack-repos/site", "recipes": "/opt/recipes"}


def test_the_environment_has_the_part_of_the_lock_that_a_package_needs(tmp_path: Path) -> None:
    folder = _written(tmp_path) / "spack-env"
    lock = json.loads((folder / "spack.lock").read_bytes())
    whole = json.loads(LOCK)
    names = {spec["name"] for spec in lock["concrete_specs"].values()}
    assert names == {"zstd", "xz", "zlib", "gcc-runtime", "glibc", "gmake"}
    assert all(spec == whole["concrete_specs"][hash_] for hash_, spec in lock["concrete_specs"].items())
    assert lock["roots"] == [root for root in whole["roots"] if root["hash"] == ZSTD]
    assert (lock["_meta"], lock["spack"]) == (whole["_meta"], whole["spack"])
    assert spack_lock.parse((folder / "spack.lock").read_bytes(), "part").roots == (ZSTD,)
    environment = yaml.safe_load((folder / "spack.yaml").read_text())["spack"]
    assert (environment["specs"], environment["view"]) == ([], False)
    assert environment["packages"] == {"gmake": {"buildable": False}}


def test_a_package_that_is_no_root_becomes_one() -> None:
    lock = json.loads(spack_environment.pruned_lock(LOCK, GCC_RUNTIME))
    assert lock["roots"] == [{"hash": GCC_RUNTIME, "spec": "gcc-runtime"}]


def test_builds_share_indices_with_builds_of_their_stack_and_of_that_spack_alone(tmp_path: Path) -> None:
    indices, archives = PROGRAM.shared
    config = _section(_written(tmp_path), "config")
    assert (config["misc_cache"], config["source_cache"]) == (f"/build/shared/{indices}", f"/build/shared/{archives}")
    same = _stack(roots=(ZSTD,))
    other = msgspec.structs.replace(STACK, name="other")
    installed = SpackInstallation(program="/s", release="0.23.0")
    names = [SpackProgram(stack, FILES, installed).shared[0] for stack in (same, other)]
    newer = SpackProgram(STACK, FILES, SpackInstallation(program="/s", release="0.23.1")).shared[0]
    assert names[0] == indices
    assert len({indices, names[1], newer}) == 3


HOSTILE = {
    "no-json": b"{",
    "no-lock": b"[]",
    "no-package": b'{"_meta": {}, "concrete_specs": {}}',
    "dependency": json.dumps({"_meta": {}, "concrete_specs": {ZSTD: {"name": "zstd", "dependencies": [{"hash": "x"}]}}}).encode(),
    "dependency-form": json.dumps({"_meta": {}, "concrete_specs": {ZSTD: {"name": "zstd", "dependencies": [{}]}}}).encode(),
    "name": json.dumps({"_meta": {}, "concrete_specs": {ZSTD: {"name": 7}}}).encode(),
    "deep": b'{"_meta": {}, "concrete_specs": {"a": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("lock", HOSTILE.values(), ids=HOSTILE.keys())
def test_locks_that_are_none_are_refused(lock: bytes) -> None:
    with pytest.raises(BadTask, match=r"spack\.lock"):
        spack_environment.pruned_lock(lock, ZSTD)


def test_a_cycle_in_a_lock_ends() -> None:
    specs = {ZSTD: {"name": "zstd", "dependencies": [{"hash": GLIBC}]}, GLIBC: {"name": "glibc", "dependencies": [{"hash": ZSTD}]}}
    lock = json.loads(spack_environment.pruned_lock(json.dumps({"_meta": {}, "concrete_specs": specs}).encode(), ZSTD))
    assert set(lock["concrete_specs"]) == {ZSTD, GLIBC}


def test_settings_that_say_where_things_lie_are_refused(tmp_path: Path) -> None:
    settings = b'{"config": {"install_tree": {"root": "/elsewhere"}}}'
    spack = SpackFiles(lock=_sha256(LOCK), settings=_sha256(settings))
    program = SpackProgram(_stack(spack=spack), FILES | {_sha256(settings): settings}, SpackInstallation(program="/s", release=""))
    with pytest.raises(BadTask, match=r"section 'config' of spack\.yaml"):
        program.prepare(_stack(spack=spack), STACK.by_hash[ZSTD], _place(tmp_path))


def test_an_install_without_its_line_is_a_failure() -> None:
    package, install = STACK.by_hash[ZSTD], _commands(ZSTD)[-1]
    line = f"[+] /srv/stacks/packages/zstd-1.5.4-{ZSTD[:12]}\n"
    assert PROGRAM.read(package, install, 0, line).failure is None
    verdict = PROGRAM.read(package, install, 0, "==> zstd: Executing phase: 'build'\n")
    assert (verdict.failure, verdict.phase) == (BuildFailure.UNKNOWN, "install")


def test_a_fetch_that_fails_for_no_known_reason_is_a_failed_fetch() -> None:
    assert PROGRAM.read(STACK.by_hash[ZSTD], _commands(ZSTD)[0], 1, "==> Error: odd").failure is BuildFailure.FETCH


def test_a_package_keeps_its_spec_and_recipe_and_loses_logs_and_times(tmp_path: Path) -> None:
    place = _place(tmp_path)
    prefix, module = place.prefix("zstd"), tmp_path / "modules/all/Core/zstd/1.5.4-rd24mwd.lua"
    metadata = prefix / ".spack"
    (metadata / "repos" / "site").mkdir(parents=True)
    (metadata / "archived-files").mkdir()
    for name in ("spec.json", "spack-build-out.txt.gz", "install_times.json", "repos/site/package.py", "archived-files/config.log"):
        (metadata / name).write_text("x")
    module.parent.mkdir(parents=True)
    recorded = (RECORDED / "lmod_modulefiles.txt").read_text().partition("\n")[2]
    module.write_text(recorded)
    tcl, in_tcl = tmp_path / "modules/tcl/Core/zstd/1.5.4-rd24mwd", (RECORDED / "tcl_modulefile_zstd.txt").read_text()
    tcl.parent.mkdir(parents=True)
    tcl.write_text(in_tcl)
    assert PROGRAM.tidy(STACK.by_hash[ZSTD], prefix)
    assert sorted(path.name for path in metadata.rglob("*") if path.is_file()) == ["package.py", "spec.json"]
    assert module.read_text() == recorded.replace(" on 2026-11-28 08:50:51.553672", "")
    assert module.read_text() != recorded
    assert tcl.read_text() == in_tcl.replace(" on 2026-11-28 08:50:55.055662", "")


def test_only_the_module_files_of_the_package_are_its_own() -> None:
    own = ("all/Core/zstd/1.5.4-rd24mwd.lua", "tcl/Core/zstd/1.5.4-rd24mwd")
    written = [*own, "all/Core/zlib/1.2.13-72a7sbl.lua", "tcl/Core/zlib/1.2.13-72a7sbl", "all/Core/zstd/.modulerc.lua"]
    assert PROGRAM.module_files(STACK.by_hash[ZSTD], written) == own


def _program(tmp_path: Path, text: str) -> dict[str, str]:
    program = tmp_path / "bin" / "spack"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return {"PATH": str(program.parent)}


def test_spack_of_another_release_than_the_lock_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTask, match=r"Spack 1\.0\.1 is installed as .*, the lock is of 0\.23\.0"):
        spack_program.locate(STACK, _program(tmp_path, "echo '1.0.1 (abc)'"))


def test_spack_of_the_lock_is_used(tmp_path: Path) -> None:
    environ = _program(tmp_path, "echo '0.23.0 (c6d4037758140fe15913c29e80cd1547f388ae51)'")
    installed = spack_program.locate(STACK, environ)
    commit = "(c6d4037758140fe15913c29e80cd1547f388ae51)"
    assert installed == SpackInstallation(program=f"{tmp_path}/bin/spack", release="0.23.0", commit=commit)


def test_a_machine_without_spack_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadTask, match="spack is not on the search path"):
        spack_program.locate(STACK, {"PATH": str(tmp_path)})
