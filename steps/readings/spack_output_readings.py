"""Readings of what commands of Spack print: installs, pushes to a build cache, concretizations, tests, and errors of compilers.

Exit codes do not decide, since Spack ends with 0 where nothing was installed for want of a lock. A command counts as done only if
its output says so, without an error. Texts are those of Spack 0.23 (lib/spack/spack/installer.py, binary_distribution.py, cmd/).
"""

import re
from typing import Any

from msgspec import Struct

from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass
from steps.readings.captured_text import CapturedText
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ToolReading, failed, passed, undecided

TOOL = "spack"
_INPUT, _PERMISSION, _DEPENDENCY, _RUNTIME = (
    FailureClass.INPUT,
    FailureClass.PERMISSION,
    FailureClass.DEPENDENCY,
    FailureClass.RUNTIME,
)
_RECOGNISED = re.compile(
    r"^==> (?:Installing|Error:|Warning:|Fetching|Pushed|Concretized|Updating|Checking for|The spec|No new|No patches|Selected)"
    r"|^==> (?:Tagged|\S+: (?:Exec|Succ)|Staging summary|\[ *\d+/\d+\] Pushed|Failed to push|Regenerating|Testing|In environment)"
    r"|^==> (?:Spack test|\d+ installed|/\S+ environment)|^\[\+\] /\S|^spack \w[\w ]*: error: |/spack/lib/spack/env/"
    r"|spack-build-out\.txt|^ *-- linux-\S+ / \S+@\S+ -+|Lmod has detected the following error",
    re.MULTILINE,
)


class SpackFault(Struct, frozen=True):
    """A kind of failure: its class, a pattern, its cause by the pattern's groups, and if a plain repetition can help."""

    kind: str
    failure_class: FailureClass
    pattern: str
    cause: str
    retry: bool = False


_FAULTS = (
    SpackFault("usage", _INPUT, r"^spack [\w -]+: error: argument [^\n]*?(?P<what>invalid argument|not allowed[^\n]*)", "{what}"),
    SpackFault("module", _INPUT, r"The following module\(s\) are unknown:\s*\"(?P<what>[^\"\n]+)", "unknown module {what}"),
    SpackFault("disk_full", _RUNTIME, r"Cannot write: No space left on device", "No space left on device (stage)", retry=True),
    SpackFault(
        "disk_full", _RUNTIME, r"No space left on device|\[Errno 28\]", "No space left on device (store), Errno 28", retry=True
    ),
    SpackFault(
        "store_lost", _RUNTIME, r"^==> Error: \[Errno 2\] No such file[^\n]*/\.spack-db/", "store gone during the build", retry=True
    ),
    SpackFault("missing_dependency", _DEPENDENCY, r"\d+ uninstalled dependenc\w+: (?P<what>[\w-]+?)-\d", "{what} not installed"),
    SpackFault(
        "bad_yaml",
        _INPUT,
        r"/(?P<file>spack\.yaml):(?P<line>\d+): [^\n]*\((?P<what>'[^'\n]*' was unexpected)",
        "{what}, {file}:{line}",
    ),
    SpackFault("bad_yaml", _INPUT, r"(?P<what>error parsing YAML)", "{what}"),
    SpackFault("no_environment", _INPUT, r"^==> Error: no environment in ", "no environment in the folder"),
    SpackFault("no_lock", _INPUT, r"environment has no specs to install", "environment has no specs to install"),
    SpackFault("repository", _INPUT, r"(?P<what>Unknown namespace: \S+)", "{what}"),
    SpackFault("unknown_package", _INPUT, r"Package '[^'\n]*' not found", "Package not found"),
    SpackFault("unsat", _INPUT, r"(?P<what>No such variant '[^'\n]*' in package \S+)", "{what}"),
    SpackFault("unknown_variant", _INPUT, r"No such variant \{", "No such variant"),
    SpackFault("unsat", _INPUT, r"(?P<what>cannot satisfy a requirement for package) '(?P<name>[^'\n]*)'", "{what} {name}"),
    SpackFault("unsat", _INPUT, r"failed to concretize[^\n]*", "failed to concretize"),
    SpackFault(
        "unknown_hash", _INPUT, r"no matching specs are in the current environment", "no matching specs in the current environment"
    ),
    SpackFault("unknown_hash", _INPUT, r"(?P<what>matches no installed packages|No package matches the query)", "{what}"),
    SpackFault("unknown_hash", _INPUT, r"No spec with hash \S+ could be found", "hash resolves only through database or index"),
    SpackFault("registry_tls", _DEPENDENCY, r"WRONG_VERSION_NUMBER", "WRONG_VERSION_NUMBER: registry without TLS"),
    SpackFault("registry_tls", _DEPENDENCY, r"CERTIFICATE_VERIFY_FAILED", "CERTIFICATE_VERIFY_FAILED"),
    SpackFault("signing_key", _PERMISSION, r"(?P<what>No secret key|No default key available for signing)", "{what}"),
    SpackFault("tampered", _INPUT, r"sha256 checksum failed for \S+\.spack\b", "sha256 checksum failed"),
    SpackFault("checksum", _INPUT, r"ChecksumError: sha256 checksum failed", "sha256 mismatch"),
    SpackFault("relocation", _INPUT, r"CannotGrowString", "CannotGrowString"),
    SpackFault("signature", _PERMISSION, r"^gpg: BAD signature", "BAD signature"),
    SpackFault("signature", _PERMISSION, r"^gpg: [^\n]*No public key|(?s:NoVerifyException.*No public key)", "No public key"),
    SpackFault("signature", _PERMISSION, r"UnsignedPackageException", "UnsignedPackageException"),
    SpackFault("cache_incomplete", _DEPENDENCY, r"NoVerifyException", "tarball missing"),
    SpackFault(
        "cache_miss",
        _DEPENDENCY,
        r"Failed to install (?P<name>\S+) due to InstallError: (?P<what>No binary found when cache-only was specified)",
        "{name} not in cache: {what}",
    ),
    SpackFault(
        "fetch",
        _DEPENDENCY,
        r"All fetchers failed for (?:spack-stage-)?resource-(?P<name>[\w-]+?)-[a-z2-7]{32}",
        "resource {name} not in the source mirror",
        retry=True,
    ),
    SpackFault("fetch", _DEPENDENCY, r"All fetchers failed", "All fetchers failed", retry=True),
    SpackFault(
        "test", _RUNTIME, r"^=+ (?P<failed>\d+) failed(?:, \d+ passed)? of (?P<all>\d+) specs? =+", "{failed} failed of {all} parts"
    ),
    SpackFault("test", _RUNTIME, r"'\S*/make' [^\n]*'(?P<what>check|test)'\n[\s\S]*install-time-test-log", "make {what} exit 2"),
    SpackFault("link", _RUNTIME, r"(?P<what>undefined reference to) [`'](?P<name>[\w.:@]+)", "{what} {name}"),
    SpackFault("configure", _RUNTIME, r"configure: error: (?!in [`'])(?P<what>[^\n]+)", "{what}"),
    SpackFault(
        "compile",
        _RUNTIME,
        r"(?P<file>[\w./+-]+\.\w+):(?P<line>\d+):\d+: error: [`'‘](?P<name>\w+)['’] undeclared",
        "undeclared identifier, {file}:{line} ({name})",
    ),
    SpackFault("compile", _RUNTIME, r"REMOVED_IN_\s*MPI30\((?P<name>MPI_\w+)", "{name} removed in MPI-3.0"),
    SpackFault("compile", _RUNTIME, r":\d*: error: (?P<what>[^\n]+)[\s\S]*\*\*\* \[", "{what}"),
    SpackFault("compile", _RUNTIME, r"(?P<file>[\w./+-]+\.\w+):\d+:\d+: error: (?P<what>[^\n]+)", "{what} ({file})"),
    SpackFault("install_phase", _RUNTIME, r"(?P<what>make: )\*\*\* (?P<rule>No rule to make target '[^'\n]*')", "{what}{rule}"),
    SpackFault("build", _RUNTIME, r"^==> Error: (?P<what>ProcessError[^\n]*)", "{what}"),
)
"""Kinds of failures; the first one that a text has is its cause, since a full disk or a lost store makes compilers fail, too."""
_ERROR = re.compile(r"^(?:==> )?Error: (?P<what>[^\n]+)|^==> Failed to push", re.MULTILINE)
_DONE = (
    ("installed", re.compile(r"^==> \S+: Successfully installed ", re.MULTILINE)),
    ("pushed", re.compile(r"^==> (?:\[ *\d+/\d+\] )?Pushed \S+/[a-z2-7]{7}", re.MULTILINE)),
    ("concretized", re.compile(r"^==> Concretized (?:\d+ specs?|\S+)", re.MULTILINE)),
)
_PRESENT = re.compile(
    r"^\[\+\] /|^==> (?:The spec is already in the buildcache|No new specs to concretize|Tagged \S+)", re.MULTILINE
)
_ROOTS = re.compile(r"^==> (\d{1,6}) root specs?", re.MULTILINE)
_INSTALLED_ROOT = re.compile(r"^\[\+\] +(?:[a-z2-7]{7,32} +)?[a-z0-9][\w-]*(?:[ @+~%]|$)", re.MULTILINE)
_MISSING_ROOT = re.compile(r"^ - +(?:[a-z2-7]{7,32} +)?[a-z0-9][\w-]*(?:[ @+~%]|$)", re.MULTILINE)
_ARCHITECTURE = re.compile(r"^ *-- linux-\S+ / \S+@\S+ -+", re.MULTILINE)
_LISTED = re.compile(r"^(?:[a-z2-7]{7}|[a-z2-7]{32}) [a-z0-9][\w-]*@\S+", re.MULTILINE)
_TESTED = re.compile(r"^=+ (?P<passed>\d+) passed[^\n]* of \d+ specs? =+", re.MULTILINE)


def is_output(text: str) -> bool:
    """Return True for output of a command of Spack, or of a build that it started."""
    return _RECOGNISED.search(text) is not None


def read_output(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of an output: its first cause, or what the command says that it did."""
    text = captured.text
    figures: dict[str, Any] = {name: len(pattern.findall(text)) for name, pattern in _DONE}
    for fault in _FAULTS:
        if match := re.search(fault.pattern, text, re.MULTILINE):
            figures |= {"kind": fault.kind, "retry": fault.retry} | _package(text)
            groups = {name: value or "" for name, value in match.groupdict().items()}
            return failed(TOOL, fault.failure_class, fault.cause.format(**groups) + _skipped(text), figures)
    if match := _ERROR.search(text):
        return failed(TOOL, _RUNTIME, match["what"] or "failed to push", figures | {"kind": "unknown"})
    if match := _TESTED.search(text):
        return passed(TOOL, figures | {"tests": int(match["passed"])}, f"{count(int(match['passed']), 'test')} passed")
    if listing := _listing(text):
        return passed(TOOL, figures | listing, ", ".join(f"{number} {name}" for name, number in listing.items()))
    if any(figures.values()) or _PRESENT.search(text):
        words = ", ".join(f"{number} {name}" for name, number in figures.items() if number) or "everything was there already"
        return passed(TOOL, figures, words)
    return undecided(TOOL, "the output does not say that anything was done", figures)


def _listing(text: str) -> dict[str, int]:
    """Return the counts of a list that a command answers with: specs of a cache, roots of an environment, jobs of a pipeline."""
    if stated := _ROOTS.search(text):
        installed, missing = len(_INSTALLED_ROOT.findall(text)), len(_MISSING_ROOT.findall(text))
        roots = int(stated[1])
        is_whole = installed + missing >= roots
        return {"roots": roots, "installed_roots": installed, "missing_roots": roots - installed} if is_whole else {}
    if "==> Staging summary" in text:
        return {"scheduled": text.count("(Scheduled, "), "pruned": text.count("(Pruned, ")}
    listed = len(_LISTED.findall(text)) if _ARCHITECTURE.search(text) else 0
    return {"listed": listed} if listed else {}


def _package(text: str) -> dict[str, str]:
    names = re.findall(r"^==> (?:Error: Failed to install (\S+) due|Installing (\S+?)-\d\S*)", text, re.MULTILINE)
    failed_names = [first for first, _ in names if first]
    return {"package": failed_names[0] if failed_names else names[-1][1]} if names else {}


def _skipped(text: str) -> str:
    match = re.search(r"Skipping build of (?P<name>[\w-]+?)-\d\S* since (?P<failed>[\w-]+?)-\d\S* failed", text)
    return f"; {match['failed']} failed, {match['name']} skipped" if match else ""
