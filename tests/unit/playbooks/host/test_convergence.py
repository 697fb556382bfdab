"""A second reading of the whole profile decides for each item whether it was changed, stayed as wanted or failed."""

import pytest
from ansible.module_utils.nodeprofile import convergence
from ansible.module_utils.nodeprofile.item import item

CHANGED = item("service a", "changed", want="active", before="not active", after="active")
OK = item("service a", "ok", want="active", after="active")
WAITS = item("service a", "differs", want="active", before="b", after="kept", why="the next boot brings it")
DIFFERS = item("service a", "differs", want="active", before="not active", after="not active")
LACKS = item("service a", "unavailable", want="active", before="not active", why="a condition of the unit is not met")
FAILED = item("service a", "failed", want="active", before="not active", why="systemctl enable ended with 1")


def test_what_the_machine_turns_out_to_lack_was_not_changed() -> None:
    (row,) = convergence.confirm([CHANGED], [LACKS])
    assert row == item("service a", "unavailable", want="active", before="not active", why="a condition of the unit is not met")
    assert convergence.confirm([OK], [LACKS])[0]["status"] == "unavailable"


@pytest.mark.parametrize(
    ("first", "second", "status", "why"),
    [
        (CHANGED, DIFFERS, "failed", "changed, and something changed it back at once"),
        (CHANGED, FAILED, "failed", "systemctl enable ended with 1"),
        (CHANGED, WAITS, "differs", "the next boot brings it"),
        (OK, DIFFERS, "failed", "it was as wanted, and another change undid it"),
        (OK, FAILED, "failed", "it was as wanted, and another change undid it: systemctl enable ended with 1"),
        (OK, WAITS, "differs", "the next boot brings it"),
    ],
)
def test_what_did_not_last_has_failed_or_waits(first: dict[str, str], second: dict[str, str], status: str, why: str) -> None:
    (row,) = convergence.confirm([first], [second])
    assert (row["status"], row["why"], row["after"]) == (status, why, second.get("after", ""))


def test_what_another_change_mended_is_changed_and_the_rest_stays() -> None:
    assert convergence.confirm([FAILED], [OK])[0]["status"] == "changed"
    for first, second in ((FAILED, LACKS), (FAILED, DIFFERS), (LACKS, DIFFERS), (CHANGED, OK), (OK, OK)):
        assert convergence.confirm([first], [second])[0]["status"] == first["status"]
    assert convergence.confirm([CHANGED], []) == [CHANGED], "a reload is read by what it brings"
