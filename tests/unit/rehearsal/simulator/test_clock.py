"""The event queue: order, keys, quantum, and time that never runs back."""

from __future__ import annotations

import functools

from workflows.rehearsal.simulator.virtual_clock import VirtualClock, parse_stamp, stamp


def run(clock: VirtualClock, until: float) -> None:
    while True:
        actions = list(clock.take(until))
        for action in actions:
            action()
        if not actions:
            return


def test_events_run_in_time_order_and_same_instants_by_key() -> None:
    clock = VirtualClock(1000.0)
    seen: list[tuple[str, float]] = []

    def note(key: str) -> None:
        seen.append((key, clock.now))

    for key, delay in (("late", 9.0), ("b", 3.0), ("a", 3.0)):
        clock.schedule(key, delay, functools.partial(note, key))
    run(clock, 2000.0)
    assert seen == [("a", 1003.0), ("b", 1003.0), ("late", 1009.0)]
    assert clock.next_due() is None


def test_a_pending_key_is_not_scheduled_twice_but_again_after_it_ran() -> None:
    clock, seen = VirtualClock(0.0), []
    assert clock.schedule("k", 1, lambda: seen.append(1))
    assert not clock.schedule("k", 5, lambda: seen.append(2))
    run(clock, 10)
    assert clock.schedule("k", 1, lambda: seen.append(3))
    run(clock, 20)
    assert seen == [1, 3]


def test_due_times_are_rounded_up_to_the_quantum() -> None:
    clock = VirtualClock(0.0, quantum=5.0)
    clock.schedule("a", 0.1, lambda: None)
    clock.schedule("b", 4.9, lambda: None)
    assert len(list(clock.take(5.0))) == 2
    assert clock.now == 5.0


def test_time_stands_until_an_event_or_a_jump_and_never_runs_back() -> None:
    clock = VirtualClock(100.0)
    clock.schedule("k", 50, lambda: None)
    assert list(clock.take(120.0)) == []
    assert clock.now == 100.0
    clock.jump(90.0)
    assert clock.now == 100.0
    clock.jump(130.0)
    assert clock.now == 130.0


def test_stamps_are_read_back() -> None:
    assert stamp(1_800_000_000.7) == "2027-01-15T08:00:00Z"
    assert parse_stamp("2027-01-15T08:00:00Z") == 1_800_000_000.0
    assert parse_stamp("2027-01-15T08:00:00.500000Z") == 1_800_000_000.5
