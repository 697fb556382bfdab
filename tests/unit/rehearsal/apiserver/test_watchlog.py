"""The change log: how far back it reaches, what a selection sees, what a slow follower gets."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rehearsal.apiserver.properties import repeatable
from workflows.rehearsal.apiserver.selectors import Selection, parse_labels
from workflows.rehearsal.apiserver.stored_object import StoredObject
from workflows.rehearsal.apiserver.watchlog import ObjectChange, Subscription, WatchLog


def entry(revision: int, app: str = "x", size: int = 10) -> StoredObject:
    return StoredObject("n", "a", revision, b'{"metadata":{"resourceVersion":"1"}}'.ljust(size), {"app": app}, ())


def revisions(subscription: Subscription) -> list[int]:
    return [change.entry.revision for change in subscription.take()]


def test_log_forgets_by_count_and_by_bytes() -> None:
    for log in (WatchLog(0, max_changes=3), WatchLog(0, max_bytes=300)):
        for revision in range(1, 6):
            log.append(ObjectChange("ADDED", entry(revision, size=100), None))
        follower = Subscription(Selection())
        assert not log.follow(follower, 1)
        assert log.floor == 2
        assert log.follow(follower, 2)
        assert revisions(follower) == [3, 4, 5]


def test_compaction_keeps_followers() -> None:
    log, follower = WatchLog(0), Subscription(Selection())
    log.follow(follower, None)
    log.append(ObjectChange("ADDED", entry(1), None))
    log.compact(1)
    log.append(ObjectChange("MODIFIED", entry(2), entry(1)))
    assert revisions(follower) == [1, 2]
    assert not log.follow(Subscription(Selection()), 0)


def test_slow_follower_is_ended() -> None:
    log, follower = WatchLog(0), Subscription(Selection(), max_backlog=2)
    log.follow(follower, None)
    for revision in range(1, 5):
        log.append(ObjectChange("ADDED", entry(revision), None))
    assert follower.ended == "closed"


def test_expired_followers_know_why() -> None:
    log, follower = WatchLog(0), Subscription(Selection())
    log.follow(follower, None)
    log.expire(7)
    assert (follower.ended, log.floor) == ("expired", 7)


@repeatable
@given(st.lists(st.sampled_from(["x", "y", None]), max_size=20))
def test_selected_events_rebuild_the_selected_state(states: list[str | None]) -> None:
    """Whatever happens to an object, a follower that applies its events ends with what a list would show."""
    log, follower = WatchLog(0), Subscription(Selection(labels=parse_labels("app=x")))
    log.follow(follower, None)
    held: StoredObject | None = None
    for revision, app in enumerate(states, start=1):
        new = entry(revision, app) if app else None
        if new:
            log.append(ObjectChange("MODIFIED" if held else "ADDED", new, held))
        elif held:
            log.append(ObjectChange("DELETED", entry(revision, held.labels["app"]), held))
        held = new
    present = False
    for change in follower.take():
        assert present == (change.kind != "ADDED")
        present = change.kind != "DELETED"
    assert present == (held is not None and held.labels["app"] == "x")
