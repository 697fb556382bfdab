"""The log of a step: its key in the store, and the last line of the step's stderr, which names that key to whoever follows it."""

import re


def folder(run: str) -> str:
    """The folder of all logs of a run."""
    return f"runs/{run}/logs"


def key(run: str, stage: str, task: str, shard: int, attempt: int) -> str:
    """Write-once key of a log: `runs/RUN/logs/STAGE/TASK/SHARD/ATTEMPT.log`, numbered as the attempt's record where it has one."""
    return f"{folder(run)}/{stage}/{task}/{shard:04d}/{attempt:02d}.log"


def kept_line(key_: str) -> str:
    """What a step says last, on its stderr only: the same text lies in the store from now on."""
    return f"log kept as {key_}\n"


KEPT = re.compile(r"^log kept as (runs/[^\s/]+/logs/\S+)\n", re.MULTILINE)
"""Finds those lines in what an engine has of a step; the group is the key."""
