"""Read what a command of Spack did: from its arguments, exit code and output, without looking at any file.

Exit codes do not decide. Spack exits with 0 where an environment has no lock and nothing was installed, and where results of a
failed test suite are printed; it exits with 3 where a store ran full. So a command counts as done only if its output says so.
Patterns are those of a real Spack 0.23 (lib/spack/spack/installer.py, binary_distribution.py and cmd/ of
https://github.com/spack/spack).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import HASH_CHARACTERS

HEAD_CHARACTERS: Final = 100_000
TAIL_CHARACTERS: Final = 900_000
"""Part of an output that is read: its beginning, and its end, where Spack sums errors up."""
LINES: Final = 12
LINE_CHARACTERS: Final = 300
"""Bounds of the decisive lines that a record keeps."""

_INSTALLED: Final = re.compile(r"^\[\+\] \S.*$", re.MULTILINE)
_HASH: Final = re.compile(r"/([a-z2-7]{32})")
_PUSHED: Final = re.compile(r"^==> (?:Pushed \S+/[a-z2-7]{7}|The spec is already in the buildcache)", re.MULTILINE)
_PUSHED_TO_REGISTRY: Final = re.compile(r"^==> (?:Tagged \S+/[a-z2-7]{7} as |All \d* ?specs? (?:are|is) already)", re.MULTILINE)
_PUSHED_MANY: Final = re.compile(r"^==> \[ *\d+/\d+\] Pushed \S+/[a-z2-7]{7}", re.MULTILINE)
_CONCRETIZED: Final = re.compile(r"^==> (?:Concretized (?:\d+ specs?|\S+)|No new specs to concretize)", re.MULTILINE)
_TESTED: Final = re.compile(r"^=+ \d+ passed(?:, \d+ \S+)* of \d+ specs? =+$", re.MULTILINE)
_PHASE: Final = re.compile(r"^==> \S+: Executing phase: '(\w{1,40})'", re.MULTILINE)
_INSTALLING: Final = re.compile(r"^==> Installing (\S+)-\S+-([a-z2-7]{32})", re.MULTILINE)
_FAILED_INSTALL: Final = re.compile(r"^==> Error: Failed to install (\S+) due to ", re.MULTILINE)
_EXCERPT: Final = re.compile(r"^(?:  >> |     )(\d+) {4}")
_REASON: Final = re.compile(r"^ {4,8}(?:file|https?|s3|oci|ftp)://\S+: .+$", re.MULTILINE)
_FINAL_REASON: Final = re.compile(r"\[Errno 2\]|HTTP Error (?:404|403|410)|: 404\b")
_BUILD_LOG_FOLLOWS: Final = re.compile(r"errors? found in (?:build|test) log:")


class SpackVerdict(Struct, frozen=True, kw_only=True):
    """Result of one command of Spack.

    `failure` is empty if the command did what it is for. `package` is the name of the package at which it failed, `phase` the
    phase of its build. `lines` decide the verdict; `retry` is true if a repetition may help.
    """

    failure: BuildFailure | None = None
    package: str = ""
    phase: str = ""
    retry: bool = False
    lines: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Return true if the command did what it is for."""
        return self.failure is None


def read(command: Sequence[str], code: int, output: str) -> SpackVerdict:
    """Return what a command did. `command` holds `spack` and its arguments, `output` is stdout and stderr together."""
    text = _unfolded(_bounded(output))
    if code == 0:
        missing = _missing_result(command, text)
        if missing is None:
            return SpackVerdict()
        kind = BuildFailure.INPUT if "has no specs to install" in text else BuildFailure.UNKNOWN
        kind = BuildFailure.TEST if _subcommand(command) == "test" else kind
        return SpackVerdict(failure=kind, lines=_lines(text) or (missing,))
    kind, retry = _failure(code, text)
    phases = _PHASE.findall(text[_start_of_last_package(text) :])
    return SpackVerdict(
        failure=kind, package=_failed_package(text), phase=phases[-1] if phases else "", retry=retry, lines=_lines(text)
    )


def is_installed(hash_: str, output: str) -> bool:
    """Return true if an install reports a package as present: built now, taken from a cache, there before, or an external.

    Spack prints its prefix, which ends with the hash: whole by default, or its first characters in the layout of a publish root.
    """
    ends = (f"-{hash_}", f"-{hash_[:HASH_CHARACTERS]}", f"-{hash_})")
    return any(line.endswith(ends) for line in _INSTALLED.findall(_bounded(output)))


def _bounded(output: str) -> str:
    if len(output) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return output
    return f"{output[:HEAD_CHARACTERS]}\n{output[-TAIL_CHARACTERS:]}"


def _unfolded(text: str) -> str:
    """Join the lines of a log excerpt that Spack broke at the width of a terminal: it breaks within words and file names."""
    lines, indent = list[str](), 0
    for line in text.split("\n"):
        entry = _EXCERPT.match(line)
        if entry:
            indent = entry.end()
        elif indent and lines and line[:indent].isspace() and len(line) > indent:
            lines[-1] += line[indent:]
            continue
        else:
            indent = 0
        lines.append(line)
    return "\n".join(lines)


def _subcommand(command: Sequence[str]) -> str:
    """Return the first argument that is no option: `install`, `buildcache`, `concretize`. Options `-e` and `-c` take a value."""
    arguments = iter(command[1:])
    for argument in arguments:
        if argument in {"-e", "-c", "-C", "-D"}:
            next(arguments, None)
        elif not argument.startswith("-"):
            return argument
    return ""


def _missing_result(command: Sequence[str], text: str) -> str | None:
    """Return what the output of a command with exit code 0 should have said and did not; None if it did."""
    match _subcommand(command):
        case "install":
            hash_ = None if "--only=dependencies" in command else _HASH.fullmatch(command[-1])
            present = is_installed(hash_[1], text) if hash_ else _INSTALLED.search(text)
            return None if present else "Spack ended with 0 and reported no package as installed"
        case "concretize":
            return None if _CONCRETIZED.search(text) else "Spack ended with 0 and reported no specs as concretized"
        case "buildcache" if "push" in command:
            patterns = (_PUSHED, _PUSHED_TO_REGISTRY, _PUSHED_MANY)
            return None if any(pattern.search(text) for pattern in patterns) else "Spack ended with 0 and reported no push"
        case "test" if "run" in command:
            return None if _TESTED.search(text) else "Spack ended with 0 and reported no tests as passed"
        case "test" if "results" in command:
            return "Spack printed the results of a failed suite and ended with 0" if "FAILED" in text else None
    return None


_NO_SPACE: Final = re.compile(r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]")
_MEMORY: Final = re.compile(r"virtual memory exhausted|Cannot allocate memory|Killed signal terminated program|\bMemoryError\b")
_LOST_STORE: Final = re.compile(r"^==> Error: \[Errno 2\] No such file or directory: '.*/\.spack-db/", re.MULTILINE)
_INPUT: Final = re.compile(
    r"no matching specs are in the current environment|No package matches the query|No spec with hash"
    r"|matches no installed packages|Unknown namespace: "
    r"|Additional properties are not allowed|error parsing YAML|no environment in |Package '\S+' not found|No such variant "
    r"|No such environment|failed to concretize |No version exists that satisfies|is a required property|is not valid under any"
)
_SERVER: Final = re.compile(r"<urlopen error|URLError|HTTP Error|TimeoutError|timed out|ConnectionResetError|RemoteDisconnected")
_TRUST: Final = re.compile(r"CERTIFICATE_VERIFY_FAILED|WRONG_VERSION_NUMBER|HTTP Error 40[134]")

_Rule = tuple[Callable[[str], object], BuildFailure, bool]


def _contains(text: str) -> Callable[[str], object]:
    return lambda output: text in output


_RULES: Final[tuple[_Rule, ...]] = (
    (_NO_SPACE.search, BuildFailure.DISK_FULL, True),
    (re.compile(r"sha256 checksum failed for \S+\.spack$", re.MULTILINE).search, BuildFailure.TAMPERED, False),
    (_contains("gpg: BAD signature"), BuildFailure.TAMPERED, False),
    (_contains("ChecksumError: "), BuildFailure.CHECKSUM, False),
    (_contains("UnsignedPackageException"), BuildFailure.UNSIGNED, False),
    (re.compile(r"Can't check signature: |gpg: no valid OpenPGP data").search, BuildFailure.UNSIGNED, False),
    # Spack tells a tarball that is gone as a missing key, although gpg has just verified the metadata
    (_contains("NoVerifyException"), BuildFailure.DEPENDENCY, False),
    (re.compile(r"No secret key|No default key available for signing").search, BuildFailure.PERMISSION, False),
    (_contains("CannotGrowString"), BuildFailure.SANITY, False),
    (_contains("Detected uninstalled dependencies"), BuildFailure.DEPENDENCY, False),
    (_contains("No binary found when cache-only was specified"), BuildFailure.DEPENDENCY, False),
    (_LOST_STORE.search, BuildFailure.UNKNOWN, True),
    (_MEMORY.search, BuildFailure.MEMORY, False),
    (re.compile(r"Timed out waiting for a \w+ lock").search, BuildFailure.LOCK_TIMEOUT, True),
    (re.compile(r"TestFailure: |See test log for details:|test\(s\) in the suite failed").search, BuildFailure.TEST, False),
    (_contains("Error: ProcessError: "), BuildFailure.COMPILE, False),
    (_INPUT.search, BuildFailure.INPUT, False),
    (_TRUST.search, BuildFailure.FETCH, False),
    (_SERVER.search, BuildFailure.FETCH, True),
    (re.compile(r"\[Errno 13\]|Permission denied").search, BuildFailure.PERMISSION, False),
    (_BUILD_LOG_FOLLOWS.search, BuildFailure.COMPILE, False),
)
"""Tests of an output with the failure that each tells, the most certain first, and true if a repetition may help."""


def _failure(code: int, text: str) -> tuple[BuildFailure, bool]:
    if code == 2 and re.search(r"^spack [\w -]*: error: ", text, re.MULTILINE):
        return BuildFailure.INPUT, False
    if "FetchError: All fetchers failed" in text and not _NO_SPACE.search(text):
        reasons = _REASON.findall(text)
        return BuildFailure.FETCH, any(not _FINAL_REASON.search(reason) for reason in reasons) or not reasons
    for is_told, kind, retry in _RULES:
        if is_told(text):
            return kind, retry
    if code in {-9, 137}:  # killed by the kernel for memory, or with its pod
        return BuildFailure.MEMORY, True
    return BuildFailure.UNKNOWN, False


def _start_of_last_package(text: str) -> int:
    return max((match.start() for match in _INSTALLING.finditer(text)), default=0)


def _failed_package(text: str) -> str:
    failed = _FAILED_INSTALL.search(text)
    if failed:
        return failed[1]
    installing = _INSTALLING.findall(text)
    return installing[-1][0] if installing else ""


def _lines(text: str) -> tuple[str, ...]:
    """Return the lines that Spack marks as errors: its own, causes from a build's log, reasons of servers, and gpg's."""
    return tuple(line.strip().removeprefix("==> Error: ")[:LINE_CHARACTERS] for line in _decisive(text))[:LINES]


def _decisive(text: str) -> Iterator[str]:
    yield from dict.fromkeys(_marked(text))


_MARKED: Final = re.compile(
    r"==> (?:Error|Warning: Failed|Failed)|  >> |gpg: (?:BAD|Can't|skipped)|spack [\w -]*: error: |     \d+\. "
    r"|.*(?:No space left on device|has no specs to install$)| {4,8}(?:file|https?|s3|oci|ftp)://\S+: |FAILED: "
)


def _marked(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        if _MARKED.match(line) and not line.startswith(("==> Error: Installation request failed",)):
            yield line
