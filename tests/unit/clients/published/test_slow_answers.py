"""The far end of a session that takes its time: as much as what it was asked for may take, and no more."""

import pytest

from steps.clients.releases.shell_session import ShellTransport
from steps.clients.releases.tree_operations import Sync
from steps.errors import Unreachable

BEGINS = "read -r root; echo done; read -r asked; "
LISTS = BEGINS + 'for name in a b c d e; do sleep 1; printf "i %s\\0" "$name"; done; printf "z\\0"'
DOES = BEGINS + 'while [ "$asked" != end ]; do read -r asked; done; sleep 4 >&-; echo done'
IS_SILENT = BEGINS + "exec sleep 600"


def session(program: str, seconds: float) -> ShellTransport:
    return ShellTransport(["sh", "-c", program], "/srv/images", "there", answer=seconds)


def test_a_long_list_may_take_long_as_long_as_it_goes_on() -> None:
    """Five seconds, of which nobody waits longer than one for the next name."""
    way = session(LISTS, 3.0)
    try:
        assert way.look("compute").products == ("a", "b", "c", "d", "e")
    finally:
        way.close()


def test_each_of_many_steps_has_its_time() -> None:
    """Four seconds, which one step has not and a hundred have."""
    for steps, is_in_time in ((100, True), (1, False)):
        way = session(DOES, 2.0)
        try:
            if is_in_time:
                way.perform([Sync("boot")] * steps)
            else:
                with pytest.raises(Unreachable, match="there: no answer in time"):
                    way.perform([Sync("boot")] * steps)
        finally:
            way.close()


def test_who_says_nothing_is_given_up() -> None:
    way = session(IS_SILENT, 2.0)
    try:
        with pytest.raises(Unreachable, match="there: no answer in time"):
            way.look("compute")
    finally:
        way.close()
