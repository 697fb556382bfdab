"""Slurm's own commands on a login node: each is started without a shell, its output is bounded, and jobs carry a mark to find them.

Every job that is started here has the name `JOB_NAME` and a comment with its run and the process that started it. So the jobs of
a run that was killed are found again by anybody who starts the next one.
"""

import os
import re
import socket
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps import timeouts
from steps.clients import process
from steps.clients.process import Done
from steps.errors import BadTask, Temporary

JOB_NAME: Final = "bringup-accept"
MAX_OUTPUT: Final = 64 << 20
_COMMENT: Final = re.compile(r"bringup (?P<run>[\w.-]+) on (?P<host>[\w.-]+) by (?P<pid>\d{1,9})/(?P<start>\d{1,20})")
_NOT_INSTALLED: Final = 127


class AcceptanceJob(Struct, frozen=True, kw_only=True):
    """Job of this user in the queue, with the run in its comment. `alive`: the process that started it may still wait for it."""

    id: str
    run: str
    alive: bool


class CommentedProcess(Struct, frozen=True, kw_only=True):
    """Process that a comment names, and its run. `alive`: it runs, or runs perhaps on another login node."""

    run: str
    alive: bool


class JobPlace(Struct, frozen=True, kw_only=True):
    """Place of a run's jobs: partition and account (empty: the user's defaults), and their working directory."""

    run: str
    folder: str
    partition: str = ""
    account: str = ""

    def options(self) -> list[str]:
        """Return the options that every job of the run has."""
        options = [f"--job-name={JOB_NAME}", f"--comment={comment(self.run)}", f"--chdir={self.folder}"]
        options += [f"--time={timeouts.SLURM_JOB_MINUTES}"]
        options += [f"--partition={self.partition}"] if self.partition else []
        return options + ([f"--account={self.account}"] if self.account else [])


JOB_SECONDS: Final = timeouts.SLURM_JOB_MINUTES * 60 + timeouts.SLURM_QUEUE + timeouts.SLURM_START
"""Longest time until a job of the run has ended, whatever becomes of it."""


def ask(*command: str, data: bytes = b"", seconds: float = timeouts.SLURM_ANSWER) -> Done:
    """Run a command and return its result; a command that is missing or does not end gets an exit code and a sentence as `err`."""
    try:
        done = process.run(command, data=data, seconds=seconds)
    except BadTask as error:
        return Done(code=_NOT_INSTALLED, out="", err=f"{error}; install Slurm's client commands on this node")
    except Temporary as error:
        return Done(code=124, out="", err=str(error))
    return Done(code=done.code, out=done.out[:MAX_OUTPUT], err=done.err[:MAX_OUTPUT])


def comment(run: str) -> str:
    """Return the comment of a job that this process starts for a run."""
    return f"bringup {run} on {socket.gethostname()} by {os.getpid()}/{_start_time(os.getpid())}"


def queued() -> tuple[AcceptanceJob, ...] | None:
    """Return this user's jobs that an acceptance started; None if the queue cannot be read."""
    done = ask("squeue", "--me", "--noheader", f"--name={JOB_NAME}", "--format=%i|%k")
    if done.code:
        return None
    jobs = []
    for line in done.out.splitlines():
        job, _, text = line.strip().partition("|")
        process_of_job = owner(text)
        if process_of_job is not None and re.fullmatch(r"[\d_\[\]%+-]+", job):
            jobs.append(AcceptanceJob(id=job, run=process_of_job.run, alive=process_of_job.alive))
    return tuple(jobs)


def owner(text: str) -> CommentedProcess | None:
    """Return the process that a comment names; None for a text that is no comment of ours."""
    match = _COMMENT.fullmatch(text.strip())
    return None if match is None else CommentedProcess(run=match["run"], alive=_is_alive(match))


def cancel(jobs: tuple[str, ...]) -> Done:
    """Cancel jobs by id, all of their steps included."""
    return ask("scancel", *jobs) if jobs else Done(code=0, out="", err="")


def _is_alive(match: re.Match[str]) -> bool:
    """Return True if the process of a comment runs, or runs perhaps: on another login node nobody here can tell."""
    if match["host"] != socket.gethostname():
        return True
    return _start_time(int(match["pid"])) == match["start"]


def _start_time(pid: int) -> str:
    """Return when a process started, in the kernel's ticks since boot; `0` if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"
