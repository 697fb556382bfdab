"""Patterns over the output of tests: which are refused, what they match, and figures within limits."""

import time

import pytest

from steps.softwarestack.contract import output_patterns
from steps.softwarestack.contract.output_patterns import OutputReference


@pytest.mark.parametrize(
    ("pattern", "groups", "why"),
    [
        ("^2 ranks, sum 3$", None, ""),
        (r"bandwidth: +([0-9.]+) GB/s", 1, ""),
        (r"(?:rank|process) \d+ of (\d+)", 1, ""),
        (r"[(*+] and \(a*\)\*", None, ""),
        ("(ab)*(cd)+", None, ""),
        ("", None, ""),
        ("(", None, "no regular expression"),
        ("rank [0-9]+", 1, "0 groups, and 1 is expected"),
        ("(a)(b)", 1, "2 groups"),
        ("x" * 301, None, "301 characters"),
        ("(a+)+$", None, "repetition within a repetition"),
        ("((a|b*)c){2,}", None, "repetition within a repetition"),
        ("(?:x(?:y*)z)*", None, "repetition within a repetition"),
        ("a*" * 9, None, "more than 8 repetitions"),
    ],
)
def test_patterns_that_may_take_forever_are_refused(pattern: str, groups: int | None, why: str) -> None:
    problem = output_patterns.problem(pattern, groups)
    assert why in problem
    assert bool(problem) == bool(why)


def test_lines_are_searched_one_by_one_and_not_beyond_their_limit() -> None:
    match = output_patterns.matching_line(r"^sum (\d+)$", "rank 0\nsum 3\nsum 4\n")
    assert match is not None
    assert match[1] == "3"
    assert output_patterns.matching_line("rank 0.sum", "rank 0\nsum 3") is None
    assert output_patterns.matching_line("end", "x" * 1000 + "end") is None


def test_a_hostile_line_ends_in_time() -> None:
    begun = time.process_time()
    assert output_patterns.matching_line(r"(\d+) of (\d+)x", "1" * 1_000_000) is None
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("least", "most", "value", "is_within"),
    [
        (2, None, 2, True),
        (2, None, 1.9, False),
        (None, 2, 2, True),
        (1, 2, 1.5, True),
        (1, 2, 3, False),
        (1, 2, float("nan"), False),
    ],
)
def test_limits_of_a_figure(least: float | None, most: float | None, value: float, is_within: bool) -> None:
    assert OutputReference(pattern="(x)", least=least, most=most).has(value) == is_within
