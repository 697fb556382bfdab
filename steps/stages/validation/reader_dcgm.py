"""Parses `dcgmi diag -j` of DCGM 3 and 4, and its table without `-j`; pure, never raises on tool output.

DCGM 3 names `gpu_id` or `gpu_ids` (a text with commas), DCGM 4 `entity_group` and `entity_id`. The top key was `DCGM GPU
Diagnostic` and is now `DCGM Diagnostic`. Warnings were one text and are now a list (https://github.com/NVIDIA/DCGM,
nvvs/include/NvvsJsonStrings.h).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.node_tests.dcgm import DcgmFailure, DcgmRun, DcgmTest

MAX_TEXT = 16 << 20
MOST_GPUS = 1024
WARNING = 600
_TOP = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_CELL = re.compile(r"^\|[ \t-]*(?P<name>[^|]*?)[ \t-]*\|(?P<value>[^|\n]*)\|?[ \t]*$", re.MULTILINE)
_SECTION = re.compile(r"^[|+]-+[ \t]+(?P<name>\w[\w ]*?)[ \t]+-+\+", re.MULTILINE)
_STATUS = re.compile(r"(?:(?P<entity>[A-Za-z]+) ?(?P<id>\d{1,4}): *)?(?P<word>Pass|Fail|Skip|Warn|Not Run)\b", re.IGNORECASE)
_IDS = re.compile(r"-\s*GPUs?:(?P<ids>[\d, ]*)", re.IGNORECASE)
_SECTIONS_OF_TESTS = ("deployment", "integration", "hardware", "stress")


def read(text: str) -> DcgmRun | None:
    """Return one run, from JSON or from the table; None if the text is neither or is cut in the middle."""
    text = text[:MAX_TEXT]
    start = text.find("{")
    if start >= 0 and "test_categories" in text:
        return _from_json(text[start:])
    return _from_table(text)


# ---- JSON ----------------------------------------------------------------------------------------------------------------------


def _from_json(text: str) -> DcgmRun | None:
    try:
        document = msgspec.json.decode(text[: text.rfind("}") + 1].encode(errors="replace"))
    except UNREADABLE_JSON:
        return None
    if not isinstance(document, dict):
        return None
    top = next((document[key] for key in _TOP if isinstance(document.get(key), dict)), document)
    pairs = [(category, test) for category in _maps(top.get("test_categories")) for test in _maps(category.get("tests"))]
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    gpus = {gpu for _, test in pairs for result in _maps(test.get("results")) for gpu in _result_gpus(result)}
    return DcgmRun(
        tests=tuple(_test(category, test, gpus) for category, test in pairs),
        gpus=tuple(sorted(gpus)),
        version=_text(metadata.get("version") or top.get("DCGM Version")),
        driver=_text(metadata.get("Driver Version Detected") or top.get("Driver Version Detected")),
        error=_text(top.get("runtime_error") or document.get("runtime_error"))[:WARNING],
    )


def _test(category: dict[str, Any], test: dict[str, Any], gpus: set[int]) -> DcgmTest:
    results = list(_maps(test.get("results")))
    tested = {gpu for result in results if _text(result.get("status")).lower() == "pass" for gpu in _result_gpus(result)}
    statuses = Counter(_text(result.get("status")).lower() or "unknown" for result in results)
    # DCGM's own verdict on the test: it can be worse than every result of a GPU, and is none itself if it is as good
    summary = test.get("test_summary")
    own = _text(summary.get("status")).lower() if isinstance(summary, dict) else ""
    if isinstance(summary, dict) and own not in ("", "pass", *statuses):
        results.append(summary)
        statuses[own] += 1
    bad = (result for result in results if _text(result.get("status")).lower() == "fail")
    return DcgmTest(
        name=_text(test.get("name")),
        category=_text(category.get("category")),
        statuses=dict(statuses),
        failures=tuple(DcgmFailure(gpus=tuple(sorted(_result_gpus(row))), warning=_warning(row.get("warnings"))) for row in bad),
        untested=tuple(sorted(gpus - tested)),
    )


def _result_gpus(result: dict[str, Any]) -> Iterator[int]:
    if "entity_id" in result:
        ids = [result["entity_id"]] if _text(result.get("entity_group", "GPU")).upper() == "GPU" else []
    else:
        named = result.get("gpu_ids", result.get("gpu_id"))
        ids = named.split(",") if isinstance(named, str) else [named]
    for gpu in ids:
        text = str(gpu).strip()
        if text.isdecimal() and len(text) < 5 and int(text) < MOST_GPUS:
            yield int(text)


def _warning(value: Any) -> str:
    if isinstance(value, str):
        return value[:WARNING]
    entries = value if isinstance(value, list) else ()
    parts = [_text(entry.get("warning")) if isinstance(entry, dict) else _text(entry) for entry in entries]
    return "; ".join(filter(None, parts))[:WARNING]


def _maps(value: Any) -> Iterable[dict[str, Any]]:
    return (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# ---- table ---------------------------------------------------------------------------------------------------------------------


def _from_table(text: str) -> DcgmRun | None:
    tests: list[DcgmTest] = []
    fields: dict[str, str] = {}
    gpus: tuple[int, ...] = ()
    for category, name, parts in _cells(text):
        value = _joined(parts)
        if name.startswith(("Warning", "Info")) and tests:
            tests[-1] = _warned(tests[-1], value) if name.startswith("Warning") else tests[-1]
        elif category == "Metadata" or not (_STATUS.match(value) or category.lower() in _SECTIONS_OF_TESTS):
            fields[name] = value
            ids = [part for part in fields.get("GPU Device IDs Detected", "").split(",") if part.strip()]
            gpus = tuple(range(min(len(ids), MOST_GPUS)))
        else:
            tests.append(_tabled(category, name, parts, gpus))
    if not tests:
        return None
    return DcgmRun(
        tests=tuple(tests),
        gpus=gpus,
        version=fields.get("DCGM Version", ""),
        driver=fields.get("Driver Version Detected", ""),
    )


def _tabled(category: str, name: str, parts: list[str], gpus: tuple[int, ...]) -> DcgmTest:
    """Return the test of a cell, which has a line for each status: `Pass - All`, `Fail - GPU: 7`, or since DCGM 4 `GPU7: Fail`."""
    lines: list[str] = []
    for part in parts:
        # a long list of GPUs goes on in the next line
        if lines and not _STATUS.match(part) and _IDS.search(lines[-1]):
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    results = [(match, _named_gpus(match, line)) for line in lines if (match := _STATUS.match(line))]
    unread = sum(1 for line in lines if line and not _STATUS.match(line))
    words = Counter(match["word"].lower() for match, _ in results)
    words += Counter({"unknown": unread if results else unread or 1})
    single = any(match["id"] for match, _ in results)
    # beside lines for single GPUs, the first line sums them up
    passed = [named or (() if single else gpus) for match, named in results if match["word"].lower() == "pass"]
    failures = tuple(DcgmFailure(gpus=named) for match, named in results if match["word"].lower() == "fail")
    tested = {gpu for named in passed for gpu in named}
    untested = tuple(gpu for gpu in gpus if gpu not in tested)
    return DcgmTest(name=name, category=category, statuses=dict(words), failures=failures, untested=untested)


def _named_gpus(match: re.Match[str], line: str) -> tuple[int, ...]:
    if match["id"]:
        return (int(match["id"]),) if match["entity"].upper() == "GPU" else ()
    named = _IDS.search(line, match.end())
    return tuple(int(part) for part in re.findall(r"\d{1,4}", named["ids"])) if named else ()


def _warned(test: DcgmTest, warning: str) -> DcgmTest:
    named = tuple(sorted({int(gpu) for gpu in re.findall(r"GPU (\d{1,3})\b", warning)}))
    failures = tuple(DcgmFailure(gpus=named or failure.gpus, warning=warning[:WARNING]) for failure in test.failures)
    return msgspec.structs.replace(test, failures=failures)


def _cells(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield section, name and the lines of the value of each row."""
    category = name = ""
    parts: list[str] = []
    for line in text.splitlines():
        section, cell = _SECTION.match(line), _CELL.match(line)
        # lines of other programs may stand within a table
        if section or (cell is None and line[:2] in ("+-", "|-", "+=", "|=")) or (cell and cell["name"]):
            if parts:
                yield category, name, parts
            parts = []
        if section:
            category = section["name"]
        elif cell is not None:
            name = cell["name"] or name
            parts.append(cell["value"].strip())
    if parts:
        yield category, name, parts


def _joined(parts: list[str]) -> str:
    """Return a value over several lines as one; dcgmi wraps it in the middle of words."""
    width = max(len(part) for part in parts)
    return "".join(part.ljust(width) for part in parts).rstrip()
