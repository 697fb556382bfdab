"""Ranges read as an admin writes them, and equal lines of many hosts become one."""

import pytest

from steps.contract.host_ranges import expand, fold, fold_lines
from workflows.spec import range_syntax


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["gpu001"], "gpu001"),
        (["gpu002", "gpu001", "gpu004"], "gpu[001-002,004]"),
        ([f"gpu{number:03d}" for number in range(98, 103)], "gpu[098-102]"),
        ([f"sv{number}" for number in range(12)], "sv[0-11]"),
        (["n9", "n10", "login"], "n[9-10],login"),
        (["rack1-node01", "rack1-node02", "rack2-node01"], "rack1-node[01-02],rack2-node01"),
        (["a1.example.org", "a2.example.org"], "a[1-2].example.org"),
    ],
)
def test_names_fold(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@pytest.mark.parametrize(
    "text", ["gpu[001-016]", "rack[01-04]-node[01-16,20]", "a[1-3],b7", "n[8-11],login.example.org", "sv1", "x[0-2] , y[007]"]
)
def test_ranges_of_a_spec_unfold_to_the_same_hosts(text: str) -> None:
    assert tuple(expand(text)) == range_syntax.expand(text)


def test_what_is_folded_unfolds() -> None:
    names = ["a1", "gpu009", "gpu010", "login", "n10", "n9"]
    assert sorted(expand(fold(names))) == names
    assert list(expand("")) == []


def test_lines_that_differ_by_host_become_one_and_keep_their_order() -> None:
    hosts = {f"gpu{number:03d}" for number in range(1, 17)}
    lines = [*(f"{host}: 12 changes" for host in sorted(hosts)), "created Namespace gang", "cordoned gpu003", "cordoned gpu001"]
    assert fold_lines(lines, hosts) == ("gpu[001-016]: 12 changes", "created Namespace gang", "cordoned gpu[001,003]")


def test_different_counts_stay_apart() -> None:
    assert fold_lines(["a1: 2 changes", "a2: 3 changes"], {"a1", "a2"}) == ("a1: 2 changes", "a2: 3 changes")
