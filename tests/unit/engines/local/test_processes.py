"""The mark in the environment of a process, read at any moment of its life."""

import os
import subprocess

from workflows.engines.local import process_control

TIMES = 400
"""Looking without care misses one in forty."""


def test_a_mark_is_seen_as_soon_as_the_process_is_there() -> None:
    """Popen returns amid execve, when the new program has no environment yet."""
    for _ in range(TIMES):
        started = subprocess.Popen(["sleep", "60"], env={**os.environ, process_control.MARK: "here"})
        mark = process_control.mark_of(started.pid)
        started.kill()
        started.wait()
        assert mark == "here"


def test_what_has_no_environment_has_no_mark() -> None:
    with subprocess.Popen(["sleep", "60"], env={}) as started:
        assert process_control.mark_of(started.pid) == ""
        started.kill()
    assert process_control.mark_of(started.pid) == "", "nobody is there any more"
    assert process_control.mark_of(2) == "", "a kernel's thread, or somebody else's process"
