"""Answer of nvidia-smi: its output for other readers, and its exit code and text as facts of the machine."""

from __future__ import annotations

import re

from ansible.module_utils.nodeprofile.item import NO_COMMAND, NodeAccess

ANSWER_SECONDS = 60
"""Longest wait for nvidia-smi, in seconds. Eight GPUs take seconds; if one has left the bus, nvidia-smi may never end."""
ATTACHED = re.compile(r"^Attached GPUs\s*:\s*(\d+)", re.MULTILINE)
COMPLAINT = re.compile(
    r"^.*(?:has failed|Failed to initialize|Unable to determine|GPU is lost|fallen off|No devices were found|infoROM is corrupted"
    r"|No such|Insufficient Permissions|not found).*$",
    re.MULTILINE | re.IGNORECASE,
)
"""Lines that say what is wrong. nvidia-smi prints them on either stream, before or after the GPUs that it could read."""
LONGEST = 300
"""Longest text that is kept, in characters."""


def ask(node: NodeAccess, seconds: float = ANSWER_SECONDS) -> tuple:
    """Return the output of `nvidia-smi -q`, and facts of the os_prep contract about it: `nvidia_smi_hangs` and `nvidia_smi`.

    There is no fact `nvidia_smi` if it did not end in time, or if the machine lacks it, as with a driver of a container.
    """
    answer = node.run_bounded(seconds, "nvidia-smi", "-q")
    if answer is None:
        return "", {"nvidia_smi_hangs": True}
    code, output = answer
    if code == NO_COMMAND:
        return "", {"nvidia_smi_hangs": False}
    gpus = ATTACHED.search(output)
    known = {"gpus": int(gpus.group(1))} if gpus else {}
    return output, {"nvidia_smi_hangs": False, "nvidia_smi": dict(known, exit_code=code, text=_text(code, output))}


def _text(code: int, output: str) -> str:
    """Return the complaints in the output; without one but with an exit code of failure, its last line."""
    lines = [" ".join(line.split()) for line in COMPLAINT.findall(output)]
    last = [" ".join(line.split()) for line in output.splitlines() if line.strip()][-1:]
    return "; ".join(dict.fromkeys(lines or (last if code else [])))[:LONGEST]
