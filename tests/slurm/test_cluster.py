"""The cluster itself: jobs over all nodes, accounting, prolog and epilog, topology, and slurmrestd answer as on real machines."""

from hostlab.waiting import until
from slurmlab import configuration
from slurmlab.cluster import SlurmCluster


def test_jobs_run_on_distinct_nodes_and_are_accounted(cluster: SlurmCluster) -> None:
    names = [host.name for host in cluster.nodes]
    assert sorted(cluster.run("srun", f"--nodes={len(names)}", "hostname").split()) == names
    job = cluster.run("sbatch", "--parsable", "--wait", "--nodes=2", "--output=/dev/null", "--wrap", "srun true").strip()
    show = ("sacct", "--jobs", job, "--allocations", "--noheader", "--parsable2", "--format=State,ExitCode,NNodes")
    assert until(lambda: cluster.run(*show).strip() == "COMPLETED|0:0|2", 30, every=0.2), cluster.run(*show)
    marks = cluster.run("ls", configuration.MARKS, host=cluster.nodes[0]).split()
    assert f"prolog.{job}" in marks


def test_topology_and_gres_are_those_of_the_files(cluster: SlurmCluster) -> None:
    shown = cluster.run("scontrol", "show", "topology").splitlines()
    assert [line.split()[0] for line in shown if line] == ["SwitchName=leaf1", "SwitchName=leaf2", "SwitchName=spine"]
    assert cluster.run("srun", "--gres=gpu:lab:2", "printenv", "SLURM_GPUS_ON_NODE").strip() == "2"


def test_slurmrestd_answers_with_the_nodes(cluster: SlurmCluster) -> None:
    request = "GET /slurm/v0.0.38/nodes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    # it takes requests from a pipe of its own user alone, who may not be root
    user = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
    answer = cluster.run(*user, "sh", "-c", "cat | slurmrestd -a rest_auth/local", text=request)
    assert '"name": "n004"' in answer
