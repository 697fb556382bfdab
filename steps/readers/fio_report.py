"""Parses the JSON that fio writes with `--output-format=json` (https://fio.readthedocs.io, JSON output).

Bandwidths are in bytes a second (`bw_bytes`); releases before 3 print KiB a second in `bw` alone. Warnings may precede the JSON.
"""

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON

KIB = 1024
MOST_TEXT = 4 << 20


class FioJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Results of one job of fio: its error number, and MB/s (10^6 bytes) and operations per second of reads and writes."""

    name: str
    error: int = 0
    read_mb_s: float = 0.0
    write_mb_s: float = 0.0
    read_iops: float = 0.0
    write_iops: float = 0.0


class FioReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole report: fio's version and its jobs in order."""

    version: str = ""
    jobs: tuple[FioJob, ...] = ()


class _FioDirection(Struct, frozen=True):
    """Results of reads or of writes."""

    bw: float = 0.0
    bw_bytes: float | None = None
    iops: float = 0.0

    @property
    def megabytes(self) -> float:
        """Return the bandwidth in MB/s."""
        return (self.bw * KIB if self.bw_bytes is None else self.bw_bytes) / 1e6


class _FioJobDocument(Struct, frozen=True):
    """A job as fio writes it."""

    jobname: str
    error: int = 0
    read: _FioDirection = _FioDirection()
    write: _FioDirection = _FioDirection()


class _FioDocument(Struct, frozen=True, rename={"version": "fio version"}):
    """fio's JSON."""

    jobs: tuple[_FioJobDocument, ...]
    version: str = ""


def read(text: str) -> FioReport | None:
    """Return fio's report in a text; None if the text has none, or one that is cut."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        return None
    try:
        document = msgspec.json.decode(text[begin : end + 1][:MOST_TEXT].encode(errors="replace"), type=_FioDocument)
    except UNREADABLE_JSON:
        return None
    return FioReport(version=document.version, jobs=tuple(map(_of_job, document.jobs)))


def _of_job(job: _FioJobDocument) -> FioJob:
    return FioJob(
        name=job.jobname,
        error=job.error,
        read_mb_s=round(job.read.megabytes, 2),
        write_mb_s=round(job.write.megabytes, 2),
        read_iops=round(job.read.iops, 1),
        write_iops=round(job.write.iops, 1),
    )
