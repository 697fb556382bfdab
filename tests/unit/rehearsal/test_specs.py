"""Whole bring-ups of many specs rehearsed without delays: every shipped example, and generated specs that pair all choices."""

from pathlib import Path

import pytest

from tests.unit.rehearsal import pairwise_specs
from tests.unit.rehearsal.whole_rehearsals import refusals
from workflows import examples
from workflows.spec import load


@pytest.mark.parametrize("name", examples.names())
def test_every_example_rehearses_to_the_end(name: str, tmp_path: Path) -> None:
    assert not refusals(load(examples.path(name)), tmp_path)


@pytest.mark.sampled_rows(3)
@pytest.mark.parametrize("choice", pairwise_specs.choices(), ids=pairwise_specs.title)
def test_a_generated_spec_rehearses_to_the_end(choice: pairwise_specs.Choice, tmp_path: Path) -> None:
    try:
        spec = pairwise_specs.spec_of(choice)
    except ValueError as error:
        pytest.fail(f"no longer a valid spec (then run `python -m tests.unit.rehearsal.pairwise_specs`): {error}")
    assert not refusals(spec, tmp_path)


@pytest.mark.long
def test_the_generated_specs_have_every_pair_that_is_possible() -> None:
    kept = {pair for choice in pairwise_specs.choices() for pair in pairwise_specs.pairs(choice)}
    assert {pair for choice in pairwise_specs.generated() for pair in pairwise_specs.pairs(choice)} <= kept
