"""The judge counts what is there against what was expected, applies the quorum, and names who is set aside."""

import msgspec

from steps.contract.runs.judging import JudgedTask, StageExpectation, StageObservation, TaskVerdicts
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, failed, of_nodes, passed
from steps.runtime.quorum import judge, nodes_set_aside

CHECKS = (
    JudgedTask(task="control", gate="g/control"),
    JudgedTask(task="nodes", gate="g/nodes"),
    JudgedTask(task="functional", gate="g/functional"),
)
NODES = tuple(f"n{number:02d}" for number in range(1, 17))


def rows(*bad: str, names: tuple[str, ...] = NODES) -> Verdict:
    made = [
        NodeVerdict(
            node=name, status=Status.FAIL, seen="7 GPUs", expected="8", next_step="look", failure_class=FailureClass.HARDWARE
        )
        if name in bad
        else NodeVerdict(node=name, status=Status.PASS)
        for name in names
    ]
    return of_nodes("g/nodes", made, what="8 GPUs")


def run(control: Verdict | None, nodes: Verdict | None, functional: Verdict | None, **wanted: object) -> Verdict:
    given = {"control": control, "nodes": nodes, "functional": functional}
    results = tuple(TaskVerdicts(task=task, verdicts=(verdict,)) for task, verdict in given.items() if verdict is not None)
    expectation = {"gate": "g/judge", "checks": CHECKS, "members": NODES, "needed": 15, **wanted}
    return judge(StageObservation(results=results), StageExpectation(**expectation))  # type: ignore[arg-type]


GOOD = passed("g/control", "fine")
WORKS = passed("g/functional", "fine")


def test_all_pass() -> None:
    verdict = run(GOOD, rows(), WORKS)
    assert verdict.is_pass
    assert not nodes_set_aside(verdict)


def test_one_of_sixteen_is_set_aside_by_name() -> None:
    verdict = run(GOOD, rows("n03"), WORKS)
    assert verdict.is_pass
    assert "n03: 7 GPUs" in verdict.reason
    assert [row.node for row in nodes_set_aside(verdict)] == ["n03"]


def test_two_of_sixteen_break_the_quorum_and_name_gate_and_node() -> None:
    verdict = run(GOOD, rows("n03", "n07"), WORKS)
    assert (verdict.status, verdict.gate, verdict.failure_class) == (Status.FAIL, "g/nodes", FailureClass.HARDWARE)
    assert verdict.reason.startswith("14 of 16 nodes pass, 15 needed; n[03,07]: 7 GPUs; expected 8; next: look")
    assert not nodes_set_aside(verdict)


def test_nodes_that_fail_for_different_reasons_are_all_named_and_what_is_counted_too() -> None:
    first = rows("n03", "n07")
    other = tuple(msgspec.structs.replace(row, seen="unreachable") if row.node == "n07" else row for row in first.nodes)
    seen = StageObservation(results=(TaskVerdicts(task="nodes", verdicts=(msgspec.structs.replace(first, nodes=other),)),))
    checks = (JudgedTask(task="nodes", gate="g/nodes"),)
    verdict = judge(seen, StageExpectation(gate="g/judge", checks=checks, members=NODES, needed=15, kind="GPU nodes"))
    assert verdict.reason.startswith("14 of 16 GPU nodes pass, 15 needed, not by n[03,07]; n03: 7 GPUs; expected 8; next: look")


def test_a_node_that_failed_is_the_reason_before_those_of_which_nothing_is_known() -> None:
    made = rows("n03").nodes
    unknown = NodeVerdict(
        node="n01", status=Status.INCONCLUSIVE, seen="cut off", expected="an end", failure_class=FailureClass.RUNTIME
    )
    verdict = run(GOOD, of_nodes("g/nodes", (unknown, *made[1:]), what="8 GPUs"), WORKS)
    assert verdict.reason.startswith("14 of 16 nodes pass, 15 needed, not by n[01,03]; n03: 7 GPUs; expected 8; next: look")


def test_a_node_set_aside_earlier_is_named_with_that_stage_and_no_more() -> None:
    left = rows(names=tuple(name for name in NODES if name != "n03"))
    seen = StageObservation(results=(TaskVerdicts(task="nodes", verdicts=(left,)),), aside={"n03": "os_prep"})
    want = StageExpectation(gate="g/judge", checks=(JudgedTask(task="nodes", gate="g/nodes"),), members=NODES, needed=15)
    verdict = judge(seen, want)
    assert verdict.reason == "15 of 16 nodes passed all gates; n03 set aside in os_prep"
    alone = judge(seen, msgspec.structs.replace(want, needed=16))
    assert alone.reason.endswith("n03: set aside in os_prep; next: repair n03, then run again")


def test_a_failed_control_plane_gate_is_the_reason_even_when_later_records_are_missing() -> None:
    broken = failed("g/control", FailureClass.HEALTH, seen="not ready", expected="ready", next_step="look")
    verdict = run(broken, None, None)
    assert (verdict.status, verdict.gate) == (Status.FAIL, "g/control")


def test_a_missing_record_is_no_pass() -> None:
    assert run(GOOD, None, WORKS).status is Status.INCONCLUSIVE
    assert run(GOOD, rows(), None).status is Status.INCONCLUSIVE


def test_a_node_without_a_verdict_is_missing() -> None:
    verdict = run(GOOD, rows(names=NODES[:14]), WORKS)
    assert verdict.status is Status.INCONCLUSIVE
    assert "n[15-16]: no record from nodes" in verdict.reason


def test_a_required_node_breaks_the_stage_whatever_the_quorum() -> None:
    verdict = run(GOOD, rows("sv1", names=("sv1", *NODES)), WORKS, required=("sv1",))
    assert verdict.status is Status.FAIL
    assert verdict.reason.startswith("sv1 must pass")


def test_nodes_lost_in_different_gates_add_up() -> None:
    later = rows("n09")
    functional = Verdict(gate="g/functional", status=later.status, reason=later.reason, nodes=later.nodes)
    assert run(GOOD, rows("n03"), functional).status is Status.FAIL


def test_a_functional_gate_over_the_nodes_left_needs_only_them() -> None:
    left = rows(names=tuple(name for name in NODES if name != "n03"))
    functional = Verdict(gate="g/functional", status=left.status, reason=left.reason, nodes=left.nodes)
    assert run(GOOD, rows("n03"), functional).is_pass


def test_checks_of_one_selection_do_not_miss_the_others() -> None:
    servers, agents = rows(names=("sv1",)), rows()
    checks = (
        JudgedTask(task="servers", gate="g/servers", select="server"),
        JudgedTask(task="agents", gate="g/agents", select="agent"),
    )
    seen = StageObservation(
        results=(TaskVerdicts(task="servers", verdicts=(servers,)), TaskVerdicts(task="agents", verdicts=(agents,)))
    )
    about = {"server": ("sv1",), "agent": NODES}
    want = StageExpectation(gate="g/judge", checks=checks, members=NODES, needed=16, required=("sv1",), about=about)
    assert judge(seen, want).is_pass


def test_a_group_that_must_pass_breaks_the_stage_within_the_quorum() -> None:
    """The quorum forgives two of sixteen, but not both nodes of the only group that shares its GPUs."""
    checks = (
        JudgedTask(task="nodes_sliced", gate="g/nodes", select="group-sliced", needed=1),
        JudgedTask(task="nodes_whole", gate="g/nodes", select="group-whole", needed=12),
    )
    about = {"group-sliced": NODES[:2], "group-whole": NODES[2:]}
    want = StageExpectation(gate="g/judge", checks=checks, members=NODES, needed=14, about=about, kind="GPU nodes")

    def judged(*bad: str) -> Verdict:
        parts = {"nodes_sliced": rows(*bad, names=NODES[:2]), "nodes_whole": rows(*bad, names=NODES[2:])}
        results = tuple(TaskVerdicts(task=task, verdicts=(part,)) for task, part in parts.items())
        return judge(StageObservation(results=results), want)

    assert judged("n01").is_pass
    assert judged("n01", "n03").is_pass
    verdict = judged("n01", "n02")
    assert verdict.status is Status.FAIL
    assert verdict.reason.startswith("0 of 2 GPU nodes of group sliced pass, 1 needed; n[01-02]: 7 GPUs")


SKIPPED = Verdict(gate="g/functional", status=Status.SKIPPED, reason="not run: 1 nodes passed the gates before it, 2 are needed")


def test_a_check_that_was_not_run_is_no_pass() -> None:
    verdict = run(GOOD, rows(), SKIPPED)
    assert verdict.status is Status.INCONCLUSIVE
    assert "g/functional was not measured: not run" in verdict.reason


def test_a_gate_that_must_judge_nodes_and_names_none_is_no_pass() -> None:
    checks = (JudgedTask(task="nodes", gate="g/nodes", per_node=True),)
    seen = StageObservation(results=(TaskVerdicts(task="nodes", verdicts=(passed("g/nodes", "fine"),)),))
    assert judge(seen, StageExpectation(gate="g/judge", checks=checks, members=NODES, needed=15)).status is Status.INCONCLUSIVE


def test_members_that_no_check_named_have_not_passed() -> None:
    checks = (JudgedTask(task="servers", gate="g/servers", select="server"),)
    seen = StageObservation(results=(TaskVerdicts(task="servers", verdicts=(rows(names=("sv1",)),)),))
    want = StageExpectation(gate="g/judge", checks=checks, members=NODES, needed=15, required=("sv1",), about={"server": ("sv1",)})
    verdict = judge(seen, want)
    assert verdict.status is Status.INCONCLUSIVE
    assert "0 of 16 nodes were judged and pass" in verdict.reason


def test_a_shard_whose_hosts_are_all_set_aside_does_not_break_the_quorum() -> None:
    first, second = NODES[:8], NODES[8:]
    skipped = Verdict(gate="g/nodes", status=Status.SKIPPED, reason="no host of this shard takes part")
    checks = (JudgedTask(task="nodes", gate="g/nodes", fanned=True, per_node=True),)
    seen = StageObservation(
        results=(TaskVerdicts(task="nodes", verdicts=(rows(names=first), skipped)),), aside=dict.fromkeys(second, "os_prep")
    )
    verdict = judge(seen, StageExpectation(gate="g/judge", checks=checks, members=NODES, needed=8))
    assert verdict.is_pass
    assert {row.node for row in nodes_set_aside(verdict)} == set(second)
    assert not judge(seen, StageExpectation(gate="g/judge", checks=checks, members=NODES, needed=9)).is_pass


def test_rows_that_are_only_skipped_are_told_as_such() -> None:
    row = NodeVerdict(node="n01", status=Status.SKIPPED)
    verdict = run(GOOD, Verdict(gate="g/nodes", status=Status.PASS, reason="", nodes=(row,)), WORKS)
    assert not verdict.is_pass


def test_a_refused_change_is_the_stage_s_reason() -> None:
    refused = failed(
        "g/apply", FailureClass.COMPARISON, seen="helm owns spec.version", expected="ours", next_step="settle", final=True
    )
    checks = (JudgedTask(task="apply", gate="g/apply"), *CHECKS)
    verdict = judge(
        StageObservation(results=(TaskVerdicts(task="apply", verdicts=(refused,)),)),
        StageExpectation(gate="g/judge", checks=checks, members=NODES, needed=15),
    )
    assert (verdict.gate, verdict.failure_class) == ("g/apply", FailureClass.COMPARISON)


def test_where_no_fleet_is_judged_nobody_is_set_aside() -> None:
    """A node image's boots are named like nodes, and none of them may fail."""
    for status in (Status.FAIL, Status.INCONCLUSIVE):
        row = NodeVerdict(node="uefi1", status=status, seen="no report", expected="a report", next_step="read the console")
        booted = of_nodes("g/nodes", [NodeVerdict(node="bios1", status=Status.PASS), row], what="booted")
        verdict = run(GOOD, booted, WORKS, members=(), needed=0)
        assert verdict.status is status
        assert "uefi1: no report" in verdict.reason
        assert not nodes_set_aside(verdict)
    assert run(GOOD, rows(), WORKS, members=(), needed=0).is_pass


def built(*verdicts: Verdict, records: int) -> Verdict:
    checks = (JudgedTask(task="package", gate="g/package", fanned=True, records=records),)
    seen = StageObservation(results=(TaskVerdicts(task="package", verdicts=verdicts),))
    return judge(seen, StageExpectation(gate="g/judge", checks=checks, members=(), needed=0))


BUILT = passed("g/package", "built")
BROKEN = failed("g/package", FailureClass.RUNTIME, seen="hdf5@1.14 failed to compile", expected="a build", next_step="read its log")
LACKING = failed("g/package", FailureClass.DEPENDENCY, seen="netcdf needs hdf5", expected="a build", next_step="see hdf5")
UNDECIDED = Verdict(gate="g/package", status=Status.INCONCLUSIVE, reason="a mirror did not answer")


def test_every_shard_of_a_graph_must_have_left_a_record_that_passes() -> None:
    assert built(*[BUILT] * 12, records=12).is_pass
    assert not built(records=12).is_pass
    verdict = built(*[BUILT] * 9, records=12)
    assert (verdict.status, verdict.failure_class) == (Status.INCONCLUSIVE, FailureClass.RUNTIME)
    assert verdict.reason.startswith("3 of 12 tasks package left no record; expected 12 records of gate g/package")


def test_a_failed_shard_of_a_graph_is_the_reason_why_others_left_no_record() -> None:
    verdict = built(*[BUILT] * 8, LACKING, UNDECIDED, BROKEN, records=20)
    assert (verdict.status, verdict.failure_class, verdict.gate) == (Status.FAIL, FailureClass.RUNTIME, "g/package")
    assert verdict.reason == f"3 of 20 tasks package did not pass and 9 were not started or left no record; {BROKEN.reason}"
    assert built(BUILT, LACKING, records=2).reason == f"1 of 2 tasks package did not pass; {LACKING.reason}"
    assert built(UNDECIDED, LACKING, records=2).failure_class is FailureClass.DEPENDENCY


def test_a_skipped_shard_of_a_graph_has_built_nothing() -> None:
    skipped = Verdict(gate="g/package", status=Status.SKIPPED, reason="nothing to do")
    verdict = built(BUILT, skipped, records=2)
    assert (verdict.status, verdict.reason) == (Status.INCONCLUSIVE, "1 of 2 tasks package did not pass; nothing to do")
