"""Every case of the conformance corpus: executed like the real controller, or refused with a sentence; nothing in between."""

import pytest

from tests.conformance.corpus import Results

ENOUGH = 100  # executed cases; a change that refuses what was executed before is a regression


def test_each_case_is_executed_or_refused_with_a_sentence(results: Results) -> None:
    third = {name: outcome for name, outcome in results.outcomes.items() if outcome not in ("executed", "refused")}
    assert not third
    for name in (name for name, outcome in results.outcomes.items() if outcome == "refused"):
        path, _, sentence = (results.folder / f"{name}.refused").read_text().partition(": ")
        assert path
        assert sentence.strip()


def test_executed_cases_agree_with_the_controller(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    compared, executed = results.compare("--core"), len(results.executed)
    with capsys.disabled():
        print(f"\nconformance: {executed} executed, {len(results.outcomes) - executed} refused of {len(results.outcomes)} cases")
    assert compared.returncode == 0, compared.stdout
    assert executed >= ENOUGH


def test_a_refused_case_is_one_that_the_controller_failed_or_rejected(results: Results) -> None:
    """The grammar has room for every manifest of the corpus that ran: only defective ones are refused."""
    for name, outcome in results.outcomes.items():
        if outcome == "refused":
            assert results.recorded(name)["phase"] in ("Failed", "Error", "Rejected"), name
