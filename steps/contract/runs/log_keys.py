"""Store keys of the logs of steps and of the events of plays, and the line on stderr that names a log's key."""

import re


def folder(run: str) -> str:
    """Return the folder of all logs of a run."""
    return f"runs/{run}/logs"


def key(run: str, stage: str, task: str, shard: int, attempt: int) -> str:
    """Return the write-once key of a log: `runs/RUN/logs/STAGE/TASK/SHARD/ATTEMPT.log`, numbered like the attempt's record."""
    return f"{folder(run)}/{stage}/{task}/{shard:04d}/{attempt:02d}.log"


def all_events(run: str) -> str:
    """Return the folder of the events of all plays of a run."""
    return f"runs/{run}/events"


def events_folder(run: str, stage: str, task: str, shard: int) -> str:
    """Return the folder of the events of one shard's hosts, task by task: `runs/RUN/events/STAGE/TASK/SHARD`."""
    return f"{all_events(run)}/{stage}/{task}/{shard:04d}"


def events_key(run: str, stage: str, task: str, shard: int, attempt: int) -> str:
    """Return the write-once key of the events of one attempt (lines of JSON, `PlayEvent`), numbered like its log."""
    return f"{events_folder(run, stage, task, shard)}/{attempt:02d}.jsonl"


def cut_off_key(folder_: str, number: int) -> str:
    """Return the write-once key, below an events folder, of the events of a killed attempt; it has no record and no log."""
    return f"{folder_}/cut-off-{number:02d}.jsonl"


def kept_line(key_: str) -> str:
    """Return the last line that a step writes to stderr: the key under which the same text is in the store."""
    return f"log kept as {key_}\n"


SILENT = "(it said nothing)"
"""Text that commands show in place of an empty log."""
KEPT = re.compile(r"^log kept as (runs/[^\s/]+/logs/\S+)\n", re.MULTILINE)
"""Pattern of the line that names a stored log in the output of a step; the group is the key."""
