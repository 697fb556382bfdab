"""Every golden spec prints exactly its golden text: the words a user sees are part of the product.

`BRINGUP_REGENERATE=1` rewrites the texts; otherwise they are only compared.
"""

import os
from pathlib import Path

import pytest

from workflows import spec

GOLDEN = Path(__file__).parents[2] / "golden" / "spec"
CASES = sorted(GOLDEN.glob("*.yaml"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_text_of_a_broken_spec(case: Path) -> None:
    with pytest.raises(spec.SpecErrors) as caught:
        spec.load(case)
    text = f"{caught.value}\n"
    golden = case.with_suffix(".txt")
    if os.environ.get("BRINGUP_REGENERATE"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    assert caught.value.exit_code == 64


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_every_error_has_a_problem_a_fix_and_a_line(case: Path) -> None:
    with pytest.raises(spec.SpecErrors) as caught:
        spec.load(case)
    written = case.read_text(encoding="utf-8")
    for error in caught.value.errors:
        assert error.problem
        assert error.fix
        assert error.line or f"\n{error.path.split('.')[0]}:" not in written, error


def test_a_planted_secret_is_never_repeated() -> None:
    with pytest.raises(spec.SpecErrors) as caught:
        spec.load(GOLDEN / "secrets.yaml")
    assert "CANARY" not in str(caught.value)
    assert "CANARY" not in repr(caught.value)
    assert "CANARY" in (GOLDEN / "secrets.yaml").read_text(encoding="utf-8")


def test_one_broken_section_hides_no_error_between_the_others() -> None:
    text = (GOLDEN / "accelerators.yaml").read_text(encoding="utf-8").replace("owner: o", "ownr: o")
    with pytest.raises(spec.SpecErrors) as caught:
        spec.load(text)
    paths = {error.path for error in caught.value.errors}
    assert {"ownr", "sharing.mode", "rke2.registration_address", "approvals[1].before"} <= paths
