"""Tests of a hand-made tree with the real Lmod, gcc, OpenMPI and ReFrame, in the sandbox of builds."""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from steps.softwarestack import tree_parts
from steps.softwarestack.builds import builder_cpu
from steps.softwarestack.contract.output_patterns import OutputReference
from steps.softwarestack.contract.stack_input import LUA, StackInput, StackLimits, StackTestCase
from steps.softwarestack.contract.stack_input import TCL as TCL_SYNTAX
from steps.softwarestack.contract.stack_tests import StackTestOutcome, StackTestResult
from steps.softwarestack.tree import elf_links, link_checks, lmod_modules, target_choice, tree_assembly
from steps.softwarestack.tree.link_checks import TraceRules
from steps.softwarestack.tree.lmod_modules import LmodError
from steps.softwarestack.tree_tests import module_tests, reframe_tests, tree_sandbox
from steps.softwarestack.tree_tests.reframe_tests import ReframeRun
from steps.softwarestack.tree_tests.tree_sandbox import TreeSite
from tests.unit.softwarestack import small_trees
from tests.unit.softwarestack.small_trees import MODULES, HandmadePackages, folder, package, place
from workflows.softwarestack import smoke_tests

PASS, FAIL, TIMEOUT, ERROR = StackTestOutcome.PASS, StackTestOutcome.FAIL, StackTestOutcome.TIMEOUT, StackTestOutcome.ERROR
NOT_TESTED = StackTestOutcome.NOT_TESTED
SECRET = "hunter2-canary-42"
COMPILED = """
#include <stdio.h>
#ifdef LIBRARY
int answer(void) { return 42; }
#else
int answer(void);
int main(void) { printf("the answer is %d\\n", answer()); return 0; }
#endif
"""
MPI_HELLO = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  rank += 1;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 1) printf("%d ranks, sum %d\\n", size, sum);
  MPI_Finalize();
  return 0;
}
"""
REFRAME = """
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Answer(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    modules = ["GCC/12", "app/1.0"]
    executable = "app"
    reference = {"*": {"value": (42, -0.1, 0.1, "units")}}

    @sanity_function
    def answers(self):
        return sn.assert_found("the answer is", self.stdout)

    @performance_function("units")
    def value(self):
        return sn.extractsingle(r"is (\\d+)", self.stdout, 1, float)
"""

WRONG = """
@rfm.simple_test
class Question(Answer):
    @sanity_function
    def answers(self):
        return sn.assert_found("the question", self.stdout)
"""


TCL = f"""#%Module1.0
conflict tcl
module load lib/1.0
prepend-path PATH {place("tcl")}/bin
"""


def compiled(folder_path: Path, name: str, source: str, *options: str, compiler: str = "gcc") -> bytes:
    """The bytes of a program or library that the machine's compiler made."""
    (folder_path / "source.c").write_text(source)
    subprocess.run([compiler, "source.c", "-o", name, *options], cwd=folder_path, check=True)
    return (folder_path / name).read_bytes()


def packages(work: Path) -> HandmadePackages:
    """A hierarchy: GCC in Core opens the folder with lib, app, mpi, and modules that are broken on purpose."""
    work.mkdir()
    source = HandmadePackages()
    library = compiled(work, "libanswer.so.1", COMPILED, "-DLIBRARY", "-shared", "-fPIC", "-Wl,-soname,libanswer.so.1")
    (work / "libanswer.so").symlink_to("libanswer.so.1")
    app = compiled(work, "app", COMPILED, "-L.", "-lanswer", f"-Wl,-rpath,{place('lib')}/lib")
    inner = "Compiler/GCC/12"
    source.add("GCC", {}, f'prepend_path("MODULEPATH", "{MODULES}/all/{inner}")', at="Core/GCC/12")
    source.add("lib", {"lib/libanswer.so.1": library}, at=f"{inner}/lib/1.0")
    source.add("app", {"bin/app": app}, 'depends_on("lib/1.0")', 'setenv("QUOTED", [[a "b" \\ $HOME]])', at=f"{inner}/app/1.0")
    source.add("mpi", {"bin/hello": compiled(work, "hello", MPI_HELLO, compiler="mpicc")}, at=f"{inner}/mpi/1.0")
    source.add("lost", {}, 'depends_on("nothere/3.1")', at=f"{inner}/lost/1.0")
    source.add("rival", {}, 'depends_on("lib/1.0")', 'conflict("lib")', at=f"{inner}/rival/1.0")
    source.add("slow", {}, "while true do end", at="Core/slow/1.0")
    source.add("hidden", {}, at="Compiler/other/hidden/1.0")
    source.add("syntax", {}, "setenv(", at=f"{inner}/syntax/1.0")
    source.add("tcl", {"bin/tcl-app": "#!/bin/sh\necho by Tcl\n"})
    source.module_files[small_trees.hash_of("tcl")] = {f"all/{inner}/tcl/1.0": TCL}
    return source


GOOD = ("GCC", "lib", "app", "mpi", "tcl")
AT = {"GCC": "Core/GCC/12", "slow": "Core/slow/1.0", "hidden": "Compiler/other/hidden/1.0"}


def stack(names: Iterable[str], tests: Iterable[StackTestCase] = (), reframe: Mapping[str, bytes] | None = None) -> StackInput:
    members = [package(name, module=AT.get(name, f"Compiler/GCC/12/{name}/1.0")) for name in names]
    made = small_trees.stack(*members, tests=tests, reframe=reframe)
    return type(made)(**{name: getattr(made, name) for name in made.__struct_fields__} | {"limits": StackLimits(load_seconds=5)})


@pytest.fixture(scope="module")
def handmade(tmp_path_factory: pytest.TempPathFactory) -> HandmadePackages:
    return packages(tmp_path_factory.mktemp("work") / "c")


def assemble(trees: Path, source: HandmadePackages, made: StackInput) -> TreeSite:
    seen = tree_assembly.assemble(trees, made, source, TraceRules(workspaces=("/build",)))
    assert seen.problems == ()
    lmod = lmod_modules.find_lmod(os.environ)
    assert lmod is not None
    interpreter = reframe_tests.find_interpreter(os.environ)
    return tree_sandbox.site(
        made,
        tree_assembly.tree_folder(trees, seen.digest),
        lmod,
        lambda text: text.replace(SECRET, "[redacted]"),
        hidden=(trees,),
        programs=reframe_tests.interpreter_folders(interpreter),
    )


def loads(site: TreeSite) -> dict[str, StackTestResult]:
    results = module_tests.load_all(site, module_tests.module_routes(site), print)
    return {result.name.split("/")[-2]: result for result in results}


def test_modules_of_a_hierarchy_load(tmp_path: Path, handmade: HandmadePackages) -> None:
    results = loads(assemble(tmp_path, handmade, stack(GOOD)))
    assert {name: result.outcome for name, result in results.items()} == dict.fromkeys(GOOD, PASS), results


def test_broken_modules_are_named_with_their_reason(tmp_path: Path, handmade: HandmadePackages) -> None:
    results = loads(assemble(tmp_path, handmade, stack((*GOOD, "lost", "rival", "hidden", "syntax"))))
    assert {name for name, result in results.items() if result.outcome is PASS} == set(GOOD), results
    assert "nothere/3.1" in results["lost"].output
    assert results["rival"].outcome is FAIL
    assert "lib" in results["rival"].output
    assert "nothing that users can load adds its folder to MODULEPATH" in results["hidden"].output
    assert results["syntax"].outcome is FAIL


@pytest.mark.parametrize(("has_own", "syntax"), [(True, TCL_SYNTAX), (False, LUA)], ids=["one_fits", "none_fits"])
def test_code_of_a_cpu_target_that_this_machine_lacks_is_not_run(tmp_path: Path, has_own: bool, syntax: str) -> None:
    own = builder_cpu.read().architecture
    other, another = ("a64fx", "aarch64") if own == "x86_64" else ("zen4", "x86_64")
    targets, source = (own if has_own else another, other), HandmadePackages()
    for target in targets:
        source.add(f"app_{target}", {"bin/app": f"#!/bin/sh\necho code of {target}\n"}, at="Core/app/1.0")
    members = (replace(package(f"app_{target}", module="Core/app/1.0"), target=target) for target in targets)
    cases = (StackTestCase(name=target, command=("app",), modules=("app",), target=target, expect=target) for target in targets)
    made = replace(small_trees.stack(*members, tests=cases, reframe={"a.py": b""}), targets=targets, syntax=syntax)
    site = assemble(tmp_path, source, made)
    lacking = module_tests.lacking_targets(made, builder_cpu.read())
    assert set(lacking) == set(targets) - {own}
    choice = module_tests.load_choice(site, print, lacking)
    assert (choice.outcome, choice.output) == (PASS, f"it chooses {own if has_own else 'no target'} on this machine")
    by_name = dict[str, StackTestResult]()
    for target in targets:
        view = tree_sandbox.site(made, site.tree, site.lmod, str, target=target)
        by_name |= {result.name: result for result in tree_parts.test_site(view, "", {}, lacking, print).results}
    assert {by_name[f"{target}/Core/app/1.0"].outcome for target in targets} == {PASS}
    why = f"the CPU of this machine lacks {lacking[other]}, which {other} needs"
    assert (by_name[other].outcome, by_name[other].output, by_name[other].target) == (NOT_TESTED, why, other)
    assert (by_name[targets[0]].outcome is PASS) == has_own, by_name
    file = site.tree / target_choice.path(made)
    file.write_text(file.read_text().replace("all/Core", "all/Elsewhere"))
    wrong = module_tests.load_choice(site, print, lacking)
    assert ("MODULEPATH lacks /software/small/current/modules/" in wrong.output) == (wrong.outcome is FAIL) == has_own
    (unread,) = reframe_tests.run_all(view, "", {}, False, print, lacking).results
    assert (unread.name, unread.outcome, unread.output) == (f"a.py for {other}", NOT_TESTED, why)


def test_a_command_is_not_run_if_a_needed_package_is_for_another_cpu(tmp_path: Path, handmade: HandmadePackages) -> None:
    """A lock of Spack may have packages for several CPU targets, whose modules lie side by side."""
    other = "a64fx" if builder_cpu.read().architecture == "x86_64" else "zen4"
    made = stack(("GCC", "lib", "app", "mpi"))
    needed = {"lib": {"target": other}, "app": {"runtime": (small_trees.hash_of("lib"),)}}
    made = replace(made, packages=tuple(replace(package, **needed.get(package.name, {})) for package in made.packages))
    site = assemble(tmp_path, handmade, made)
    routes, lacking = module_tests.module_routes(site), module_tests.lacking_targets(made, builder_cpu.read())
    for name, command, outcome in (("app", "app", NOT_TESTED), ("mpi", "true", PASS)):
        case = StackTestCase(name="case", command=(command,), modules=("GCC/12", f"{name}/1.0"))
        result = module_tests.run_command(site, routes, case, print, lacking)
        assert (result.outcome, result.target) == (outcome, other if outcome is NOT_TESTED else ""), result


def test_a_module_file_without_end_is_no_pass(tmp_path: Path, handmade: HandmadePackages) -> None:
    """Lmod's spider evaluates each module file, and this one never ends."""
    site = assemble(tmp_path, handmade, stack((*GOOD, "slow")))
    with pytest.raises(LmodError, match=r"spider did not list the modules: it was ended after \d+ s"):
        module_tests.module_routes(site)
    first = module_tests.first_routes(site)
    results = {result.name: result for result in module_tests.load_all(site, first, print, unlisted="no spider")}
    outcomes = {name: results[name].outcome for name in ("Core/GCC/12", "Core/slow/1.0", "Compiler/GCC/12/app/1.0")}
    assert list(outcomes.values()) == [PASS, TIMEOUT, ERROR], results


def run(site: TreeSite, *command: str, modules: Iterable[str] = ("GCC/12", "app/1.0"), seconds: int = 20) -> StackTestResult:
    routes = module_tests.module_routes(site)
    case = StackTestCase(name="case", command=command, modules=tuple(modules), timeout_seconds=seconds)
    return module_tests.run_command(site, routes, case, print)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, handmade: HandmadePackages) -> TreeSite:
    return assemble(tmp_path_factory.mktemp("trees"), handmade, stack(GOOD))


def test_a_command_runs_with_its_modules_where_the_stack_will_be(good: TreeSite) -> None:
    result = run(good, "app")
    assert (result.outcome, result.output) == (PASS, "the answer is 42")
    by_full_name = run(good, "app", modules=("Compiler/GCC/12/app/1.0",))
    assert by_full_name.outcome is PASS
    where = run(good, "sh", "-c", f'command -v app; echo "$QUOTED"; ls {place("lib")}/lib')
    assert where.output == f'{place("app")}/bin/app a "b" \\ $HOME libanswer.so.1'


@pytest.mark.parametrize(
    ("fields", "outcome", "output"),
    [
        ({"expect": "^the answer is [0-9]+$"}, PASS, "the answer is 42"),
        ({"expect": "^the question"}, FAIL, "no line matches ^the question: the answer is 42"),
        ({"reference": OutputReference(pattern="is ([0-9]+)", least=40, most=45)}, PASS, "the answer is 42"),
        ({"reference": OutputReference(pattern="is ([0-9]+)", most=5)}, FAIL, "performance: the figure is 42, expected at most 5"),
        ({"reference": OutputReference(pattern="(answer)", most=5)}, FAIL, "no figure like (answer): the answer is 42"),
    ],
)
def test_a_command_is_judged_by_what_it_prints(
    good: TreeSite, fields: dict[str, Any], outcome: StackTestOutcome, output: str
) -> None:
    case = StackTestCase(name="case", command=("app",), modules=("GCC/12", "app/1.0"), incident="It broke.", **fields)
    result = module_tests.run_command(good, module_tests.first_routes(good), case, print)
    assert (result.outcome, result.output, result.incident) == (outcome, output, "It broke.")
    assert result.value == (42 if "reference" in fields and outcome is PASS else None)


@pytest.mark.parametrize("name", ["mpi_ranks", "gcc_compiles", "perl_modules"])
def test_shipped_tests_pass_with_the_programs_of_the_machine(good: TreeSite, name: str) -> None:
    smoke = next(test for test in smoke_tests.shipped() if test.name == name)
    case = StackTestCase(name=name, command=smoke.command("/usr"), modules=("GCC/12",), expect=smoke.expect)
    result = module_tests.run_command(good, (), case, print)
    assert result.outcome is PASS, result


def test_shipped_tests_alone_may_leave_a_package_untested(good: TreeSite) -> None:
    for may_skip, outcome in ((True, StackTestOutcome.NOT_TESTED), (False, FAIL)):
        case = StackTestCase(name="case", command=("sh", "-c", "echo without it; exit 77"), modules=("GCC/12",), may_skip=may_skip)
        result = module_tests.run_command(good, (), case, print)
        assert (result.outcome, result.output.startswith("without it")) == (outcome, True), result


def test_shipped_tests_do_not_test_programs_of_the_system(good: TreeSite) -> None:
    smoke = next(test for test in smoke_tests.shipped() if test.name == "perl_modules")
    case = StackTestCase(name="perl", command=smoke.command(place("app")), modules=("GCC/12",), expect=smoke.expect)
    result = module_tests.run_command(good, (), case, print)
    assert (result.outcome, result.output.split(",")[0]) == (FAIL, "perl is /usr/bin/perl"), result


def test_module_files_may_be_tcl(good: TreeSite) -> None:
    result = run(good, "sh", "-c", 'tcl-app; echo "$LOADEDMODULES"', modules=("GCC/12", "tcl/1.0"))
    assert (result.outcome, result.output) == (PASS, "by Tcl GCC/12:lib/1.0:tcl/1.0")


def test_modules_of_a_flat_scheme_load(tmp_path: Path) -> None:
    source = HandmadePackages()
    source.add("one", {"bin/one": "#!/bin/sh\necho 1\n"}, at="one/1.0")
    source.add("two", {}, 'depends_on("one/1.0")', at="two/1.0")
    made = small_trees.stack(package("one", module="one/1.0"), package("two", ["one"], module="two/1.0"), naming="EasyBuildMNS")
    site = assemble(tmp_path, source, made)
    assert {name: result.outcome for name, result in loads(site).items()} == {"one": PASS, "two": PASS}
    assert run(site, "one", modules=("two",)).output == "1"


def test_no_shell_reads_a_command(good: TreeSite) -> None:
    assert run(good, "echo", "$HOME;", "`id`", "*").output == "$HOME; `id` *"


def test_commands_that_fail_are_named(good: TreeSite) -> None:
    failed = run(good, "sh", "-c", "echo it broke >&2; exit 3")
    assert (failed.outcome, failed.output) == (FAIL, "it broke (it ended with 3)")
    silent = run(good, "false")
    assert (silent.outcome, silent.output) == (FAIL, "no output (it ended with 1)")
    missing = run(good, "no-such-program")
    assert missing.outcome is ERROR
    assert "no-such-program" in missing.output
    unloaded = run(good, "app", modules=("GCC/99",))
    assert unloaded.outcome is FAIL
    assert re.search(r"its modules GCC/99 do not load: .*GCC/99", unloaded.output)


def test_a_command_has_a_time_limit_with_all_its_children(good: TreeSite) -> None:
    result = run(good, "sh", "-c", "echo begun; sleep 987 & sleep 988", seconds=1)
    assert result.outcome is TIMEOUT
    assert "begun (ended after 1 s)" in result.output
    assert result.seconds < 15
    assert not [words for words in running() if words[:1] == ["sleep"] and words[1] in ("987", "988")]


def running() -> Iterable[list[str]]:
    """Return the words of all programs that run on this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace").split("\0")


def test_output_is_bounded_and_redacted(good: TreeSite) -> None:
    result = run(good, "sh", "-c", f"head -c 30000000 /dev/zero | tr '\\0' x; echo; echo {SECRET} at the end")
    assert result.outcome is PASS
    assert result.output.endswith("[redacted] at the end")
    assert len(result.output) <= tree_sandbox.MOST_TEXT


def test_a_test_cannot_change_the_tree_or_reach_the_network(good: TreeSite) -> None:
    assert run(good, "touch", f"{place('lib')}/x").outcome is FAIL
    assert run(good, "sh", "-c", f"test ! -e {good.tree}").outcome is PASS
    assert run(good, "sh", "-c", "grep -vc lo: /proc/net/dev").output == "2"  # two lines of heading
    assert run(good, "sh", "-c", 'touch here && test "$PWD" = /build').outcome is PASS


def test_mpi_runs_with_two_ranks(good: TreeSite) -> None:
    result = run(good, "mpirun", "-n", "2", "hello", modules=("GCC/12", "mpi/1.0"), seconds=60)
    assert (result.outcome, result.output) == (PASS, "2 ranks, sum 3")


def reframe(tmp_path: Path, source: HandmadePackages, seconds: int = 120, **files: str) -> ReframeRun:
    content = {f"tests/{name}.py": text.encode() for name, text in files.items()}
    made = stack(GOOD, reframe=content)
    limits = StackLimits(load_seconds=5, reframe_seconds=seconds)
    made = type(made)(**{name: getattr(made, name) for name in made.__struct_fields__} | {"limits": limits})
    site = assemble(tmp_path, source, made)
    by_digest = {test.sha256: content[test.path] for test in made.reframe}
    return reframe_tests.run_all(site, reframe_tests.find_interpreter(os.environ), by_digest, reframe_tests.has_mpi(site), print)


def test_reframe_passes_with_measured_values(tmp_path: Path, handmade: HandmadePackages) -> None:
    ran = reframe(tmp_path, handmade, answer=REFRAME)
    assert ran.listed == ("tests/answer.py: Answer",)
    (result,) = ran.results
    assert (result.name, result.outcome, result.output) == ("tests/answer.py: Answer", PASS, "value=42.0 units"), result


def test_reframe_failures_are_named(tmp_path: Path, handmade: HandmadePackages) -> None:
    ran = reframe(
        tmp_path,
        handmade,
        two=REFRAME.replace("(42,", "(60,") + WRONG,
        broken=REFRAME + "\nimport no_such_module\n",
        elsewhere=REFRAME.replace('valid_systems = ["*"]', 'valid_systems = ["daint:gpu"]'),
    )
    results = {result.name: result for result in ran.results}
    assert sorted(ran.listed) == ["tests/two.py: Answer", "tests/two.py: Question"]
    assert results["tests/two.py: Answer"].outcome is FAIL
    assert results["tests/two.py: Answer"].output.startswith(
        "performance: failed to meet reference(s): value=42.0 units, expected 60"
    )
    assert results["tests/two.py: Question"].output.startswith("sanity: pattern 'the question' not found")
    assert results["tests/broken.py"].outcome is ERROR
    assert "no_such_module" in results["tests/broken.py"].output
    assert results["tests/elsewhere.py"].output == "ReFrame selects no test of it: none is for this system and environment"


def test_reframe_has_a_time_limit(tmp_path: Path, handmade: HandmadePackages) -> None:
    endless = REFRAME.replace('executable = "app"', 'executable = "sleep"\n    executable_opts = ["900"]')
    ran = reframe(tmp_path, handmade, seconds=1, endless=endless)
    assert ran.listed == ("tests/endless.py: Answer",)
    assert [result.outcome for result in ran.results] == [TIMEOUT]


def test_elf_links_are_those_of_readelf() -> None:
    """The other reader of the same libraries is binutils."""
    paths = [path for path in sorted(Path("/usr/lib/x86_64-linux-gnu").glob("*.so*")) if path.is_file()][::4]
    checked = 0
    for path in paths:
        with path.open("rb") as file:
            if not elf_links.is_elf(file.read(4)):
                continue
            links = elf_links.facts(lambda offset, size, file=file: os.pread(file.fileno(), size, offset))  # type: ignore[misc]
        output = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
        assert links.needed == tuple(re.findall(r"NEEDED\).*\[(.*)\]", output)), path
        assert links.soname == "".join(re.findall(r"SONAME\).*\[(.*)\]", output)), path
        assert links.runpath == tuple(part for text in re.findall(r"RUNPATH\).*\[(.*)\]", output) for part in text.split(":")), path
        checked += 1
    assert checked > 30


def test_a_real_program_is_judged_by_its_links(tmp_path: Path, handmade: HandmadePackages) -> None:
    """A program that was linked against the build's folder is found: its rpath, and the library that it needs."""
    work = tmp_path / "c"
    work.mkdir()
    (work / "libanswer.so").write_bytes(handmade.files[small_trees.hash_of("lib")]["lib/libanswer.so.1"])  # type: ignore[arg-type]
    source = HandmadePackages()
    source.add("app", {"bin/app": compiled(work, "app", COMPILED, "-L.", "-lanswer", "-Wl,-rpath,/build/lib")})
    seen = tree_assembly.assemble(tmp_path / "trees", small_trees.stack(package("app")), source, TraceRules(workspaces=("/build",)))
    assert [(one.kind.value, one.path) for one in seen.problems] == [
        ("rpath", f"packages/{folder('app')}/bin/app"),
        ("library", f"packages/{folder('app')}/bin/app"),
    ]
    assert link_checks.package_of(seen.problems[0].path) == folder("app")
