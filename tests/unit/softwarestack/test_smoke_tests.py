"""Tests that bringup ships: their data, the packages that get one, and what a plan says of them."""

from collections.abc import Iterable

from msgspec.structs import replace

from steps.softwarestack.contract import output_patterns, stack_input
from steps.softwarestack.contract.stack_input import StackInput, StackPackage, StackSource, StackTestCase
from tests.unit.softwarestack import small_trees
from tests.unit.softwarestack.small_locks import chain, lock
from workflows.app.stacks.stack_plans import PlannedStack
from workflows.softwarestack import smoke_tests, spack_lock, stack_plan

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
