"""A whole bring-up, stage by stage, and three faults on its way: the sample that `tests/run --quick` takes of all rehearsals."""

from pathlib import Path

from tests.unit.rehearsal.fault_sweep import sweep_faults
from tests.unit.rehearsal.faults.specs import spec_for
from workflows.rehearsal.rehearsal_run import RehearsalOptions
from workflows.stages import ORDER

FAULTS = ("dns_broken", "driver_crash", "nvlink_degraded")


def test_all_stages_pass_and_three_faults_are_caught_on_the_way(tmp_path: Path) -> None:
    catches = list(sweep_faults(spec_for(""), tmp_path, RehearsalOptions(), FAULTS))
    assert [catch.problem for catch in catches if catch.problem] == []
    assert {catch.fault for catch in catches} == {"", *FAULTS}
    assert [catch.stage for catch in catches if not catch.fault] == list(ORDER)
