"""What a container said, without what Argo's executor says among it."""

import pytest

from workflows.engines.argo import logs

BEGIN = 'time=2026-11-23T16:31:08.442Z level=INFO msg="waiting for signals" argo=true\n'
END = "Error: exit status 64\n"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"{BEGIN}error: there is no branch main\n{END}", "error: there is no branch main\n"),
        (f"one\n{BEGIN}two\n", "one\ntwo\n"),
        ("Error: exit status 3\nof a command of ours\n", "Error: exit status 3\nof a command of ours\n"),
        ("time=1 level=INFO msg=ours\n", "time=1 level=INFO msg=ours\n"),
    ],
    ids=["both", "amid", "not the last", "not Argo's"],
)
def test_lines_of_argos_executor_are_left_out(text: str, left: str) -> None:
    assert logs.ARGOS.sub("", text) == left
