"""Protocol between a booted node and the server that tests it: lines of words that a shell reads and writes without a parser.

    bringup-tests 1                              GET URL/tests
    test NAME SECONDS BASE64 of the script
    end COUNT

    bringup-report 1                             POST URL/report
    mac 52:54:00:…                               node, mac, address, kernel, root, clock, uptime, …
    failed UNIT
    test NAME OUTCOME SECONDS BASE64 of the output's end
    end COUNT

Names are percent-encoded. A report may be hostile and is not used before `read` has checked it.
"""

import base64
import binascii
import math
import re
import shlex
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import quote, unquote

from steps.contract import plain_text
from steps.nodeimage.contract import debian
from steps.nodeimage.contract.boot_tests import NodeReport
from steps.nodeimage.contract.image_tests import BuiltinCheck, ImageTest, ImageTestOutcome, ImageTestResult, Where

TESTS_FORM, REPORT_FORM = "bringup-tests 1", "bringup-report 1"
MAX_REPORT: Final = 262_144
"""Longest report in bytes: a thousand tests with half a line of output each."""
MAX_ROWS: Final = 2_000
MAX_WORD: Final = 400
MAX_OUTPUT: Final = 400

_IS_INSTALLED = debian.IS_INSTALLED.replace("{", "{{").replace("}", "}}")  # a script is a form that its arguments go into
_SCRIPTS: dict[str, str] = {
    BuiltinCheck.SERVICES_ENABLED: (
        'for one in {}; do systemctl is-enabled -q "$one" || {{ echo "$one is not enabled"; exit 1; }}; done'
    ),
    BuiltinCheck.PATHS_PRESENT: 'for path in {}; do [ -e "$path" ] || {{ echo "$path is absent"; exit 1; }}; done',
    BuiltinCheck.PATHS_ABSENT: 'for path in {}; do [ ! -e "$path" ] || {{ echo "$path is there"; exit 1; }}; done',
    BuiltinCheck.PACKAGES_PRESENT: (
        f'for name in {{}}; do {_IS_INSTALLED} || {{{{ echo "$name is not installed"; exit 1; }}}}; done'
    ),
    BuiltinCheck.PACKAGES_ABSENT: f'for name in {{}}; do ! {_IS_INSTALLED} || {{{{ echo "$name is installed"; exit 1; }}}}; done',
    BuiltinCheck.MODULES_PRESENT: 'for name in {}; do modprobe -n -q "$name" || {{ echo "no module $name"; exit 1; }}; done',
}
"""Built-in checks as shell scripts.

All other checks need the packed root: a running node has a machine-id, keys and files of its own.
"""

_GLOBBED = {BuiltinCheck.PATHS_PRESENT, BuiltinCheck.PATHS_ABSENT}


class ReportError(ValueError):
    """Error: the bytes are no valid report of a node; the message says why."""


def on_node(tests: Iterable[ImageTest]) -> tuple[ImageTest, ...]:
    """Return those of the tests that run on a booted node."""
    return tuple(test for test in tests if test.where is not Where.SANDBOX)


def can_run(test: ImageTest) -> bool:
    """Return True if a booted node can run this test: it is a script, or a check that does not need the packed root."""
    return bool(test.run) or test.check in _SCRIPTS


def render(tests: Iterable[ImageTest], factor: float = 1.0) -> bytes:
    """Return the list of tests that a node fetches; time limits are multiplied by `factor` for slow (emulated) nodes.

    Raises ValueError for a test that cannot run on a node.
    """
    rows = []
    for test in tests:
        script = base64.b64encode(_script(test).encode()).decode()
        rows.append(f"test {quote(test.name, safe='')} {max(1, math.ceil(test.seconds * factor))} {script}")
    return "\n".join([TESTS_FORM, *rows, f"end {len(rows)}", ""]).encode()


def _script(test: ImageTest) -> str:
    if test.run:
        return test.run
    if not can_run(test):
        raise ValueError(f"test {test.name}: check {test.check} needs the packed root; set its `where` to sandbox")
    return _SCRIPTS[test.check].format(" ".join(_argument(test.check, value) for value in test.arguments)) + "\n"


def _argument(check: str, value: str) -> str:
    """Return an argument of a check quoted for the shell; `*` in a path stays a pattern."""
    return "*".join(shlex.quote(part) if part else "" for part in value.split("*")) if check in _GLOBBED else shlex.quote(value)


def read(data: bytes) -> NodeReport:
    """Return the report in the bytes that a node sent. Raises ReportError."""
    if len(data) > MAX_REPORT:
        raise ReportError(f"the report has {len(data)} bytes, limit {MAX_REPORT}")
    lines = data.decode("ascii", errors="replace").split("\n")
    if lines[0] != REPORT_FORM or lines[-1]:
        start = plain_text.line(lines[0][:40])
        raise ReportError(f"no whole report: it begins with {start!r}, not with {REPORT_FORM!r}, or has no last line end")
    if len(lines) > MAX_ROWS:
        raise ReportError(f"the report has {len(lines)} lines, limit {MAX_ROWS}")
    fields: dict[str, Any] = {}
    rows: dict[str, list[Any]] = {"failed": [], "test": []}
    for line in lines[1:-2]:
        _take(line, fields, rows)
    _whole(lines[-2], len(rows["test"]), fields)
    return NodeReport(**fields, failed_units=tuple(rows["failed"]), results=tuple(rows["test"]))


def _take(line: str, fields: dict[str, Any], rows: dict[str, list[Any]]) -> None:
    name, _, rest = line.partition(" ")
    if name == "test":
        rows["test"].append(_result(rest))
    elif name == "failed":
        rows["failed"].append(_word(rest))
    elif name in fields:
        raise ReportError(f"the report says {name} twice")
    elif name in _READERS:
        fields[name] = _READERS[name](rest)
    else:
        raise ReportError(f"the report says {plain_text.line(name[:40])!r}, which is no word of a report")


def _whole(last: str, tests: int, fields: dict[str, Any]) -> None:
    if last != f"end {tests}":
        raise ReportError(f"the report has {tests} tests and ends with {plain_text.line(last[:40])!r}: it came in part")
    missing = [name for name in ("mac", "address", "kernel", "root", "clock", "uptime") if name not in fields]
    if missing:
        raise ReportError(f"the report does not say {', '.join(missing)}")


def _word(text: str) -> str:
    if len(text) > MAX_WORD:
        raise ReportError(f"a word of the report has {len(text)} characters, limit {MAX_WORD}")
    return plain_text.line(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"\d{1,12}(\.\d{1,12})?", text):
        raise ReportError(f"{plain_text.line(text[:40])!r} is no number")
    return float(text)


_READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("node", "mac", "address", "kernel", "root", "image", "firmware"), _word),
    "clock": _number,
    "uptime": _number,
    "free_mib": lambda text: int(_number(text)),
    "modules": lambda text: text == "1",
}


def _result(text: str) -> ImageTestResult:
    words = text.split(" ")
    if len(words) != 4 or words[1] not in set(ImageTestOutcome):
        raise ReportError(f"{plain_text.line(text[:60])!r} is no result of a test")
    try:
        output = base64.b64decode(words[3], validate=True).decode(errors="replace")
    except binascii.Error as error:
        raise ReportError(f"the output of test {plain_text.line(words[0][:40])} is no base64") from error
    name, outcome = _word(unquote(words[0])), ImageTestOutcome(words[1])
    return ImageTestResult(name=name, outcome=outcome, seconds=_number(words[2]), output=plain_text.line(output)[-MAX_OUTPUT:])
