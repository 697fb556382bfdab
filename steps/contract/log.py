"""The log of a step: its key in the store, and the last line of the step's stderr, which names that key to whoever follows it; and
beside it what each host of a play did."""

import re


def folder(run: str) -> str:
    """The folder of all logs of a run."""
    return f"runs/{run}/logs"


def key(run: str, stage: str, task: str, shard: int, attempt: int) -> str:
    """Write-once key of a log: `runs/RUN/logs/STAGE/TASK/SHARD/ATTEMPT.log`, numbered as the attempt's record where it has one."""
    return f"{folder(run)}/{stage}/{task}/{shard:04d}/{attempt:02d}.log"


def all_events(run: str) -> str:
    """The folder of what the hosts of a run did in its plays."""
    return f"runs/{run}/events"


def events_folder(run: str, stage: str, task: str, shard: int) -> str:
    """The folder of what the hosts of a shard did, task by task: `runs/RUN/events/STAGE/TASK/SHARD`."""
    return f"{all_events(run)}/{stage}/{task}/{shard:04d}"


def events_key(run: str, stage: str, task: str, shard: int, attempt: int) -> str:
    """Write-once key of those lines of JSON (`PlayEvent`), numbered as the log of the same attempt."""
    return f"{events_folder(run, stage, task, shard)}/{attempt:02d}.jsonl"


def cut_off_key(folder_: str, number: int) -> str:
    """Write-once key, below such a folder, of what hosts had done when an attempt was killed; it has no record and no log."""
    return f"{folder_}/cut-off-{number:02d}.jsonl"


def kept_line(key_: str) -> str:
    """What a step says last, on its stderr only: the same text lies in the store from now on."""
    return f"log kept as {key_}\n"


KEPT = re.compile(r"^log kept as (runs/[^\s/]+/logs/\S+)\n", re.MULTILINE)
"""Finds those lines in what an engine has of a step; the group is the key."""
