"""Faults of real daemons: probe and gate of an acceptance, on the login node, name the node and the cause."""

import time
from collections.abc import Callable
from dataclasses import replace

from hostlab.waiting import until
from slurmlab import configuration
from slurmlab.cluster import SlurmCluster

from steps.clients.slurm_tools import JobPlace
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict
from steps.slurmacceptance import control_survey, job_checks, slurm_output
from steps.stages.slurm_acceptance import gate
from steps.stages.slurm_acceptance.contract import ControlExpectation, JobsExpectation, JobsObservation

NOTICED_SECONDS = 40.0
"""Time in which slurmctld notices a silent node: SlurmdTimeout is 6 s here."""


def judged(cluster: SlurmCluster) -> Verdict:
    """Return the verdict on the cluster as it is now."""
    seen = cluster.call(control_survey.control)
    names = tuple(host.name for host in cluster.nodes)
    want = ControlExpectation(
        nodes=names, partition=configuration.PARTITION, gpu_type=configuration.TYPE, gpus=configuration.PER_NODE
    )
    return gate.control(seen, want)


def rows(cluster: SlurmCluster, when: Callable[[dict[str, NodeVerdict]], bool]) -> dict[str, NodeVerdict]:
    """Return the verdicts on nodes once a condition holds for them, or the last ones after a while."""
    seen: dict[str, NodeVerdict] = {}

    def look() -> bool:
        seen.update({row.node: row for row in judged(cluster).nodes})
        return when(seen)

    until(look, NOTICED_SECONDS, every=0.5)
    return seen


def test_the_healthy_cluster_passes(cluster: SlurmCluster) -> None:
    verdict = judged(cluster)
    assert verdict.is_pass, verdict.reason


def test_each_node_is_named_with_its_own_cause(faulty: SlurmCluster) -> None:
    """GRES mismatch, another munge key, a clock two hours off (credentials by libfaketime), and slurmd down, each on one node."""
    fewer, stranger, late, silent = faulty.nodes
    for host in faulty.nodes:
        faulty.stop(host, "slurmd")
    faulty.write(fewer, "/etc/slurm/gres.conf", configuration.gres(1))
    faulty.start_munge(stranger, key=b"another key of munge" * 8)
    faulty.start_munge(late, clock="-2h")
    for host in (fewer, stranger, late):
        faulty.start_slurmd(host)
    seen = rows(faulty, lambda rows: all(row.status is Status.FAIL for row in rows.values()))
    assert "gres/gpu count reported lower than configured (1 < 2)" in seen[fewer.name].seen
    assert seen[fewer.name].failure_class is FailureClass.HARDWARE
    assert "munge key mismatch" in seen[stranger.name].seen
    assert seen[stranger.name].failure_class is FailureClass.PERMISSION
    assert "its clock differs by 7200 s" in seen[late.name].seen
    assert "not_responding" in seen[silent.name].seen
    assert "see that slurmd runs there" in seen[silent.name].next_step


def test_a_drained_node_and_wrong_memory_are_named_with_their_reasons(faulty: SlurmCluster) -> None:
    drained, large = faulty.nodes[:2]
    faulty.configure(replace(faulty.configuration, memory={large.name: 9_000_000}))
    faulty.stop(faulty.controller, "slurmctld")
    faulty.start_controller()
    faulty.stop(large, "slurmd")
    faulty.start_slurmd(large)
    faulty.run("scontrol", "update", f"NodeName={drained.name}", "State=DRAIN", "Reason=bad dimm")
    seen = rows(faulty, lambda rows: "RealMemory" in rows[large.name].seen)
    assert "bad dimm" in seen[drained.name].seen
    assert "Low RealMemory (reported:" in seen[large.name].seen
    assert seen[large.name].failure_class is FailureClass.INPUT


def test_a_dead_controller_is_named(faulty: SlurmCluster) -> None:
    faulty.stop(faulty.controller, "slurmctld")
    verdict = judged(faulty)
    assert (verdict.status, verdict.failure_class) == (Status.FAIL, FailureClass.DEPENDENCY)
    assert "slurmctld on n000 is down" in verdict.reason


def test_absent_accounting_is_named(faulty: SlurmCluster) -> None:
    faulty.stop(faulty.controller, "slurmdbd")
    verdict = judged(faulty)
    assert (verdict.status, verdict.failure_class) == (Status.FAIL, FailureClass.DEPENDENCY)
    assert "the accounting daemon slurmdbd does not answer" in verdict.reason


def test_a_node_with_another_configuration_is_named_by_its_job(faulty: SlurmCluster) -> None:
    host, names = faulty.nodes[2], tuple(host.name for host in faulty.nodes)
    faulty.configure(replace(faulty.configuration, silence=7), [host])
    faulty.stop(host, "slurmd")
    faulty.start_slurmd(host)
    faulty.wait_idle()
    place = JobPlace(run="configuration", folder=configuration.SHARED)
    script, gpus = job_checks.ANSWER_SCRIPT, configuration.PER_NODE
    done = faulty.call(lambda: job_checks.run_on_all(place, names, script, gpus=gpus))
    answers = slurm_output.answers(done.out, time.time())
    verdict = gate.jobs(JobsObservation(answers=answers), JobsExpectation(nodes=names, gpus=gpus, scripts="waived"))
    bad = {row.node: row.seen for row in verdict.nodes if row.status is not Status.PASS}
    assert bad == {host.name: "slurm.conf of the node differs from slurmctld's"}
