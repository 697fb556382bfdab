"""The check `slurm-jobs` of stage slurm on the real cluster: its script runs on the login node, and its gate judges the output."""

import threading

from hostlab.waiting import until
from slurmlab import configuration
from slurmlab.cluster import SlurmCluster

from steps.contract.verdict import Verdict
from steps.stages.slurm import gate, reader_jobs
from steps.stages.slurm.contract import JobCheckName, SchedulingExpectation, SchedulingObservation
from workflows.stages import manifest_objects

CHECKS: tuple[JobCheckName, ...] = (
    "batch",
    "two",
    "array",
    "dependency",
    "het",
    "steps",
    "memory",
    "exclusive",
    "prolog",
    "epilog",
    "login",
    "user",
    "pmix",
)
"""The checks that this cluster can pass; it has no GPUs and no containers."""
USER, UID = "alice", 2001
SECONDS = 300


def judged(cluster: SlurmCluster, *checks: JobCheckName, user: str = USER) -> Verdict:
    """Run the script as in a login pod, and return the verdict on its output."""
    variables = {
        "NODE_NAME": cluster.controller.name,
        "CHECKS": " ".join(checks),
        "ACCOUNTING": "yes",
        "SECONDS_TO_RUN": str(SECONDS),
        "MARKS": configuration.MARKS,
        "SHARED_HOME": configuration.SHARED,
        "LOGIN": cluster.controller.name,
        "USER_NAME": user,
        "REPORT": "/dev/null",
    }
    script = manifest_objects.packed_script("slurm_jobs.sh")
    text = cluster.run("env", *(f"{key}={value}" for key, value in variables.items()), "sh", "-c", script)
    names = tuple(host.name for host in cluster.nodes)
    want = SchedulingExpectation(
        checks=checks,
        nodes=names,
        partitions={configuration.PARTITION: ("all",)},
        group_of=dict.fromkeys(names, "all"),
        qos=("normal",),
        topology={"leaf1": ",".join(names[:2]), "leaf2": ",".join(names[2:])},
        gres=configuration.TYPE,
        accounting=True,
    )
    return gate.scheduling(SchedulingObservation(report=reader_jobs.read(text), node_of={name: name for name in names}), want)


def test_every_kind_of_job_does_its_work(cluster: SlurmCluster) -> None:
    for host in cluster.hosts:
        cluster.add_user(host, USER, UID)
    cluster.sacctmgr("add", "user", USER, "Account=staff")
    verdict = judged(cluster, *CHECKS)
    assert verdict.is_pass, verdict.reason
    assert verdict.reason.endswith(f"{len(CHECKS)} checks: {', '.join(CHECKS)}"), (verdict.reason, verdict.notes)
    assert cluster.run(
        "sh", "-c", f"cat {configuration.SHARED}/{USER}/.ssh/authorized_keys; ls {configuration.SHARED}/{USER}/.ssh"
    ) == ("authorized_keys\n")


def test_a_user_who_may_log_in_and_not_submit_is_named(cluster: SlurmCluster) -> None:
    """The user has no association in accounting."""
    cluster.add_user(cluster.controller, "bob", UID + 1)
    verdict = judged(cluster, "login", "user", user="bob")
    assert not verdict.is_pass
    assert "a plain user: sbatch: error" in verdict.reason


def test_a_job_survives_a_restart_of_the_controller(faulty: SlurmCluster) -> None:
    def kubelet() -> None:
        """Start slurmctld again once the script has ended it, as a kubelet does with a container."""
        if until(lambda: "UP" not in faulty.run("sh", "-c", "scontrol ping || true"), SECONDS, every=0.5):
            faulty.start_controller()

    restarting = threading.Thread(target=kubelet, daemon=True)
    restarting.start()
    verdict = judged(faulty, "batch", "restart")
    restarting.join(SECONDS)
    assert verdict.is_pass, verdict.reason
