"""Ranges: what they mean, what is refused, and that fold and expand are each other's inverse."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.contract.host_ranges import fold
from workflows.spec import BadRange, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu1", ("gpu1",)),
        ("gpu[001-003]", ("gpu001", "gpu002", "gpu003")),
        ("gpu[9-11]", ("gpu9", "gpu10", "gpu11")),
        ("gpu[099-101]", ("gpu099", "gpu100", "gpu101")),
        ("gpu[1,3,5-6]", ("gpu1", "gpu3", "gpu5", "gpu6")),
        ("a[1-2],b7", ("a1", "a2", "b7")),
        ("rack[01-02]-node[1-2]", ("rack01-node1", "rack01-node2", "rack02-node1", "rack02-node2")),
        ("n[0-1].example.org", ("n0.example.org", "n1.example.org")),
        ("n[000-002]", ("n000", "n001", "n002")),
    ],
)
def test_a_range_is_its_names_in_order(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a,",
        "a[",
        "a]",
        "a[1-2",
        "a[[1-2]]",
        "a[]",
        "a[1-]",
        "a[-1]",
        "a[2-1]",
        "a[01-100]",
        "a[1-2],a2",
        "a b",
        "-a",
        "a%s b",
        "a[1-99999]",
    ],
)
def test_a_bad_range_is_refused_with_a_fix(text: str) -> None:
    with pytest.raises(BadRange) as caught:
        expand(text)
    assert caught.value.problem
    assert caught.value.fix


def test_fold_folds_runs_and_keeps_padding() -> None:
    assert fold(["gpu004", "gpu001", "gpu002"]) == "gpu[001-002,004]"
    assert fold([f"gpu{n:03d}" for n in range(98, 103)]) == "gpu[098-102]"
    assert fold(["gpu9", "gpu10"]) == "gpu[9-10]"
    assert fold(["login"]) == "login"


def test_a_percent_sign_is_no_format() -> None:
    with pytest.raises(BadRange):
        expand("%s[1-2]")


_numbers = st.integers(0, 2000)
_stems = st.sampled_from(["gpu", "a", "rack01-node", "x9y"])
_names = st.builds(lambda stem, number, width: f"{stem}{number:0{width}d}", _stems, _numbers, st.integers(1, 5))


@settings(deadline=None, derandomize=True)
@given(st.sets(_names | st.sampled_from(["login", "head"]), min_size=1, max_size=60))
def test_expand_gives_back_what_fold_folded(names: set[str]) -> None:
    folded = fold(names)
    assert set(expand(folded)) == names
    assert len(expand(folded)) == len(names)


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 4))
def test_fold_gives_back_what_expand_unfolded(first: int, more: int, width: int) -> None:
    text = f"n[{first:0{width}d}-{first + more:0{max(width, len(str(first + more)))}d}]"
    if len(text.split("-")[0]) - 2 != len(text.split("-")[1]) - 1 and text[2] == "0":
        return  # the ends pad differently, which is refused
    assert expand(fold(expand(text))) == expand(text)


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=40))
def test_any_text_is_names_or_a_bad_range(text: str) -> None:
    try:
        names = expand(text)
    except BadRange:
        return
    assert names
    assert len(set(names)) == len(names)


def test_ten_thousand_hosts_expand_in_less_than_50_ms() -> None:
    def seconds() -> float:
        expand.cache_clear()
        start = time.process_time()
        assert len(expand("rack[001-625]-node[01-16]")) == 10_000
        return time.process_time() - start

    assert min(seconds() for _ in range(3)) < 0.05
