"""Logs of containers without the lines of Argo's executor."""

import pytest

from workflows.engines.argo import logs

BEGIN = 'time=2026-11-23T16:31:08.442Z level=INFO msg="waiting for signals" argo=true\n'
END = "Error: exit status 64\n"
STAMP = "time=2026-11-26T11:22:03.671Z level=INFO"
AROUND = f"""{STAMP} msg="waiting for signals" argo=true signalPath=/var/run/argo/ctr/main/signal
recorded as attempt 1
{STAMP} msg="sub-process exited" error=<nil> argo=true
{STAMP} msg="file signal handler exiting due to context cancellation" argo=true
{STAMP} msg="no need to save parameter - on overlapping volume" argo=true src=/bringup/out/verdict"""
"""The log of a step whose output Argo takes, as Argo 4.1.2 left it; a kubelet may give the last line without its end."""


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"{BEGIN}error: there is no branch main\n{END}", "error: there is no branch main\n"),
        (f"one\n{BEGIN}two\n", "one\ntwo\n"),
        ("Error: exit status 3\nof a command of ours\n", "Error: exit status 3\nof a command of ours\n"),
        (AROUND, "recorded as attempt 1\n"),
        (f"{AROUND}\n", "recorded as attempt 1\n"),
        ("time=1 level=INFO msg=ours\n", "time=1 level=INFO msg=ours\n"),
        (f"{STAMP} msg=ours argo=trueish\n", f"{STAMP} msg=ours argo=trueish\n"),
    ],
    ids=["both", "amid", "not the last", "all of a step", "all with its end", "not Argo's", "not quite Argo's"],
)
def test_lines_of_argos_executor_are_left_out(text: str, left: str) -> None:
    assert logs.ARGOS.sub("", text) == left
