"""Recognises the tool whose output a text is, by the text alone, and reads it by that tool's rules.

No file name, path or digest has a part in it. Tools are tried in the order of TABLE: the first that recognises a text reads it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.plain_text import MARK
from steps.readings import (
    captured_text,
    controller_readings,
    fabric_readings,
    gpu_readings,
    host_setup_readings,
    kernel_readings,
    kubectl_readings,
    mpi_readings,
    nccl_readings,
    object_documents,
    object_readings,
    slurm_readings,
    spack_output_readings,
    spack_readings,
)
from steps.readings.captured_text import CapturedText, TextCleaner
from steps.readings.site_values import EvaluatedValues, SiteValues
from steps.readings.tool_reading import ReadingVerdict, ToolReading, in_one_file, undecided, worst

LARGEST_TEXT = 64 << 20
"""Most characters of an output that is no log of NCCL; those are read in parts and may be longer."""
PART = 1 << 20
"""Characters at the beginning, and at the end if that tells nothing, by which a tool is recognised."""
MOST_UNREADABLE = 0.05
"""Share of characters that may be no text."""


class ToolRule(Struct, frozen=True, kw_only=True):
    """A tool: how its output is recognised, and how it is read.

    `ends_itself`: the reader knows the end of an output. Otherwise a text whose last line has no end may be cut, so it is no pass.
    """

    tool: str
    recognises: Callable[[str], bool]
    read: Callable[[CapturedText, SiteValues], ToolReading]
    ends_itself: bool = False


class DocumentRule(Struct, frozen=True, kw_only=True):
    """A tool that prints JSON or YAML: how a list of its documents is recognised, and how the text is read.

    `ends_itself`: the reader knows the end of a YAML text, as in `ToolRule`.
    """

    tool: str
    recognises: Callable[[list[Any]], bool]
    read: Callable[[CapturedText, list[Any], SiteValues], ToolReading]
    ends_itself: bool = False


def _has_one(recognises: Callable[[Any], bool]) -> Callable[[list[Any]], bool]:
    return lambda documents: len(documents) == 1 and recognises(documents[0])


def _whole_text(
    read: Callable[[CapturedText, SiteValues], ToolReading],
) -> Callable[[CapturedText, list[Any], SiteValues], ToolReading]:
    return lambda captured, _, site: read(captured, site)


def _read_nccl(captured: CapturedText, site: SiteValues) -> ToolReading:
    return nccl_readings.read((captured.text,), site)


DOCUMENTS: tuple[DocumentRule, ...] = (
    DocumentRule(tool=slurm_readings.REST, recognises=_has_one(slurm_readings.is_rest), read=_whole_text(slurm_readings.read_rest)),
    DocumentRule(tool=gpu_readings.DCGM, recognises=_has_one(gpu_readings.is_dcgm_json), read=_whole_text(gpu_readings.read_dcgm)),
    DocumentRule(tool=nccl_readings.TOOL, recognises=_has_one(nccl_readings.is_json), read=_whole_text(nccl_readings.read_json)),
    DocumentRule(tool=spack_readings.LOCK, recognises=_has_one(spack_readings.is_lock), read=spack_readings.read_lock),
    DocumentRule(
        tool=spack_readings.ENVIRONMENT,
        recognises=_has_one(spack_readings.is_environment),
        read=spack_readings.read_environment,
        ends_itself=True,
    ),
    DocumentRule(tool=spack_readings.DATA, recognises=spack_readings.is_data, read=spack_readings.read_data),
    DocumentRule(tool=object_readings.OBJECT, recognises=object_readings.is_objects, read=object_readings.read),
)
"""Rules of tools that print JSON or YAML."""

_GPU, _FABRIC, _KUBECTL, _SLURM = gpu_readings, fabric_readings, kubectl_readings, slurm_readings
_CONTROLLER, _SETUP = controller_readings, host_setup_readings

TABLE: tuple[ToolRule, ...] = (
    ToolRule(tool=nccl_readings.TOOL, recognises=nccl_readings.recognises, read=_read_nccl, ends_itself=True),
    ToolRule(tool=spack_output_readings.TOOL, recognises=spack_output_readings.is_output, read=spack_output_readings.read_output),
    ToolRule(
        tool=spack_readings.ENVIRONMENT,
        recognises=spack_readings.is_broken_environment,
        read=spack_readings.read_broken_environment,
    ),
    ToolRule(tool=_GPU.SMI, recognises=_GPU.is_query_xml, read=_GPU.read_query_xml, ends_itself=True),
    ToolRule(tool=_GPU.SMI, recognises=_GPU.is_query, read=_GPU.read_query),
    ToolRule(tool=_GPU.SMI, recognises=_GPU.is_broken, read=_GPU.read_broken),
    ToolRule(tool=_GPU.SMI, recognises=_GPU.is_overview, read=_GPU.read_overview, ends_itself=True),
    ToolRule(tool=_GPU.SMI, recognises=_GPU.is_without_nvlink, read=_GPU.read_without_nvlink),
    ToolRule(tool=_GPU.SMI, recognises=_GPU.is_nvlink_status, read=_GPU.read_nvlink_status, ends_itself=True),
    ToolRule(tool=_GPU.SMI, recognises=_GPU.is_list, read=_GPU.read_list),
    ToolRule(tool=_GPU.SMI, recognises=_GPU.is_topology, read=_GPU.read_topology),
    ToolRule(tool=_GPU.DCGM, recognises=_GPU.is_dcgm, read=_GPU.read_dcgm, ends_itself=True),
    ToolRule(tool=_FABRIC.IBSTAT, recognises=_FABRIC.is_ibstat, read=_FABRIC.read_ibstat, ends_itself=True),
    ToolRule(tool=_FABRIC.IBDEV, recognises=_FABRIC.is_ibdev2netdev, read=_FABRIC.read_ibdev2netdev),
    ToolRule(tool=_FABRIC.PERFTEST, recognises=_FABRIC.is_perftest, read=_FABRIC.read_perftest),
    ToolRule(
        tool=kernel_readings.FABRIC_MANAGER, recognises=kernel_readings.is_fabric_manager, read=kernel_readings.read_fabric_manager
    ),
    ToolRule(tool=mpi_readings.OSU, recognises=mpi_readings.recognises_osu, read=mpi_readings.read_osu),
    ToolRule(tool=_SETUP.ANSIBLE, recognises=_SETUP.is_ansible, read=_SETUP.read_ansible),
    ToolRule(tool=_CONTROLLER.ARGO_CD, recognises=_CONTROLLER.is_argo_cd, read=_CONTROLLER.read_argo_cd),
    ToolRule(tool=_CONTROLLER.GPU_OPERATOR, recognises=_CONTROLLER.is_gpu_operator, read=_CONTROLLER.read_gpu_operator),
    ToolRule(tool=_CONTROLLER.GPU_OPERATOR, recognises=_CONTROLLER.is_driver_container, read=_CONTROLLER.read_driver_container),
    ToolRule(tool=_KUBECTL.KUBECTL, recognises=_KUBECTL.is_description, read=_KUBECTL.read_description),
    ToolRule(tool=_KUBECTL.KUBECTL, recognises=_KUBECTL.is_tables, read=_KUBECTL.read_tables),
    ToolRule(tool=_SETUP.RKE2, recognises=_SETUP.is_rke2, read=_SETUP.read_rke2),
    ToolRule(tool=_SLURM.SINFO, recognises=_SLURM.is_sinfo, read=_SLURM.read_sinfo),
    ToolRule(tool=_SLURM.SINFO, recognises=_SLURM.is_long_sinfo, read=_SLURM.read_long_sinfo),
    ToolRule(tool=_SLURM.SCONTROL, recognises=_SLURM.is_job_record, read=_SLURM.read_job_record),
    ToolRule(tool=_SLURM.SACCT, recognises=_SLURM.is_sacct, read=_SLURM.read_sacct),
    ToolRule(tool=_SLURM.SCONTROL, recognises=_SLURM.is_records, read=_SLURM.read_records),
    ToolRule(tool=_SLURM.SLURM, recognises=_SLURM.is_metric, read=_SLURM.read_metric),
    ToolRule(tool=mpi_readings.MPI, recognises=mpi_readings.recognises_mpi, read=mpi_readings.read_mpi),
    ToolRule(tool=_CONTROLLER.ERRORS, recognises=_CONTROLLER.is_kubelet_text, read=_CONTROLLER.read_error_text),
    ToolRule(tool=_SLURM.SLURM, recognises=_SLURM.is_daemon_text, read=_SLURM.read_daemon_text),
    ToolRule(tool=kernel_readings.KERNEL, recognises=kernel_readings.is_kernel_log, read=kernel_readings.read_kernel_log),
    ToolRule(tool=_FABRIC.LSPCI, recognises=_FABRIC.is_lspci, read=_FABRIC.read_lspci, ends_itself=True),
    ToolRule(tool=_CONTROLLER.HELM, recognises=_CONTROLLER.is_helm, read=_CONTROLLER.read_helm),
    ToolRule(tool=_CONTROLLER.ERRORS, recognises=_CONTROLLER.is_error_text, read=_CONTROLLER.read_error_text),
    ToolRule(tool=_SLURM.SINFO, recognises=_SLURM.is_partition_gres, read=_SLURM.read_partition_gres),
    ToolRule(tool=_SLURM.SRUN, recognises=_SLURM.is_hostnames, read=_SLURM.read_hostnames),
)
"""Rules of all other tools; where a text could be of two, the more specific one stands first."""


def reading_of(parts: Iterable[str], site: SiteValues) -> ToolReading:
    """Return the reading of an output that comes in parts of any size, which is no pass if a stated value was not looked at."""
    values = EvaluatedValues(site)
    reading = reading_of_one(parts, values)
    return with_unused(reading, values.unused)


def with_unused(reading: ToolReading, unused: Iterable[str]) -> ToolReading:
    """Return a reading, which is no pass if stated values were not looked at."""
    keys = tuple(unused)
    if not (reading.is_pass and keys):
        return reading
    words = f"{', '.join(keys)} was stated, and nothing in this output is judged by it"
    return undecided(reading.tool, words, reading.figures, next_step="leave out values that this tool's output does not hold")


def reading_of_one(parts: Iterable[str], values: EvaluatedValues) -> ToolReading:
    """Return the reading of one output of several for which values were stated. A log of NCCL is never held as a whole."""
    site = values.values
    lines = captured_text.whole_lines(parts)
    head: list[str] = []
    for part in lines:
        head.append(part)
        if sum(map(len, head)) >= captured_text.HEAD:
            break
    beginning = "".join(head)
    cleaner = TextCleaner(beginning)
    if len(beginning) >= captured_text.HEAD and nccl_readings.recognises(cleaner.clean(beginning[: captured_text.HEAD])):
        others = _OtherLines(site)
        reading = nccl_readings.read(map(others.feed, map(cleaner.clean, chain([beginning], lines))), site)
        return in_one_file(reading, others.readings())
    text = _collected(beginning, lines)
    if text is None:
        words = f"the output has more than {LARGEST_TEXT >> 20} MiB and is no log of NCCL"
        return _unknown(words, "read a part of it")
    return _reading_of_text(text, site)


def _collected(beginning: str, lines: Iterator[str]) -> str | None:
    texts, size = [beginning], len(beginning)
    for part in lines:
        texts.append(part)
        size += len(part)
        if size > LARGEST_TEXT:
            return None
    return "".join(texts)


def _reading_of_text(raw: str, site: SiteValues) -> ToolReading:
    if not raw.strip():
        return _unknown("the output is empty", "capture it again, with its error output")
    if raw.count("\0") or raw.count(MARK) > MOST_UNREADABLE * len(raw):
        return _unknown("the file is no text", "name the file with the captured output")
    captured = captured_text.captured(raw)
    hosts = {} if _is_of_all_hosts(captured.text[:PART]) else captured_text.by_host(raw)
    if hosts:
        readings = {host: _reading_of_text(text, site) for host, text in hosts.items()}
        if not all(reading.verdict is ReadingVerdict.UNKNOWN_INPUT for reading in readings.values()):
            return worst(readings)
    parsed = object_documents.parse(captured.text)
    document_rule = next((rule for rule in DOCUMENTS if parsed.values and rule.recognises(parsed.values)), None)
    if document_rule is not None:
        ends_itself = document_rule.ends_itself or captured.text.lstrip()[:1] in "{["
        reading = _guarded(document_rule.read(captured, parsed.values, site), captured, ends_itself=ends_itself)
        if parsed.broken and reading.is_pass:
            reading = undecided(reading.tool, "a part of the JSON cannot be read: it may be cut", reading.figures)
        return in_one_file(reading, _others(parsed.rest, None, site))
    captured = CapturedText(captured_text.with_bounded_lines(captured.text), captured.ends_with_line)
    rule = _rule_of(captured.text[:PART]) or (_rule_of(captured.text[-PART:]) if len(captured.text) > PART else None)
    if rule is None:
        return _unknown("no tool is recognised by this text", "`bringup read --help` lists the tools; capture the whole output")
    reading = _guarded(rule.read(captured, site), captured, ends_itself=rule.ends_itself)
    if reading.is_pass and object_documents.holds_objects(captured.text):
        reading = undecided(reading.tool, "the file also holds an object in JSON or YAML, which was not read", reading.figures)
    return in_one_file(reading, _others(captured.text, rule, site))


def _is_of_all_hosts(head: str) -> bool:
    """Return True for a log of one program on several hosts, which is read as a whole."""
    return any(
        recognises(head) for recognises in (nccl_readings.recognises, mpi_readings.recognises_osu, mpi_readings.recognises_mpi)
    )


_FRAME = re.compile(r"^-{20,}[ \t]*$", re.MULTILINE)


def _others(text: str, first: ToolRule | None, site: SiteValues) -> list[ToolReading]:
    """Return the readings of the tools, other than the first, whose output is in a text as well."""
    if first is not None and first.tool == fabric_readings.PERFTEST:
        # perftest draws the same lines as mpirun does around its messages
        text = _FRAME.sub("", text)
    known = (*NOT_BESIDE, *MESSAGES) if first in MESSAGES else (*NOT_BESIDE, first)
    if first is not None and first.read is _KUBECTL.read_description:
        # its events are read by the rules for errors of the kubelet, and those of a pod that runs by now are over
        known = (*known, *(rule for rule in TABLE if rule.read is _CONTROLLER.read_error_text))
    rules = [rule for rule in TABLE if rule not in known]
    readings: list[ToolReading] = []
    for start in range(0, len(text), OTHERS):
        captured = CapturedText(text[start : start + OTHERS], ends_with_line=True)
        for rule in rules:
            reading = rule.read(captured, site) if rule.recognises(captured.text) else None
            # messages without a known error are no output of their own: a word of theirs stands in other outputs as well
            if reading is not None and (rule not in MESSAGES or reading.verdict is ReadingVerdict.FAIL):
                readings.append(reading)
    return readings


OTHERS = 4 << 20
"""Characters in which outputs of further tools are looked for at a time."""
NOT_BESIDE = tuple(rule for rule in TABLE if rule.read is spack_readings.read_broken_environment)
"""Rules that recognise a text by what it is not."""
MESSAGES = tuple(
    rule
    for rule in TABLE
    if rule.tool in (_SLURM.SLURM, mpi_readings.MPI, _CONTROLLER.ERRORS, kernel_readings.KERNEL, kernel_readings.FABRIC_MANAGER)
    or rule.tool in (_CONTROLLER.ARGO_CD, _CONTROLLER.GPU_OPERATOR, _CONTROLLER.HELM, _SETUP.RKE2)
)
"""Rules for messages of programs, which several of them may recognise; the first of TABLE is the most specific."""


ALIKE = 64
"""Lines that differ in numbers only and of which a further tool's output may consist."""
MOST_SHAPES = 50_000
_NUMBER = re.compile(r"\d+")


def _shapes(lines: list[str]) -> list[str]:
    return _NUMBER.sub("0", "\n".join(lines)).split("\n")


class _OtherLines:
    """The lines of a long log that NCCL did not print, in which other tools' outputs are looked for."""

    def __init__(self, site: SiteValues) -> None:
        self._site, self._text, self._size = site, list[str](), 0
        self._shapes: dict[str, int] = {}
        self._readings: list[ToolReading] = []

    def feed(self, part: str) -> str:
        """Take one part of the log and return it."""
        lines = [line for line in part.split("\n") if " NCCL INFO " not in line]
        self._text.append("\n".join(line for line, shape in zip(lines, _shapes(lines), strict=True) if self._is_new(shape)))
        self._size += len(self._text[-1])
        if self._size > OTHERS:
            self._look()
        return part

    def _is_new(self, shape: str) -> bool:
        """Return True for the first lines of a shape: a program that prints the like thousands of times is no further tool."""
        number = self._shapes.get(shape, 0)
        if len(self._shapes) < MOST_SHAPES or number:
            self._shapes[shape] = number + 1
        return number < ALIKE

    def _look(self) -> None:
        nccl = next(rule for rule in TABLE if rule.tool == nccl_readings.TOOL)
        text = captured_text.with_bounded_lines("".join(self._text))
        self._readings += _others(text, nccl, self._site)
        self._text, self._size = [], 0

    def readings(self) -> list[ToolReading]:
        """Return the readings of the other tools."""
        self._look()
        return self._readings


def _rule_of(text: str) -> ToolRule | None:
    return next((rule for rule in TABLE if rule.recognises(text)), None)


def _guarded(reading: ToolReading, captured: CapturedText, *, ends_itself: bool) -> ToolReading:
    """Return a reading, which is no pass if the text may be cut in its last line."""
    if reading.is_pass and not ends_itself and not captured.ends_with_line:
        return undecided(reading.tool, "the last line has no end: the output may be cut", reading.figures)
    return reading


def _unknown(cause: str, next_step: str) -> ToolReading:
    return ToolReading(tool="unknown", verdict=ReadingVerdict.UNKNOWN_INPUT, cause=cause, next_step=next_step)


def tools() -> tuple[str, ...]:
    """Return the names of the tools whose output is recognised."""
    return tuple(dict.fromkeys([*(rule.tool for rule in DOCUMENTS), *(rule.tool for rule in TABLE)]))


def fields(reading: ToolReading) -> dict[str, object]:
    """Return a reading as data: verdict, class and cause beside the figures, by the names of recorded readings."""
    data: dict[str, object] = {"tool": reading.tool, "verdict": reading.verdict.value}
    if reading.failure_class is not None and reading.verdict is ReadingVerdict.FAIL:
        data["class"] = reading.failure_class.value
    if reading.cause:
        data["cause"] = reading.cause
    data |= {name: msgspec.to_builtins(value) for name, value in reading.figures.items()}
    texts = {"detail": reading.detail, "expected_state": reading.expected, "next_step": reading.next_step}
    return data | {name: text for name, text in texts.items() if text and name not in reading.figures}
