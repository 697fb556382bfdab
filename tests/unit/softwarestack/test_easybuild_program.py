"""The command line of `eb`, word by word, and what EasyBuild leaves in a workspace."""

import hashlib
import importlib.metadata
import sys
from pathlib import Path

import archspec.cpu
import msgspec
import pytest

from steps.errors import BadTask
from steps.softwarestack.builds.builders import easybuild_program
from steps.softwarestack.builds.builders.easybuild_program import EasyBuildInstallation, EasyBuildProgram
from steps.softwarestack.builds.builders.package_builder import BuildPlace
from steps.softwarestack.contract import cpu_targets
from steps.softwarestack.contract.stack_input import BuildCacheLocation, StackInput, StackPackage, StackSource, package_folder

EASYCONFIG = b"name = 'zlib'\n"
SHA256 = hashlib.sha256(EASYCONFIG).hexdigest()
PATCH = b"--- a\n+++ b\n"
GCC = StackPackage(
    hash="g" * 32, name="GCC", version="12.2.0", module="Core/GCC/12.2.0", easyconfig="g/GCC-12.2.0.eb", sha256=SHA256
)
ZLIB = StackPackage(
    hash="z" * 32,
    name="zlib",
    version="1.3",
    module="Compiler/GCC/12.2.0/zlib/1.3",
    runtime=(GCC.hash,),
    easyconfig="z/zlib-1.3-GCC-12.2.0.eb",
    sha256=SHA256,
    sources=(StackSource(name="zlib-1.3.tar.gz", sha256="a" * 64),),
    patches=(StackSource(name="zlib-1.3_fix.patch", sha256=hashlib.sha256(PATCH).hexdigest()),),
    jobs=4,
)
STACK = StackInput(
    name="demo",
    backend="easybuild",
    release="5.4.1",
    root="/software/lab",
    packages=(GCC, ZLIB),
    roots=(ZLIB.hash,),
    cache=BuildCacheLocation(folder="/cache"),
    naming="HierarchicalMNS",
    target="x86_64_v3",
)
INSTALLED = EasyBuildInstallation(
    python="/opt/eb/bin/python", release="5.4.1", prefixes=(Path("/opt/eb"), Path("/usr")), lmod="/usr/share/lmod/lmod/libexec/lmod"
)
PROGRAM = EasyBuildProgram({SHA256: EASYCONFIG, ZLIB.patches[0].sha256: PATCH}, INSTALLED)
WORDS = """/opt/eb/bin/python -I -u -m easybuild.main /build/easyconfigs/z/zlib-1.3-GCC-12.2.0.eb --prefix=/build/easybuild
--robot-paths=/build/easyconfigs --sourcepath=/build/fetched:/build/sources --buildpath=/build/work
--installpath-software=/software/lab/packages/zlib-1.3-zzzzzzzzzzzz --installpath-modules=/software/lab/demo/current/modules
--tmpdir=/build/tmp --tmp-logdir=/build/logs --locks-dir=/build/locks
--module-naming-scheme=HierarchicalMNS --module-syntax=Lua --modules-tool=Lmod
--enforce-checksums --umask=022 --output-style=basic"""


def place_of(folder: Path) -> BuildPlace:
    return BuildPlace(
        workspace=Path("/build"),
        folder=folder,
        packages="/software/lab/packages",
        modules="/software/lab/demo/current/modules",
        sources=Path("/build/shared"),
    )


def test_a_package_is_fetched_with_network_and_built_without(tmp_path: Path) -> None:
    fetch, build = PROGRAM.commands(STACK, ZLIB, place_of(tmp_path))
    assert (fetch.phase, fetch.network, build.phase, build.network) == ("fetch", True, "build", False)
    assert list(fetch.arguments) == [*WORDS.split(), "--fetch"]
    assert list(build.arguments) == [*WORDS.split(), "--max-parallel=4", "--optarch=march=x86-64-v3"]


def test_modules_are_written_in_tcl_where_the_stack_says_so(tmp_path: Path) -> None:
    stack = msgspec.structs.replace(STACK, syntax="tcl")
    build = PROGRAM.commands(stack, ZLIB, place_of(tmp_path))[-1]
    assert "--module-syntax=Tcl" in build.arguments
    assert "--module-syntax=Tcl" in PROGRAM.reproduce(stack, ZLIB)


def test_nothing_of_the_caller_reaches_a_build(tmp_path: Path) -> None:
    build = PROGRAM.commands(STACK, ZLIB, place_of(tmp_path))[-1]
    assert build.environment == {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": "/build/home",
        "TMPDIR": "/build/tmp",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SOURCE_DATE_EPOCH": "315619200",
        "XDG_CONFIG_HOME": "/build/home",
        "XDG_CONFIG_DIRS": "/build/home",
        "LMOD_CMD": "/usr/share/lmod/lmod/libexec/lmod",
        "EB_SCRIPT_PATH": "/opt/eb/bin/eb",
    }


def test_a_package_without_sources_needs_no_network(tmp_path: Path) -> None:
    assert [command.network for command in PROGRAM.commands(STACK, GCC, place_of(tmp_path))] == [False]


@pytest.mark.parametrize("text", [b"exts_list = [('a', '1')]\n", b"x = 1\ncomponents = []\n"])
def test_sources_that_the_lock_does_not_name_are_fetched_too(text: bytes, tmp_path: Path) -> None:
    bundle = msgspec.structs.replace(GCC, sha256=hashlib.sha256(text).hexdigest())
    place = msgspec.structs.replace(place_of(tmp_path), archives=(Path("/build/archives/0"),))
    fetch, _ = EasyBuildProgram({bundle.sha256: text}, INSTALLED).commands(STACK, bundle, place)
    assert (fetch.network, fetch.unlocked) == (True, True)
    assert "--sourcepath=/build/fetched:/build/sources:/build/archives/0" in fetch.arguments


def test_easyconfigs_of_dependencies_and_patches_are_written(tmp_path: Path) -> None:
    PROGRAM.prepare(STACK, ZLIB, place_of(tmp_path))
    assert (tmp_path / "easyconfigs/z/zlib-1.3-GCC-12.2.0.eb").read_bytes() == EASYCONFIG
    assert (tmp_path / "easyconfigs/g/GCC-12.2.0.eb").read_bytes() == EASYCONFIG
    assert (tmp_path / "sources/zlib-1.3_fix.patch").read_bytes() == PATCH


def test_a_missing_file_is_an_error_of_the_task(tmp_path: Path) -> None:
    with pytest.raises(BadTask, match="the files of the stack lack"):
        EasyBuildProgram({}, INSTALLED).prepare(STACK, ZLIB, place_of(tmp_path))


def test_files_that_differ_between_builds_are_removed(tmp_path: Path) -> None:
    prefix = tmp_path / package_folder(ZLIB)
    own = prefix / "zlib" / "1.3-GCC-12.2.0" / "easybuild"
    (own / "reprod").mkdir(parents=True)
    for name in ("easybuild-zlib-1.3-20261129.120131.log", "easybuild-zlib-1.3-20261129_test_report.md", "reprod/x.env", "zlib.eb"):
        (own / name).write_text("x")
    assert not PROGRAM.tidy(ZLIB, prefix)
    (own.parent / "lib").mkdir()
    assert PROGRAM.tidy(ZLIB, prefix)
    assert sorted(path.name for path in own.rglob("*")) == ["reprod", "zlib.eb"]


def test_a_link_that_a_build_made_leads_nobody_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "easybuild"
    outside.mkdir(parents=True)
    (outside / "easybuild-x.log").write_text("not of the package")
    place = place_of(tmp_path)
    prefix = place.prefix(package_folder(ZLIB))
    (prefix / "zlib").mkdir(parents=True)
    (prefix / "zlib" / "1.3").symlink_to(outside.parent)
    assert PROGRAM.log(ZLIB, place) == ""
    PROGRAM.tidy(ZLIB, prefix)
    assert (outside / "easybuild-x.log").exists()


def test_the_log_is_found_after_a_success_and_after_a_failure(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/easybuild-a.log").write_text("failed")
    assert PROGRAM.log(ZLIB, place) == "failed"
    (tmp_path / "logs/easybuild-a.log").unlink()
    own = place.prefix(package_folder(ZLIB)) / "zlib/1.3/easybuild"
    own.mkdir(parents=True)
    (own / "easybuild-b.log").write_text("done")
    assert PROGRAM.log(ZLIB, place) == "done"


def test_the_command_for_a_laptop_names_the_release() -> None:
    assert PROGRAM.reproduce(STACK, ZLIB) == (
        "eb zlib-1.3-GCC-12.2.0.eb --robot --robot-paths=easyconfigs: --rebuild --module-naming-scheme=HierarchicalMNS "
        "--optarch=march=x86-64-v3  # EasyBuild 5.4.1"
    )


@pytest.mark.parametrize(
    ("target", "value"),
    [
        ("x86_64", "GENERIC"),
        ("aarch64", "GENERIC"),
        ("x86_64_v2", "march=x86-64-v2"),
        ("zen4", "march=znver4"),
        ("skylake_avx512", "march=skylake-avx512"),
        ("k10", "march=amdfam10"),
        ("neoverse_v2", "march=armv9-a"),
        ("thunderx2", "mcpu=thunderx2t99"),
    ],
)
def test_targets_have_the_names_of_gcc(target: str, value: str) -> None:
    assert easybuild_program.optarch(target) == value


def test_gcc_has_the_option_of_each_known_target() -> None:
    """The options that archspec lists for releases of GCC are what GCC takes; options such as +sve come behind a name."""
    wrong = {}
    for name, target in archspec.cpu.TARGETS.items():
        if not cpu_targets.is_known(name) or (value := easybuild_program.optarch(name)) == "GENERIC":
            continue
        entries = target.compilers["gcc"]
        options = {word for entry in entries for word in entry["flags"].replace("{name}", entry.get("name", name)).split()}
        if f"-{value}" not in {option.partition("+")[0] for option in options}:
            wrong[name] = value
    assert wrong == {}


def test_the_installed_release_must_be_that_of_the_lock() -> None:
    other = msgspec.structs.replace(STACK, release="4.9.4")
    with pytest.raises(BadTask, match=r"EasyBuild 5\.[0-9.]+ is installed for .*, the lock names 4\.9\.4"):
        easybuild_program.locate(other, {"EB_PYTHON": sys.executable})


def test_a_missing_modules_tool_is_told_before_any_build() -> None:
    release = msgspec.structs.replace(STACK, release=importlib.metadata.version("easybuild-framework"))
    with pytest.raises(BadTask, match="Lmod is not installed: /nosuch/lmod is no program"):
        easybuild_program.locate(release, {"EB_PYTHON": sys.executable, "LMOD_CMD": "/nosuch/lmod"})
