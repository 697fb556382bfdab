"""ReFrame tests of a spec in the sandbox of the tree: generated settings, one run for each file, results from the JSON report.

ReFrame is asked first which tests a file has; a test that its report lacks afterwards has no result, which the gate sees.
ReFrame files are Python that runs as the tests do: in the sandbox, without network and secrets.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients import python_programs, regular_files
from steps.clients.regular_files import FileKind
from steps.contract import plain_text
from steps.contract.canonical import UNREADABLE_JSON
from steps.errors import BadTask
from steps.softwarestack.builds.package_sandbox import BUILD
from steps.softwarestack.contract import stack_tests
from steps.softwarestack.contract.stack_input import StackTestFile
from steps.softwarestack.contract.stack_tests import PERFORMANCE, StackTestKind, StackTestOutcome, StackTestResult
from steps.softwarestack.tree_tests import module_tests
from steps.softwarestack.tree_tests.bounded_process import BoundedEnd
from steps.softwarestack.tree_tests.tree_sandbox import TreeSite, is_missing, scratch_folder

INTERPRETER: Final = "RFM_PYTHON"
"""Variable with the interpreter that ReFrame is installed for."""
LARGEST_REPORT: Final = 32 << 20
_LONGEST_NAME: Final = 200
_START: Final = "from reframe.frontend.cli import main; main()"
_SETTINGS, _REPORT, _TESTS, _PREFIX = "settings.yaml", "report.json", "tests", "reframe"


class ReframeRun(Struct, frozen=True, kw_only=True):
    """Tests that ReFrame listed for the files of a stack, as `FILE: TEST`, and the results of those that ran."""

    listed: tuple[str, ...] = ()
    results: tuple[StackTestResult, ...] = ()


class _Described(Struct):
    """A test as `reframe --describe` lists it."""

    display_name: str


class _Case(Struct):
    """A test in ReFrame's report."""

    display_name: str
    result: str
    fail_phase: str | None = None
    fail_reason: str | None = None
    time_total: float | None = None
    perfvalues: dict[str, Any] | None = None


class _Session(Struct):
    """A run in ReFrame's report."""

    testcases: list[_Case]


class _Report(Struct):
    """ReFrame's report, schema 4."""

    runs: list[_Session]


def find_interpreter(environ: Mapping[str, str]) -> str:
    """Return ReFrame's interpreter: RFM_PYTHON, else this one, else the one beside `reframe` in PATH. Raises BadTask."""
    if interpreter := python_programs.interpreter_of("reframe", "reframe", INTERPRETER, environ):
        return interpreter
    raise BadTask("ReFrame is not installed", hint=f"pip install reframe-hpc, or name the interpreter that has it by {INTERPRETER}")


def interpreter_folders(interpreter: str) -> tuple[Path, ...]:
    """Return the folders that an interpreter needs: its environment, and the Python that this was made with."""
    path = Path(interpreter)
    return (path.parent.parent, path.resolve().parent.parent)


def settings(has_mpi: bool) -> dict[str, Any]:
    """Return ReFrame's settings for the local machine: one system, one partition, one environment, modules by Lmod.

    The names are those of ReFrame's own defaults, so a test for any system, or for the generic one, runs.
    """
    partition = {"name": "default", "scheduler": "local", "launcher": "mpirun" if has_mpi else "local", "environs": ["builtin"]}
    system = {"name": "generic", "hostnames": [".*"], "modules_system": "lmod", "partitions": [partition]}
    handler = {"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"}
    environment = {"name": "builtin", "cc": "cc", "cxx": "c++", "ftn": "gfortran"}
    return {
        "systems": [system],
        "environments": [environment],
        "logging": [{"level": "info", "handlers": [handler], "handlers$": [handler]}],
    }


def run_all(
    site: TreeSite,
    interpreter: str,
    files: Mapping[str, bytes],
    has_mpi: bool,
    say: Callable[[str], None],
    lacking: Mapping[str, str] = MappingProxyType({}),
) -> ReframeRun:
    """Run the ReFrame tests of all files of a stack and return their results. `files` has their content by SHA-256.

    Their jobs load modules by themselves, so none is run if the CPU target of the site, or of the stack, is in `lacking`.
    """
    if (target := site.target or site.stack.target) in lacking:
        names = [stack_tests.name_for(test_file.path, site.target) for test_file in site.stack.reframe]
        results = (StackTestResult(name=name, kind=StackTestKind.REFRAME, outcome=StackTestOutcome.NOT_TESTED) for name in names)
        return ReframeRun(results=tuple(module_tests.as_not_tested(result, target, lacking) for result in results))
    left, runs = float(site.stack.limits.reframe_seconds), list[ReframeRun]()
    for test_file in site.stack.reframe:
        with scratch_folder() as scratch:
            program = _ReframeFile(site, interpreter, scratch, test_file)
            program.prepare(files.get(test_file.sha256), has_mpi)
            run, seconds = program.run(left, say)
        runs.append(run)
        left = max(1.0, left - seconds)
    return ReframeRun(
        listed=tuple(test for run in runs for test in run.listed), results=tuple(result for run in runs for result in run.results)
    )


class _ReframeFile:
    """ReFrame with one file of tests, in a scratch folder of its own."""

    def __init__(self, site: TreeSite, interpreter: str, scratch: Path, test_file: StackTestFile) -> None:
        self._site, self._interpreter, self._scratch, self._file = site, interpreter, scratch, test_file

    def prepare(self, content: bytes | None, has_mpi: bool) -> None:
        """Write settings and tests into the scratch folder. Raises BadTask if the stack lacks the file."""
        if content is None:
            raise BadTask(f"the stack has no content of {self._file.path}", hint="render again and submit all files together")
        place = self._scratch / _TESTS / self._file.path
        place.parent.mkdir(parents=True)
        place.write_bytes(content)
        # YAML, as which JSON can be read: ReFrame gives up JSON
        (self._scratch / _SETTINGS).write_text(json.dumps(settings(has_mpi)))

    def run(self, seconds: float, say: Callable[[str], None]) -> tuple[ReframeRun, float]:
        """Return the tests of the file with their results, and the seconds that all of it took."""
        listing = self._reframe(["--describe"], seconds)
        try:
            names = tuple(map(self._name, _described(listing)))
        except UNREADABLE_JSON as error:
            say(f"{self._file.path}: ReFrame lists no tests\n{self._site.redact(listing.tail)}".rstrip())
            return self._without_tests(f"ReFrame cannot list its tests: {error}: {listing.tail}"), listing.seconds
        if not names:
            # --describe is silent about files that it cannot import
            warnings = self._reframe(["--list"], seconds)
            say(f"{self._file.path}: ReFrame selects no test\n{self._site.redact(warnings.tail)}".rstrip())
            reason = f"ReFrame selects no test of it: {_warning(warnings.tail)}"
            return self._without_tests(reason), listing.seconds + warnings.seconds
        options = ["--run", f"--report-file={BUILD}/{_REPORT}", "--exec-policy=serial"]
        ended = self._reframe(options, seconds)
        text = self._site.redact(ended.tail).rstrip()
        say(f"{self._file.path}: ReFrame ended with {ended.code} after {ended.seconds:.1f} s\n{text}")
        return ReframeRun(listed=names, results=self._results(ended, names)), listing.seconds + ended.seconds

    def _reframe(self, options: list[str], seconds: float) -> BoundedEnd:
        words = [self._interpreter, "-I", "-c", _START, "-C", f"{BUILD}/{_SETTINGS}", "--nocolor", f"--prefix={BUILD}/{_PREFIX}"]
        words += ["-c", f"{BUILD}/{_TESTS}/{self._file.path}", *options]
        # jobs are bash scripts; bash reads this file before, which defines `module`
        environment = {"LMOD_CMD": self._site.lmod.lmod, "BASH_ENV": self._site.lmod.bash, "RFM_AUTODETECT_XTHOSTNAME": "0"}
        return self._site.run(words, seconds + timeouts.STACK_REFRAME_START, environment, self._scratch)

    def _name(self, test: str) -> str:
        return f"{stack_tests.name_for(self._file.path, self._site.target)}: {plain_text.line(test)[:_LONGEST_NAME]}"

    def _without_tests(self, reason: str) -> ReframeRun:
        result = StackTestResult(
            name=stack_tests.name_for(self._file.path, self._site.target),
            kind=StackTestKind.REFRAME,
            outcome=StackTestOutcome.ERROR,
            output=self._site.text(reason),
        )
        return ReframeRun(results=(result,))

    def _results(self, ended: BoundedEnd, names: tuple[str, ...]) -> tuple[StackTestResult, ...]:
        """Return the results in the report; listed tests that it lacks ran out of time, or have none."""
        cases = [self._result(case) for case in _cases(self._scratch / _REPORT)]
        known = {result.name for result in cases}
        if ended.is_late:
            late = StackTestResult(name="", kind=StackTestKind.REFRAME, outcome=StackTestOutcome.TIMEOUT)
            cases += [
                msgspec.structs.replace(late, name=name, output=self._site.text(ended.tail)) for name in names if name not in known
            ]
        return tuple(cases)

    def _result(self, case: _Case) -> StackTestResult:
        outcome = {"pass": StackTestOutcome.PASS, "fail": StackTestOutcome.FAIL}.get(case.result, StackTestOutcome.ERROR)
        return StackTestResult(
            name=self._name(case.display_name),
            kind=StackTestKind.REFRAME,
            outcome=outcome,
            seconds=round(case.time_total or 0.0, 3),
            output=self._site.text(_performance(case) if outcome is StackTestOutcome.PASS else _failure(case)),
        )


def _warning(output: str) -> str:
    """Return ReFrame's warning about a file of tests; empty if all its tests are for other systems."""
    lines = output.splitlines()
    start = next((number for number, line in enumerate(lines) if "skipping test" in line), len(lines))
    return " ".join(lines[start : start + 3]) or "none is for this system and environment"


def _described(listing: BoundedEnd) -> list[str]:
    """Return the names of the tests in the output of `reframe --describe`, which is JSON after a few lines of text."""
    _, mark, text = f"\n{listing.out}".partition("\n[")
    document = f"[{text}" if mark else ""
    end = document.rfind("]")
    return [test.display_name for test in msgspec.json.decode(document[: end + 1], type=list[_Described])]


def _cases(path: Path) -> list[_Case]:
    """Return the tests in ReFrame's report; none if it cannot be read, since a test without a result is no pass."""
    try:
        # a test may have made a link or a FIFO of that name
        if regular_files.kind_of(path) is not FileKind.FILE or path.stat().st_size > LARGEST_REPORT:
            return []
        data = regular_files.read(path.parent, path.name)
        return [case for run in msgspec.json.decode(data, type=_Report).runs for case in run.testcases]
    except (OSError, *UNREADABLE_JSON):
        return []


def _failure(case: _Case) -> str:
    reason = case.fail_reason or f"it ended as {case.result} in phase {case.fail_phase}"
    for phase, mark in (("performance error: ", PERFORMANCE), ("sanity error: ", "sanity: ")):
        if reason.startswith(phase):
            return mark + reason.removeprefix(phase)
    return f"{case.fail_phase}: {reason}" if case.fail_phase else reason


def _performance(case: _Case) -> str:
    """Return the measured values of a test, such as `bw=12.5 MB/s`."""
    values = []
    for name, row in (case.perfvalues or {}).items():
        if isinstance(row, list) and len(row) > 4:
            values.append(f"{name.rpartition(':')[2]}={row[0]} {row[4]}")
    return ", ".join(values)


def has_mpi(site: TreeSite) -> bool:
    """Return True if tests can be started with mpirun: of the stack, or of the operating system."""
    names = {package.name.lower() for package in site.stack.installed}
    return bool(names & {"openmpi", "mpich", "impi", "intel-oneapi-mpi", "mvapich", "mvapich2", "psmpi"}) or not is_missing(
        "mpirun"
    )
