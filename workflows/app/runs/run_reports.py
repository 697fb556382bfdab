"""Reports of a run as text (table, JSON, YAML, HTML, JUnit), and the JUnit file of a command that starts a run."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import yaml

from steps.clients import regular_files
from steps.clients.regular_files import FileKind
from steps.contract.exit import ExitCode
from steps.errors import StepError
from steps.report import html, junit, model, public_report, text, timeline
from workflows.app.runs import clustermax_report, run_evidence
from workflows.app.runs.report_assembly import RunEvidence, assemble
from workflows.app.runs.screen import Screen
from workflows.engines.folders import StateFolder
from workflows.engines.locks import ClusterBusy


class NoSuchForm(ValueError):
    """Error for an unknown form of a report."""

    def __init__(self, form: str) -> None:
        super().__init__(f"{form!r} is no form of a report; use {', '.join(FORMS)}")


FORMS: dict[str, Callable[[model.Report], str]] = {
    "table": text.text,
    "json": lambda report: msgspec.json.format(msgspec.json.encode(report)).decode(),
    "yaml": lambda report: yaml.safe_dump(msgspec.to_builtins(report), sort_keys=False, allow_unicode=True),
    "html": html.html,
    "junit": lambda report: junit.junit(report).decode(),
    "clustermax": clustermax_report.text,
}


def report(evidence: RunEvidence, form: str, *, for_public: bool) -> str:
    """Return a run's report as text in one of FORMS (see `checked_report`)."""
    return checked_report(evidence, form, for_public=for_public)[0]


def checked_report(evidence: RunEvidence, form: str, *, for_public: bool) -> tuple[str, tuple[str, ...]]:
    """Return a run's report as text in one of FORMS, and how its files differ from its seal.

    With `for_public`, hosts, addresses, paths and topology are left out. Raises BadTask if the run's first task left no record.
    """
    report = assemble(evidence)
    return FORMS[form](public_report.public(report) if for_public else report), report.unsealed


def write_file(file: Path, text: str) -> None:
    """Write a report to a file that the user names. Raises OSError; a symbolic link there is one, since it may lead anywhere."""
    kind = regular_files.kind_of(file)
    if kind is FileKind.LINK:
        raise OSError(errno.ELOOP, f"is a symbolic link to {file.readlink()}: reports are not written through links", str(file))
    if not file.parent.is_dir():  # a misspelt folder must not come to be
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    if kind in (None, FileKind.FILE):
        regular_files.write(file.parent, file.name, text.encode())
    else:  # a device or a FIFO that somebody reads
        file.write_text(text)


def keep_junit(screen: Screen, home: StateFolder, run: str, file: Path, code: int) -> int:
    """Write an ended run's JUnit report and return the exit code: `code`, or an error's code if `code` is 0 and the report failed.

    A run without evidence here (its `open` failed, or the home cluster went away) gets a report of one failed case.
    """
    try:
        text = report(run_evidence.kept(home.find(run)), "junit", for_public=False)
    except (run_evidence.NotPulled, StepError) as problem:
        text = _one_case(run, "failure", f"no report can be made of it: {problem}", "inconclusive")
        screen.error(f"{file} says only that there is no report: {problem}", problem.hint)
        code = code or ExitCode.GATE_FAILED
    wrote = _written(screen, file, text)
    return code or wrote


@dataclass
class Unfinished:
    """The JUnit file while a run's result is unknown: one case with an error, which CI takes neither for passed nor for failed.

    The file exists from the beginning of the command, and is replaced at the end of the run. So it is right however the command
    ends before, and no server shows an earlier build's file. `code` is the exit code for `--no-wait`.
    """

    screen: Screen
    file: Path | None
    code: ExitCode = ExitCode.OK
    run: str = ""

    @contextmanager
    def explained(self, spec: str) -> Iterator[None]:
        """Write at the beginning of this context that no run has begun, and on an error why.

        Raises OSError if the file is unwritable.
        """
        if self.file is not None:
            write_file(self.file, _one_case(spec, "error", "no run has begun: the command says why", "not begun"))
        try:
            yield
        except (StepError, ValueError, OSError, ClusterBusy) as problem:
            if self.file is not None and (not self.run or isinstance(problem, ClusterBusy)):
                _written(self.screen, self.file, _one_case(spec, "error", f"no run has begun: {problem}", "not begun"))
            raise

    def begun(self, run: str, follow: str) -> None:
        """Write that the run goes on; `follow` is the command that follows it."""
        self._say(run, f"run {run} goes on; follow it: {follow}")

    def begun_here(self, run: str) -> None:
        """Write how to resume a run of this command, in case the command is killed."""
        self._say(run, f"the engine of run {run} has not come to its end; if it is gone: bringup resume {run}")

    def _say(self, run: str, sentence: str) -> None:
        self.run = run
        if self.file is not None:
            self.code = _written(self.screen, self.file, _one_case(run, "error", f"not finished: {sentence}", "unfinished"))


def keep_nothing_changed(screen: Screen, file: Path, name: str, summary: str, kind: str) -> ExitCode:
    """Write the JUnit report of a build that had nothing to do: one passed case in suite `kind`. Return the exit code."""
    root = ElementTree.Element("testsuites", name=f"bringup {name}")
    suite = ElementTree.SubElement(root, "testsuite", name=kind, tests="1", failures="0", errors="0", skipped="0")
    ElementTree.SubElement(suite, "testcase", classname=kind, name=f"{name} {summary}: nothing changed")
    return _written(screen, file, ElementTree.tostring(root, encoding="unicode"))


def _written(screen: Screen, file: Path, text: str) -> ExitCode:
    try:
        write_file(file, text)
    except OSError as problem:
        screen.error(f"the report for CI servers was not written: {file}: {problem.strerror}")
        return ExitCode.USAGE
    return ExitCode.OK


def _one_case(run: str, what: str, reason: str, kind: str) -> str:
    """Return JUnit XML with one case about a run, which ends with an `error` or a `failure` (`what`)."""
    root = ElementTree.Element("testsuites", name=f"bringup {run}")
    failures, errors = str(int(what == "failure")), str(int(what == "error"))
    suite = ElementTree.SubElement(root, "testsuite", name="run", tests="1", failures=failures, errors=errors, skipped="0")
    printable = "".join(letter if letter.isprintable() else " " for letter in reason)  # XML 1.0 allows no control characters
    case = ElementTree.SubElement(suite, "testcase", classname="run", name=run)
    ElementTree.SubElement(case, what, message=printable, type=kind)
    return ElementTree.tostring(root, encoding="unicode")


def note(evidence: RunEvidence) -> str:
    """Return a draft of a run's post-incident note as Markdown."""
    return timeline.note(assemble(evidence), run_evidence.lost(evidence.folder)).rstrip()


def moments(evidence: RunEvidence) -> Any:
    """Return a run's timeline as a list of mappings, in order of time."""
    return msgspec.to_builtins(timeline.timeline(assemble(evidence), run_evidence.lost(evidence.folder)))
