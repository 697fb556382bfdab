"""The runner of the tiers: what fails the whole run, and what its summary names."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests import tiers
from tests.tier_runs import Outcome, Tier, run_beside

TIER = Tier("one", ("tests/one",), 100, lambda: "")
GOOD = Outcome(TIER, passed=3, seconds=100.0, files={f"tests/one/test_{number}.py": float(number) for number in range(12)})


@pytest.mark.parametrize(
    ("outcome", "ci", "failed"),
    [
        (GOOD, True, 0),
        (replace(GOOD, failed=2), False, 2),
        (replace(GOOD, skipped=1), True, 1),
        (replace(GOOD, skipped=1), False, 0),
        (replace(GOOD, reason="not root"), True, 1),
        (replace(GOOD, seconds=150.0), True, 0),
        (replace(GOOD, seconds=151.0), True, 1),
        (replace(GOOD, seconds=151.0), False, 0),
    ],
)
def test_a_run_fails_by_its_tests_and_under_ci_by_what_is_left_out_or_late(outcome: Outcome, ci: bool, failed: int) -> None:
    assert tiers.summary([outcome], ci=ci, long=False) == failed


def test_sweeps_have_no_budget() -> None:
    assert tiers.summary([replace(GOOD, seconds=1000.0)], ci=True, long=True) == 0


def test_the_ten_slowest_files_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    tiers.summary([GOOD], ci=False, long=False)
    named = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if "test_" in line]
    assert named == [f"tests/one/test_{number}.py" for number in range(11, 1, -1)]


def test_every_tier_has_its_folder_and_is_run_once() -> None:
    assert len({tier.name for tier in tiers.TIERS}) == len(tiers.TIERS) == 7
    assert not [path for tier in (*tiers.TIERS, tiers.QUICK) for path in tier.folders if not Path(path).exists()]


def test_the_sweeps_are_left_out_unless_they_are_asked_for() -> None:
    assert "not long" in tiers.HOSTS.command(Path("report.xml"), long=False)
    assert "not long" not in tiers.HOSTS.command(Path("report.xml"), long=True)


def test_a_tier_beside_another_prints_its_output_in_one_piece(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, claim in (("one", "True"), ("two", "False")):
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}() -> None:\n    assert {claim}\n")
    first, second = (Tier(name, (str(tmp_path / f"test_{name}.py"),), 100, lambda: "") for name in ("one", "two"))
    outcomes = run_beside(first, [second], long=False)
    assert [(outcome.tier.name, outcome.passed, outcome.failed) for outcome in outcomes] == [("one", 1, 0), ("two", 0, 1)]
    assert "1 failed" in capfd.readouterr().out.partition("== two: ")[2]


def test_tiers_beside_another_have_one_that_runs() -> None:
    beside = {tier.name: tier.beside for tier in tiers.TIERS if tier.beside}
    assert beside == {"stack": "cluster", "slurm": "cluster", "mpi": "cluster"}
    assert not [name for name in beside.values() if name in beside]


@pytest.mark.parametrize(
    ("chosen", "long", "groups"),
    [
        ([tiers.BOOT, tiers.CLUSTER, tiers.SLURM], False, [(tiers.BOOT, []), (tiers.CLUSTER, [tiers.SLURM])]),
        ([tiers.SLURM, tiers.MPI], False, [(tiers.SLURM, []), (tiers.MPI, [])]),
        ([tiers.CLUSTER, tiers.MPI], True, [(tiers.CLUSTER, []), (tiers.MPI, [])]),
    ],
)
def test_a_tier_runs_alone_without_the_one_beside_it_and_in_long_sweeps(
    chosen: list[Tier], long: bool, groups: list[tuple[Tier, list[Tier]]]
) -> None:
    assert tiers.group_tiers(chosen, long=long) == groups
