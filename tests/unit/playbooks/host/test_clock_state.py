"""The state of the clock as chrony reports it, and how long a service that has just started is waited for."""

import pytest
from ansible.module_utils.nodeprofile import clock_state

from tests.unit.playbooks.machine import Machine

# chronyc(1), `tracking` with -c: reference id, its address, stratum, reference time, system time, last offset, RMS offset,
# frequency, residual frequency, skew, root delay, root dispersion, update interval, leap status
SYNCED = (
    "C0000201,192.0.2.1,3,1767607200.123456789,{},-0.000031415,0.000112233,-12.345,0.001,0.051,0.012345678,0.001234567,64.4,{}\n"
)
UNSYNCED = (
    "00000000,,0,0.000000000,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,1.000000000,1.000000000,0.0,Not synchronised\n"
)
# the same with `local stratum 10` in its configuration, and no server that answers
LOCAL = (
    "7F7F0101,,10,1767607200.123456789,0.000000000,0.000000000,0.000000000,-12.345,0.000,0.000,0.000000000,0.000000000,0.0,Normal\n"
)


@pytest.mark.parametrize("leap", ["Normal", "Insert second", "Delete second"])
def test_the_offset_of_the_system_time_is_chronys_fifth_field(leap: str) -> None:
    node = Machine({"chronyc": lambda _: (0, SYNCED.format("0.000012345", leap), "")})
    assert clock_state.chrony(node) == {"synchronized": True, "offset_seconds": 0.000012345}
    behind = Machine({"chronyc": lambda _: (0, SYNCED.format("-37.000000012", leap), "")})
    assert clock_state.chrony(behind) == {"synchronized": True, "offset_seconds": -37.000000012}
    assert node.said == [("chronyc", "-c", "-n", "tracking")]


def test_a_chrony_without_a_source_has_no_offset_and_one_that_is_not_there_says_nothing() -> None:
    assert clock_state.chrony(Machine({"chronyc": lambda _: (0, UNSYNCED, "")})) == {"synchronized": False}
    assert clock_state.chrony(Machine({"chronyc": lambda _: (0, LOCAL, "")})) == {"synchronized": False}, "it follows its own clock"
    assert clock_state.chrony(Machine({"chronyc": lambda _: (1, "506 Cannot talk to daemon\n", "")})) is None
    assert clock_state.chrony(Machine({})) is None


def test_a_time_service_that_has_just_started_is_waited_for_and_one_that_is_settled_costs_one_look() -> None:
    answers = [(1, "506 Cannot talk to daemon\n", ""), (0, UNSYNCED, ""), (0, SYNCED.format("0.0001", "Normal"), "")]
    starting = Machine({"chronyc": lambda _: answers.pop(0)})
    assert clock_state.wait_for_sync(starting, 60.0, pause=0.0) == {"synchronized": True, "offset_seconds": 0.0001}
    assert len(starting.said) == 3

    settled = Machine({"chronyc": lambda _: (0, SYNCED.format("0.0001", "Normal"), "")})
    assert clock_state.wait_for_sync(settled, 60.0)["synchronized"]
    assert len(settled.said) == 1


def test_a_clock_that_is_being_brought_near_is_waited_for() -> None:
    answers = [(0, SYNCED.format(offset, "Normal"), "") for offset in ("-0.53", "0.2", "0.004", "0.001")]
    slewing = Machine({"chronyc": lambda _: answers.pop(0)})
    assert clock_state.wait_for_sync(slewing, 60.0, pause=0.0) == {"synchronized": True, "offset_seconds": 0.004}


def test_the_wait_ends_and_says_what_was_seen_last() -> None:
    alone = Machine({"chronyc": lambda _: (0, UNSYNCED, "")})
    assert clock_state.wait_for_sync(alone, 0.0) == {"synchronized": False}
    assert len(alone.said) == 1
