"""Slurm's host lists."""

import pytest

from steps.stages.slurm.reader import MOST, MOST_LISTED, expand_hostlist, expand_hostlists


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu001", ("gpu001",)),
        ("gpu[001-003]", ("gpu001", "gpu002", "gpu003")),
        ("dgx[1,3-4],login1", ("dgx1", "dgx3", "dgx4", "login1")),
        ("r[1-2]n5-ib", ("r1n5-ib", "r2n5-ib")),
        ("c[09-11]", ("c09", "c10", "c11")),
        ("r[1-2]n[08-09]", ("r1n08", "r1n09", "r2n08", "r2n09")),
        ("r[1-2]n[3-1]", ()),
        ("x[3-1]", ()),
        ("x[a-b]", ("x", "a-b")),
        ("", ()),
    ],
)
def test_expand(text: str, hosts: tuple[str, ...]) -> None:
    assert expand_hostlist(text) == hosts


def test_a_hostile_list_is_cut() -> None:
    assert len(expand_hostlist("x[1-999999999]," * 3)) == MOST
    assert len(expand_hostlist("x[0-99999][0-99999][0-99999]")) == MOST
    assert sum(map(len, expand_hostlists(f"x{number}[0-999999]" for number in range(300)))) == MOST_LISTED
