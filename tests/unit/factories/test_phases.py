"""Phases of a factory's build in its report: times beside the goals, without a claim about what did not pass or was simulated."""

from steps.report.factory_phases import phases
from steps.report.model import StageReport


def stage(name: str, minutes: float, status: str = "pass") -> StageReport:
    started = 1000.0 if minutes else 0.0
    finished = started + 60 * minutes
    return StageReport(id=name, title=name, status=status, reason="", gates=(), started=started, finished=finished)


def test_times_are_compared_with_a_rebuild_by_hand() -> None:
    stages = [stage("os_prep", 16), stage("rke2", 20), stage("base_services", 5), stage("factory_registry", 6)]
    assert [phase.sentence for phase in phases(stages)] == [
        "phase preparation of the nodes: 16 min 00 s of 15 min, missed",
        "phase Kubernetes: 20 min 00 s of 30 min, kept",
        "phase services: 11 min 00 s of 30 min, kept",
    ]


def test_a_phase_that_failed_keeps_no_goal() -> None:
    stages = [stage("os_prep", 1, "fail"), stage("rke2", 0, "not run"), stage("factory_registry", 0, "not run")]
    (phase,) = phases(stages)
    assert phase.sentence.endswith("not finished")


def test_a_rehearsal_is_not_compared() -> None:
    assert phases([stage("os_prep", 1), stage("factory_argo", 1)], simulated=True)[0].sentence.endswith("simulated")


def test_other_runs_have_no_phases() -> None:
    assert phases([stage("os_prep", 1), stage("rke2", 1)]) == ()
