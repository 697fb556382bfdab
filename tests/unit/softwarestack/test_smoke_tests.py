"""Tests that bringup ships: their data, the packages that get one, and what a plan says of them."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.softwarestack.contract import output_patterns, stack_input
from steps.softwarestack.contract.stack_input import StackInput, StackPackage, StackSource, StackTestCase
from tests.unit import small_stack
from tests.unit.softwarestack import small_trees
from tests.unit.softwarestack.small_locks import chain, lock
from workflows.app.stacks import stack_plans
from workflows.app.stacks.stack_plans import PlannedStack
from workflows.softwarestack import smoke_tests, spack_lock, stack_plan
from workflows.softwarestack.stack_spec import load_stack
from workflows.spec.errors import SpecErrors

SOURCES = (StackSource(name="source.tar.gz", sha256="0" * 64),)


def package(name: str, **fields: object) -> StackPackage:
    return replace(small_trees.package(name), **{"sources": SOURCES, **fields})


def cases(*packages: StackPackage, tests: Iterable[StackTestCase] = ()) -> list[str]:
    return [case.name for case in smoke_tests.cases(small_trees.stack(*packages, tests=tests))]


def test_the_shipped_tests_judge_output_and_name_their_incidents() -> None:
    tests = smoke_tests.shipped()
    assert len({test.name for test in tests}) == len(tests) >= 10
    names = [name for test in tests for name in test.packages]
    assert len(set(names)) == len(names)
    for test in tests:
        assert test.incident.endswith(".")
        assert test.expect or test.reference is not None
        assert output_patterns.problem(test.expect) == ""
        assert len(test.script) < 2000


def test_packages_of_both_tools_get_a_test() -> None:
    assert cases(package("OpenMPI"), package("hdf5"), package("zlib")) == ["mpi_ranks of OpenMPI@1.0", "hdf5_files of hdf5@1.0"]
    (case,) = smoke_tests.cases(small_trees.stack(package("HDF5")))
    assert (case.command[:3], case.modules) == (("/bin/sh", "-e", "-c"), ("Core/HDF5/1.0",))
    assert case.command[4:] == ("hdf5_files", small_trees.place("HDF5"), "h5import", "h5repack", "h5dump")
    assert cases(package("Python"), package("python", hash=small_trees.hash_of("other"), version="3.11")) == [
        "python_modules of python@3.11"
    ]


def test_own_tests_sites_and_toolchains_keep_theirs() -> None:
    own = StackTestCase(name="own", command=("true",), modules=("OpenMPI/4.1",))
    full = StackTestCase(name="full", command=("true",), modules=("MPI/GCC/12/OpenMPI/4/HDF5/1.0",))
    packages = (package("OpenMPI"), package("HDF5"))
    assert cases(*packages, tests=[own]) == ["hdf5_files of HDF5@1.0"]
    assert cases(*packages, tests=[full]) == ["mpi_ranks of OpenMPI@1.0"]
    assert cases(package("GCC", sources=()), package("OpenMPI", external=True), package("HDF5", module="")) == []


def test_single_tests_are_left_out_by_name() -> None:
    made = small_trees.stack(package("OpenMPI"), package("hdf5"))
    (case,) = smoke_tests.cases(made, ["mpi_ranks"])
    assert (case.name, case.may_skip) == ("hdf5_files of hdf5@1.0", True)
    assert smoke_tests.unknown(["mpi_ranks", "mpi_rank"]) == ["mpi_rank"]


def test_a_spec_names_tests_that_exist_and_its_plan_says_what_they_leave_out(tmp_path: Path) -> None:
    with pytest.raises(SpecErrors) as refused:
        load_stack(small_stack.write(tmp_path, skip_smoke_tests=["mpi_rank"]))
    (error,) = refused.value.errors
    assert "no shipped test has the name mpi_rank" in str(error)
    planned = stack_plans.prepare(str(small_stack.write(tmp_path, skip_smoke_tests=["mpi_ranks"])), None, None, (4,))
    assert planned.notes == ("not tested by shipped tests mpi_ranks: skip_smoke_tests names them",)
    planned = stack_plans.prepare(str(small_stack.write(tmp_path, smoke_tests=False)), None, None, (4,))
    assert planned.notes == ("not tested by the tests that bringup ships: smoke_tests is false",)


LAUNCHER = "#!/bin/sh\necho '2 ranks, sum 3'\n"
PYTHON = "#!/bin/sh\ncase $2 in *_ssl*|*', ssl'*|*lzma*) exit 1 ;; *execute*) echo 42 ;; esac\n"
FFTW = "#!/bin/sh\necho '(fftw-3.3.10 fftwl_wisdom #x0'\n"
VARIANTS: dict[str, tuple[str, dict[str, str], dict[str, object], int, str]] = {
    "slurm alone": ("mpi_ranks", {"mpicc": ""}, {"legacylaunchers": False, "schedulers": ["slurm"]}, 77, "without the launchers"),
    "no hydra": ("mpi_ranks", {"mpicc": ""}, {"hydra": False}, 77, "without the launchers"),
    "launcher lost": ("mpi_ranks", {"mpicc": ""}, {"legacylaunchers": True}, 1, "neither mpirun nor mpiexec is of"),
    "no variants": ("mpi_ranks", {"mpicc": ""}, {}, 1, "neither mpirun nor mpiexec is of"),
    "mpiexec": ("mpi_ranks", {"mpicc": "", "mpiexec": LAUNCHER}, {}, 0, "2 ranks, sum 3"),
    "no compiler": ("mpi_ranks", {"mpiexec": LAUNCHER}, {"legacylaunchers": False}, 1, "mpicc is"),
    "python of choice": (
        "python_modules",
        {"python3": PYTHON},
        {"lzma": False, "ssl": False},
        77,
        "modules lzma ssl;",
    ),
    "python lost": ("python_modules", {"python3": PYTHON}, {"lzma": False, "ssl": True}, 1, ""),
    "long double": ("fftw_plans", {"fftwl-wisdom": FFTW}, {"precision": ["long_double"]}, 0, "(fftw-3.3.10 fftwl_wisdom"),
    "no fftw": ("fftw_plans", {}, {}, 1, "no program like fftw-wisdom"),
    "ilp64": ("openblas_multiplies", {}, {"ilp64": True, "symbol_suffix": "none"}, 77, "integers of 4 bytes"),
    "suffix": ("openblas_multiplies", {}, {"ilp64": False, "symbol_suffix": "64_"}, 77, "integers of 4 bytes"),
    "no library": ("openblas_multiplies", {}, {"ilp64": False, "symbol_suffix": "none"}, 1, ""),
}


@pytest.mark.parametrize(("name", "programs", "variants", "code", "words"), VARIANTS.values(), ids=VARIANTS)
def test_variants_without_what_is_tested_are_named(
    tmp_path: Path, name: str, programs: dict[str, str], variants: dict[str, object], code: int, words: str
) -> None:
    for folder in ("bin", ".spack", "work"):
        (tmp_path / folder).mkdir()
    for program, text in programs.items():
        (tmp_path / "bin" / program).write_text(text or "#!/bin/sh\n")
        (tmp_path / "bin" / program).chmod(0o755)
    nodes = [{"name": "it", "parameters": variants | {"cflags": []}}, {"name": "other", "parameters": {"legacylaunchers": False}}]
    (tmp_path / ".spack/spec.json").write_text(json.dumps({"spec": {"_meta": {"version": 4}, "nodes": nodes}}))
    smoke = next(test for test in smoke_tests.shipped() if test.name == name)
    place = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "OPENBLAS_ROOT": str(tmp_path)}
    done = subprocess.run(
        smoke.command(str(tmp_path)), env=place, cwd=tmp_path / "work", capture_output=True, text=True, check=False
    )
    assert (done.returncode if done.returncode in (0, 77) else 1) == code, done
    assert words in done.stdout + done.stderr
    if code == 0:
        assert output_patterns.matching_line(smoke.expect, done.stdout)


def test_two_builds_of_a_package_get_a_test_each() -> None:
    first, second = package("hdf5"), package("hdf5", hash=small_trees.hash_of("other"), module="Core/hdf5/2")
    names = cases(first, second)
    assert names == [f"hdf5_files of hdf5@1.0/{one.hash[:7]}" for one in (first, second)]


def test_a_plan_lists_shipped_tests_with_their_incidents() -> None:
    own = StackTestCase(name="own", command=("true",))
    tests = (own, *smoke_tests.cases(small_trees.stack(package("hdf5"))))
    graph = spack_lock.parse(lock(chain(), ["app"]), "spack.lock")
    planned = PlannedStack(stack_plan.plan(graph), (4,), tests=tests, own=frozenset({"own"}), notes=("A note.",))
    sentences = list(planned.sentences())
    assert "1 test of the spec, 1 that bringup ships for packages without one" in sentences
    assert sentences[-2].startswith("shipped test hdf5_files of hdf5@1.0: HDF5 was linked")
    assert sentences[-1] == "A note."
    assert [(test["name"], test["shipped"]) for test in planned.values()["tests"]] == [("own", False), (tests[1].name, True)]


def test_words_about_a_test_change_no_key_and_its_pattern_does() -> None:
    def made(**fields: str) -> StackInput:
        return small_trees.stack(package("hdf5"), tests=[StackTestCase(name="t", command=("true",), **fields)])  # type: ignore[arg-type]

    assert made().key == made(incident="It broke.").key
    assert made().key != made(expect="good").key
    assert stack_input.decode(stack_input.encode(made(expect="good"))).tests[0].expect == "good"
