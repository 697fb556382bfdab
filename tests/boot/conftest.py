"""At the end of the whole tier this machine is as it was: compared in one place, when all test processes have ended."""

from pathlib import Path
from typing import Any

import pytest

from tests.boot import leftovers
from tests.hosts.hostlab.waiting import until

ENDING_SECONDS = 30.0
"""Time in which the processes of a killed build must have ended by themselves."""
_TIER = pytest.StashKey[leftovers.Tier]()
_LEFT = pytest.StashKey[dict[str, list[str]]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before test processes are started, which inherit it."""
    config: Any = session.config
    if not hasattr(config, "workerinput"):
        # where the tests' own folders are: pytest tells it by a fixture alone, which only a test may ask for
        work: Path = config._tmp_path_factory.getbasetemp()
        config.stash[_TIER] = leftovers.begun(work)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After they have ended: whatever is left makes the session fail."""
    tier = session.config.stash.get(_TIER, None)
    if tier is None:
        return
    until(lambda: not tier.left(), ENDING_SECONDS)
    session.config.stash[_LEFT] = found = tier.left()
    if found and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    tier.close()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name it."""
    for kind, names in config.stash.get(_LEFT, {}).items():
        terminalreporter.section(f"the boot tier left {kind} on this machine", red=True, bold=True)
        for name in names:
            terminalreporter.line(name)
