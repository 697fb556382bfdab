"""Modules of Spack by compiler and MPI: folders and providers of real and small locks, and the files that an assembled tree has."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from steps.softwarestack.builds.builders import spack_environment
from steps.softwarestack.contract import stack_input
from steps.softwarestack.contract.spack_layout import COMPILER, CORE, HIERARCHICAL, MPI
from steps.softwarestack.contract.stack_input import (
    BuildCacheLocation,
    ModuleProvider,
    SpackFiles,
    StackInput,
    StackInputError,
    StackPackage,
)
from steps.softwarestack.tree import lmod_modules, module_placement
from tests.unit.softwarestack import small_locks
from tests.unit.softwarestack.small_locks import DATA, hash_of
from workflows.softwarestack import spack_lock
from workflows.softwarestack.build_graph import BuildGraph, LockError
from workflows.softwarestack.spack_hierarchy import ModuleHierarchy

LMOD = "/usr/share/lmod/lmod/libexec/lmod"
COMPILERS = [{"compiler": {"spec": "gcc@=13.2.0", "paths": {"cc": "/opt/gcc/bin/gcc"}}}]


def _spec(name: str, compiler: str, *runtime: str, **fields: Any) -> dict[str, Any]:
    kind, _, version = compiler.partition("@")
    return small_locks.spec(name, runtime, compiler={"name": kind, "version": version}, **fields)


def _graph(*specs: dict[str, Any], version: int = 5) -> BuildGraph:
    by_name = {spec["name"]: spec for spec in specs}
    return spack_lock.parse(small_locks.lock(by_name, by_name, version), "lock")


def _folders(hierarchy: ModuleHierarchy) -> dict[str, str]:
    return {name.rsplit("/", 2)[1]: name.rsplit("/", 2)[0] for name in hierarchy.modules.values()}


def _mpi(name: str = "mpich") -> str:
    return f"{name}/1.0-{hash_of(name)[:7]}"


@pytest.mark.parametrize(
    ("lock", "core", "folder", "providers"),
    [
        ("v4_58specs_mpigdb.spack.lock", {"gcc@12.2.1"}, "mpich/4.1.1-3uebtou/Core", 1),
        ("v5_1238specs_ncar_derecho.spack.lock", {"gcc@7.5.0"}, "openmpi/5.0.5-ek7vstx/gcc/13.2.0", 53),
        ("v5_17specs_chfs.spack.lock", {"gcc@9.4.0"}, CORE, 0),
        ("v6_98specs_phgasnets.spack.lock", {"gcc@13.3.0"}, "openmpi/5.0.7-bzbufnx/Core", 1),
        ("v6_213specs_cuda_attention.spack.lock", {"gcc@11.4.0", "gcc@14.3.0"}, CORE, 0),
        ("real_0.23/env_stack.spack.lock", {"gcc@12.2.0"}, "openmpi/4.1.4-unvlsce/Core", 1),
        ("real_0.23/env_matrix.spack.lock", {"gcc@12.2.0"}, "gcc/11.3.0", 1),
    ],
)
def test_modules_of_real_locks_lie_by_compiler_and_mpi_and_all_folders_become_visible(
    lock: str, core: set[str], folder: str, providers: int
) -> None:
    hierarchy = ModuleHierarchy(spack_lock.read(DATA / lock))
    folders = {name.rsplit("/", 2)[0] for name in hierarchy.modules.values()}
    assert folder in folders
    made = hierarchy.providers()
    assert len(made) == providers
    assert {unlocked for provider in made for unlocked in provider.unlocks} >= folders - {CORE}
    # Core has the packages of these compilers alone: no folder is theirs
    assert not folders & {compiler.replace("@", "/") for compiler in core}
    assert len(set(hierarchy.modules.values())) == len(hierarchy.modules)


def test_the_recorded_real_spack_has_the_same_folder_for_the_program_of_an_mpi_of_the_site() -> None:
    recorded = (DATA / "real_0.23/prod_lmod_hierarchy.txt").read_text()
    hierarchy = ModuleHierarchy(spack_lock.read(DATA / "real_0.23/env_stack.spack.lock"))
    (module,) = (name for name in hierarchy.modules.values() if "/mpi-ring/" in name)
    assert f"/{module.rsplit('/', 2)[0]}:\nmpi-ring/\n" in recorded


def test_a_compiler_of_the_site_gets_a_module_and_its_packages_a_folder() -> None:
    specs = (_spec("sed", "gcc@12.2.0"), _spec("fft", "gcc@13.2.0"))
    hierarchy = ModuleHierarchy(_graph(*specs), core=("gcc@12.2.0",), compilers=COMPILERS)
    assert _folders(hierarchy) == {"sed": CORE, "fft": "gcc/13.2.0"}
    (provider,) = hierarchy.providers()
    expected = ModuleProvider(module="Core/gcc/13.2.0", family=COMPILER, unlocks=("gcc/13.2.0",), site=True, prefix="/opt/gcc")
    assert provider == expected


def test_a_compiler_of_the_stack_makes_its_packages_visible_and_its_builder_is_core() -> None:
    compiler = small_locks.spec("llvm", compiler={"name": "gcc", "version": "12.2.0"})
    hierarchy = ModuleHierarchy(_graph(compiler, _spec("fft", "clang@1.0"), _spec("sed", "gcc@12.2.0")))
    assert _folders(hierarchy) == {"llvm": CORE, "fft": "clang/1.0", "sed": CORE}
    (provider,) = hierarchy.providers()
    assert (provider.module, provider.unlocks, provider.site) == (f"Core/llvm/1.0-{hash_of('llvm')[:7]}", ("clang/1.0",), False)


def test_an_mpi_of_the_site_has_a_module_for_each_compiler_of_its_users() -> None:
    specs = (
        _spec("mpich", "gcc@12.2.0", external={"path": "/opt/mpich/"}),
        _spec("lib", "gcc@12.2.0", "mpich"),
        _spec("app", "gcc@13.2.0", "lib", "mpich"),
    )
    hierarchy = ModuleHierarchy(_graph(*specs))
    assert _folders(hierarchy) == {"lib": f"{_mpi()}/Core", "app": f"{_mpi()}/gcc/13.2.0"}
    mpi = [provider for provider in hierarchy.providers() if provider.family == MPI]
    assert [(provider.module, provider.unlocks, provider.prefix) for provider in mpi] == [
        (f"Core/{_mpi()}", (f"{_mpi()}/Core",), "/opt/mpich"),
        (f"gcc/13.2.0/{_mpi()}", (f"{_mpi()}/Core", f"{_mpi()}/gcc/13.2.0"), "/opt/mpich"),
    ]


def test_an_mpi_by_another_name_is_known_by_who_needs_it() -> None:
    app = _spec("app", "gcc@12.2.0", "mympi")
    app["dependencies"][0]["parameters"]["virtuals"] = ["mpi"]
    hierarchy = ModuleHierarchy(_graph(_spec("mympi", "gcc@12.2.0"), app))
    assert _folders(hierarchy) == {"mympi": CORE, "app": f"{_mpi('mympi')}/Core"}


@pytest.mark.parametrize(
    ("specs", "core", "why"),
    [
        ((_spec("a", "gcc@12"), _spec("b", "gcc@13", "a")), ("clang@17",), "clang@17, which builds none"),
        (
            (_spec("a", "gcc@12"), _spec("b", "gcc@13", "a")),
            ("gcc@13",),
            "gcc@13, needs a@1.0, built with gcc@12",
        ),
        (
            (_spec("mpich", "gcc@12"), _spec("b", "gcc@13", "mpich")),
            (),
            "needs mpich@1.0, built with gcc@12: an MPI library's module can show packages of its own compiler alone",
        ),
        (
            (_spec("mpich", "gcc@12", external={"path": "/a b"}), _spec("b", "gcc@12", "mpich")),
            (),
            "/a b.*odd characters",
        ),
    ],
    ids=["core", "reach", "mpi", "prefix"],
)
def test_modules_that_nobody_could_load_are_refused(specs: Iterable[dict[str, Any]], core: tuple[str, ...], why: str) -> None:
    with pytest.raises(LockError, match=why):
        ModuleHierarchy(_graph(*specs), core=core).providers()


def test_an_mpi_of_one_core_compiler_serves_packages_of_another() -> None:
    specs = (_spec("mpich", "gcc@12"), _spec("b", "gcc@13", "mpich"))
    hierarchy = ModuleHierarchy(_graph(*specs), core=("gcc@12", "gcc@13"))
    assert [(provider.module, provider.unlocks) for provider in hierarchy.providers()] == [(f"Core/{_mpi()}", (f"{_mpi()}/Core",))]


@pytest.mark.parametrize("module", ["gcc", "Core/gcc"])
def test_a_provider_without_folder_name_and_version_is_refused(module: str) -> None:
    stack = _stack(syntax="lua")
    assert stack.spack is not None
    hostile = replace(stack, spack=replace(stack.spack, providers=(replace(stack.spack.providers[0], module=module, site=True),)))
    with pytest.raises(StackInputError, match=f"'{module}' .* no module FOLDER/NAME/VERSION"):
        stack_input.decode(stack_input.encode(hostile))


def _stack(*, syntax: str, naming: str = HIERARCHICAL) -> StackInput:
    """Return a stack of a core package, one of a compiler of the site, and one of an MPI library of the stack."""
    specs = (
        _spec("sed", "gcc@12.2.0"),
        _spec("mpich", "gcc@13.2.0", "sed"),
        _spec("app", "gcc@13.2.0", "mpich"),
    )
    graph = _graph(*specs)
    hierarchy = ModuleHierarchy(graph, compilers=COMPILERS)
    packages = tuple(
        StackPackage(
            hash=hash_,
            name=(node := graph.nodes[hash_]).name,
            version=node.version,
            runtime=node.runtime,
            module=hierarchy.modules[hash_] if naming == HIERARCHICAL else f"Core/{node.name}/1.0-{hash_[:7]}",
        )
        for hash_ in graph.order
    )
    files = SpackFiles(lock="0" * 64, settings="0" * 64, providers=hierarchy.providers() if naming == HIERARCHICAL else ())
    return StackInput(
        name="lab",
        backend="spack",
        release="0.23.0",
        root="/srv/stacks",
        packages=packages,
        roots=graph.roots,
        cache=BuildCacheLocation(folder=""),
        naming=naming if naming == HIERARCHICAL else "",
        syntax=syntax,
        spack=files,
    )


def _placed(folder: Path, stack: StackInput) -> Path:
    """Return the folder of modules of a stack, with what Spack writes into it, arranged."""
    for package in stack.installed:
        needs = [stack.by_hash[hash_] for hash_ in package.runtime]
        names = [f"{needed.name}/{needed.version}-{needed.hash[:7]}" for needed in needs]
        texts = (
            [*(f'depends_on("{name}")' for name in names), f'setenv("{package.name.upper()}_ROOT", "/x")'],
            ["#%Module1.0", *(f"depends-on {name}" for name in names), f"setenv {package.name.upper()}_ROOT {{/x}}"],
        )
        for path, text in zip(spack_environment.module_paths(package), texts, strict=True):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text("\n".join(text) + "\n")
    module_placement.place(stack, folder)
    return folder


@pytest.mark.parametrize("syntax", ["lua", "tcl"])
def test_a_tree_has_modules_in_one_language_at_their_places(tmp_path: Path, syntax: str) -> None:
    stack = stack_input.decode(stack_input.encode(_stack(syntax=syntax)))
    modules = _placed(tmp_path, stack)
    ending = ".lua" if syntax == "lua" else ""
    named = {f"all/{name}{ending}" for name in (*(package.module for package in stack.installed), "Core/gcc/13.2.0")}
    assert {path.relative_to(modules).as_posix() for path in modules.rglob("*") if path.is_file()} == named
    site = (modules / f"all/Core/gcc/13.2.0{ending}").read_text()
    assert ("/opt/gcc/bin" in site, "/srv/stacks/lab/current/modules/all/gcc/13.2.0" in site) == (True, True)


@pytest.mark.parametrize("syntax", ["lua", "tcl"])
def test_lmod_walks_from_compiler_to_mpi_to_program(tmp_path: Path, syntax: str) -> None:
    stack = _stack(syntax=syntax)
    modules = _placed(tmp_path, stack)
    root = "/srv/stacks/lab/current/modules"
    for path in (path for path in modules.rglob("*") if path.is_file()):
        path.write_text(path.read_text().replace(root, str(modules)))  # as if it were published here

    def load(*names: str) -> tuple[bool, str]:
        environment = {
            "PATH": "/usr/bin:/bin",
            "MODULEPATH": f"{modules}/all/Core",
            "LMOD_IGNORE_CACHE": "yes",
            "HOME": str(tmp_path),
        }
        done = subprocess.run([LMOD, "python", "load", *names], env=environment, capture_output=True, text=True, check=False)
        return "_mlstatus = True" in done.stdout, done.stdout + done.stderr

    assert load("gcc", "mpich", "app")[0], load("gcc", "mpich", "app")[1]
    assert not load("app")[0]
    assert not load("gcc", "app")[0]
    variables = lmod_modules.environment(load("gcc", "mpich", "app")[1])
    assert {"APP_ROOT", "MPICH_ROOT", "SED_ROOT"} <= variables.keys()


def test_places_and_language_of_modules_decide_the_key_and_flat_lua_ones_leave_it_as_it_was() -> None:
    flat = _stack(syntax="lua", naming="flat")
    assert flat.arrangement == []
    keys = {flat.key, _stack(syntax="tcl", naming="flat").key, _stack(syntax="lua").key, _stack(syntax="tcl").key}
    assert len(keys) == 4
