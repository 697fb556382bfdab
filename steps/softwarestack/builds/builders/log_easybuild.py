"""Read what `eb` did from its exit code and output, without looking at any file. Pure.

The output is that of `eb` followed by its log; the log has the output of commands that failed. `eb` ends with 0 also if it skipped
a package, so a build counts only if it says so. Texts are those of EasyBuild 5.4 (easybuild/main.py, framework/easyblock.py and
tools/run.py of https://github.com/easybuilders/easybuild-framework).
"""

import re
from collections.abc import Iterator
from typing import Final

from steps.softwarestack.builds.builders.package_builder import CommandVerdict
from steps.softwarestack.contract.package_build import BuildFailure

MOST_CHARACTERS: Final = 6_000_000
"""Characters that are read at the end of an output, where the reason of a failure is."""
MOST_BLOCK: Final = 200_000
"""Characters that are read at the end of a failed command's output."""
LINES: Final = 10
LINE_CHARACTERS: Final = 300
"""Bounds of the decisive lines that a record keeps."""

_DONE: Final = re.compile(r"^== COMPLETED: Installation (?:ended|STOPPED) successfully", re.MULTILINE)
_MESSAGE: Final = re.compile(r"^(?:\x1b\[[0-9;]*m)?ERROR: (?!Shell command failed)(.+)$", re.MULTILINE)
_LOGGED: Final = re.compile(r"^== \S+ \S+ \S+ ERROR EasyBuild encountered an error: (.+?)(?: \(at \S+ in \w+\))?$", re.MULTILINE)
_BLOCK: Final = re.compile(r"^== .*Shell command FAILED \(exit code (-?\d+)\)\n(?:Output \(stdout \+ stderr\):\n)?", re.MULTILINE)
_END_OF_BLOCK: Final = re.compile(r"^== \d{4}-\d\d-\d\d ", re.MULTILINE)
_STEP: Final = re.compile(r"\bin (\w{1,30}) step for ")
_TITLE: Final = re.compile(r"^== ([a-z][a-z ,]{3,60})\.\.\.$", re.MULTILINE)
_EXIT: Final = re.compile(r"exit code (-?\d+)")
_PHASES: Final = {
    "fetching files and verifying checksums": "fetch",
    "fetching files": "fetch",
    "creating build dir, resetting environment": "ready",
    "unpacking": "extract",
    "patching": "patch",
    "preparing": "prepare",
    "configuring": "configure",
    "building": "build",
    "testing": "test",
    "installing": "install",
    "taking care of extensions": "extensions",
    "postprocessing": "postproc",
    "sanity checking": "sanitycheck",
    "cleaning up": "cleanup",
    "creating module": "module",
    "permissions": "permissions",
    "packaging": "package",
}
"""Title that EasyBuild prints for a step → the step's name, as `eb --stop` has it."""


def read(code: int, output: str) -> CommandVerdict:
    """Return what a command did. `output` is stdout and stderr together, followed by EasyBuild's log."""
    text = output[-MOST_CHARACTERS:]
    if code == 0 and _DONE.search(text):
        return CommandVerdict()
    block, message = _failed_output(text), _message(text)
    failure = _failure(code, message, block, _phase(text, message))
    if code == 0:
        message = message or "eb ended with 0 and reported no finished installation"
    return CommandVerdict(
        failure=failure,
        phase=_phase(text, message),
        retry=failure in (BuildFailure.FETCH, BuildFailure.LOCK_TIMEOUT),
        lines=tuple(_decisive(message, block, text)),
    )


def _message(text: str) -> str:
    """Return the reason that EasyBuild gives last; empty if it gives none, as after a kill."""
    printed, logged = _MESSAGE.findall(text), _LOGGED.findall(text)
    message = next((str(messages[-1]) for messages in (printed, logged) if messages), "")[:4000]
    return message.partition(" Paths attempted (in order): ")[0]


def _failed_output(text: str) -> str:
    """Return the end of the output of the last command that failed; empty if the log has none but EasyBuild's own attempts."""
    blocks = list(_BLOCK.finditer(text))
    if not blocks:
        return ""
    end = _END_OF_BLOCK.search(text, blocks[-1].end())
    block = text[blocks[-1].end() : end.start() if end else len(text)][-MOST_BLOCK:]
    # without the shell function `module`, which nobody needs, EasyBuild cannot look which modules tool that function calls
    return "" if block.rstrip().endswith("type: module: not found") else block


def _phase(text: str, message: str) -> str:
    if step := _STEP.search(message):
        return step[1]
    titles = [title for title in _TITLE.findall(text) if title in _PHASES]
    return _PHASES[titles[-1]] if titles else ""


_NO_SPACE: Final = re.compile(r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]")
_MEMORY: Final = re.compile(
    r"virtual memory exhausted|Cannot allocate memory|\bMemoryError\b|std::bad_alloc|Killed signal terminated program"
    r"|\[Errno 12\]|out of memory allocating|exit code (?:-9|137)\b"
)
_DENIED: Final = re.compile(r"Permission denied|Read-only file system|Operation not permitted|\[Errno (?:1|13|30)\]")
_RULES: Final[tuple[tuple[re.Pattern[str], BuildFailure], ...]] = (
    (re.compile(r"Checksum verification for .+ failed"), BuildFailure.CHECKSUM),
    (re.compile(r"Missing checksum|[Cc]hecksums? .*(?:missing|required)"), BuildFailure.INPUT),
    (
        re.compile(r"Lock \S+ already exists|wait time for lock \S+ .*exceeded|Maximum wait time for lock"),
        BuildFailure.LOCK_TIMEOUT,
    ),
    (re.compile(r"Couldn't find file|Failed to (?:fetch|download)|downloading it didn't work"), BuildFailure.FETCH),
    (
        re.compile(
            r"[Mm]issing (?:modules|dependenc)|dependencies were not found|module .*(?:not found|does not exist|not loaded)"
        ),
        BuildFailure.DEPENDENCY,
    ),
    (re.compile(r"Sanity check failed"), BuildFailure.SANITY),
    (re.compile(r"Failed to process easyconfig|does not match version reported|Failed to obtain class"), BuildFailure.INPUT),
)
"""Text of EasyBuild's own message → the failure; the first match counts."""
_CODES: Final = {
    **dict.fromkeys(range(2, 8), BuildFailure.INPUT),
    8: BuildFailure.DEPENDENCY,
    30: BuildFailure.FETCH,
    **dict.fromkeys(range(31, 34), BuildFailure.DEPENDENCY),
    41: BuildFailure.FETCH,
    42: BuildFailure.CHECKSUM,
    45: BuildFailure.SANITY,
}
"""Exit code that stands for one cause → the failure (EasyBuildExit in easybuild/tools/build_log.py)."""
_STEPS: Final = range(10, 28)
"""Exit codes that stand for the step that failed, for whatever cause."""
_LAST_LINES: Final = 20
"""Lines at the end of a failed command's output in which a missing right counts: configure scripts try much that is denied."""


def _failure(code: int, message: str, block: str, phase: str) -> BuildFailure:
    if _NO_SPACE.search(message) or _NO_SPACE.search(block):
        return BuildFailure.DISK_FULL
    for pattern, rule in _RULES:
        if pattern.search(message):
            return rule
    if (failure := _CODES.get(code)) is not None:
        return failure
    if code in (-9, 137) or _MEMORY.search(message) or _MEMORY.search(block):
        return BuildFailure.MEMORY
    end = "\n".join(block.rstrip().splitlines()[-_LAST_LINES:])
    if _DENIED.search(message) or (_DENIED.search(end) and not _ERROR.search(end)):
        return BuildFailure.PERMISSION
    if phase == "test" and message:
        return BuildFailure.TEST
    if code in _STEPS or re.search(r"shell command .+ failed", message, re.IGNORECASE):
        return BuildFailure.COMPILE
    return BuildFailure.UNKNOWN


_ERROR: Final = re.compile(
    r"(?:^|[\s:])(?:fatal )?error:|undefined reference|\*\*\* \[|\bcommand not found\b|: not found$|^CMake Error"
)
_TROUBLE: Final = (
    _ERROR,
    _NO_SPACE,
    _MEMORY,
    _DENIED,
    re.compile(r"^\w*(?:Error|Exception): |\bFAILED\b|[Nn]o rule to make target"),
)


def _decisive(message: str, block: str, text: str) -> Iterator[str]:
    """Yield EasyBuild's reason, and the lines of the failed command that name an error; else the last lines of the output."""
    lines = [line.strip() for line in block.splitlines() if any(pattern.search(line) for pattern in _TROUBLE)]
    if block and not lines:
        lines = [line.strip() for line in block.splitlines()[-3:]]
    if not message and not lines:
        lines = [line.strip() for line in text[-4000:].splitlines()[-3:]]
    unique = dict.fromkeys(line for line in (message, *lines) if line.strip())
    yield from (line[:LINE_CHARACTERS] for line in list(unique)[:LINES])
