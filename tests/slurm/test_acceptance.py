"""Acceptance of the real cluster from its login node: both of its sentences, and the queue after a kill."""

import re
import signal
import subprocess

from hostlab.waiting import until
from slurmlab import acceptance, configuration
from slurmlab.cluster import SlurmCluster

STARTED_SECONDS = 90.0


def jobs(cluster: SlurmCluster) -> list[str]:
    """Return id and state of all jobs in the queue."""
    return cluster.run("squeue", "--noheader", "--format=%i %T %j").splitlines()


def test_jobs_of_a_killed_acceptance_are_cancelled_by_the_next_which_accepts(cluster: SlurmCluster) -> None:
    """All processes on the login node are killed while a program of the site runs that would take minutes."""
    words = acceptance.words("--waive-scripts", "--bandwidth-command=sleep 600")
    killed = subprocess.Popen(cluster.entering(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seconds = STARTED_SECONDS
    started = until(lambda: len([job for job in jobs(cluster) if "RUNNING bringup-accept" in job]) >= 2, seconds, every=0.5)
    # stopped first: a task that sees its parent die would clean up before its turn comes
    kill = "for signal in STOP KILL; do pkill -$signal -f 'm (workflows|steps)'; pkill -$signal -x srun; done; true"
    cluster.run("sh", "-c", kill)
    # nsenter stops itself with its child
    killed.send_signal(signal.SIGCONT)
    assert started, killed.communicate(timeout=30)[0]
    killed.communicate(timeout=30)
    assert jobs(cluster)
    left = cluster.run("ls", f"{configuration.SHARED}/.bringup-accept")
    assert left

    done = acceptance.accept(cluster, "--allow-drain", f"--script-marks={configuration.MARKS}")
    assert done.code == 0, done.output
    assert re.fullmatch(r"accepted: 4 nodes, [\d.]+ GB/s against a floor of 0\.01", done.sentence), done.output
    assert jobs(cluster) == []
    logs = cluster.run("sh", "-c", f"grep -rhs 'of interrupted acceptances' {acceptance.HOME}/store/runs | head -n 1")
    assert re.search(r"cancelled \d+ jobs of interrupted acceptances", logs)
    assert cluster.run("ls", f"{configuration.SHARED}/.bringup-accept") == "", f"also {left} of the killed one"
    report = cluster.run("sh", "-c", f"cat {acceptance.HOME}/store/runs/*/report/report.txt")
    assert "buffers in host memory" in report


def test_a_slowed_link_is_named_with_its_measurements(faulty: SlurmCluster) -> None:
    """A token bucket lets 3 MB/s out of one host; what it receives is as fast as before."""
    slow = faulty.nodes[2]
    limit = ("rate", "24mbit", "burst", "64k", "latency", "50ms")
    faulty.run("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *limit, host=slow)
    done = acceptance.accept(faulty, "--waive-scripts")
    assert done.code == 65, done.output
    assert re.match(rf"not accepted: node {slow.name}, by \S+ 0\.00\d+ GB/s", done.sentence), done.output
    assert jobs(faulty) == []
