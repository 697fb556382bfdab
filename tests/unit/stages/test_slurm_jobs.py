"""Script slurm_jobs.sh with stand-ins for the tools of Slurm and SSH: a user's keys stay, and each wanted job is submitted."""

import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from steps.stages.slurm import reader_jobs
from workflows.spec.acceptance.untested import SHARED_JOBS, USER_LOGIN, untested
from workflows.spec.cluster_spec import ClusterSpec
from workflows.stages import manifest_objects

EXAMPLE = Path(manifest_objects.__file__).parents[1] / "examples" / "h200-16.yaml"
SCRIPT = manifest_objects.script("slurm_jobs.sh")
USER_LINES = SCRIPT[SCRIPT.index("  if wants user; then") : SCRIPT.index("  if wants home; then")]
AROUND = 'work=$HOME; wants() { true; }; common() { echo --job-name=x; }; refused() { echo "refused $1" >&2; }\n'
OWN = "ssh-ed25519 AAAAown alice@laptop"
SIMILAR = "ssh-ed25519 AAAAsimilar my bringup-check"
TOOLS = {
    "su": 'cd "$HOME" && exec /bin/sh -c "$6"',
    # keeps what the SSH server would read; END kills the shell that waits for it
    "ssh": 'cat .ssh/authorized_keys >during; [ -z "$END" ] || kill "-$END" "$PPID"; exit "${CODE:-0}"',
    "sinfo": """case "$*" in
  *'%R|%a|%N'*) echo 'train|up|gpu[001-002]';; *completing*) ;; *'-o %R') echo train;; *idle*) printf 'gpu001\\ngpu002\\n';;
esac""",
    "scontrol": "[ \"$1\" != ping ] || echo 'Slurmctld(primary) at c is UP'",
    "squeue": "exit 0",
    "srun": "[ \"$1\" != --mpi=list ] || printf 'MPI plugin types are...\\n\\tnone\\n\\tpmi2\\n'",
    "sbatch": 'echo "$*" >>"$HOME/submitted"; grep -c . "$HOME/submitted"',
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the home of a user, with stand-ins for tools below `bin`."""
    (tmp_path / "bin").mkdir()
    (tmp_path / ".ssh").mkdir()
    for name, body in TOOLS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def ran(home: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run lines of the script in the user's home."""
    env = {"PATH": f"{home}/bin:{os.environ['PATH']}", "HOME": str(home), "NODE_NAME": "n", "USER_NAME": "alice", "LOGIN": "l"}
    command = ["/bin/sh", "-c", text]
    return subprocess.run(command, env=env | environment, check=False, capture_output=True, text=True, timeout=60)


def test_a_users_keys_stay_as_they_are(home: Path) -> None:
    """Each round has the file of the round before: one without a last newline, one with a key of a killed check, a link."""
    keys = home / ".ssh/authorized_keys"
    keys.write_text(f"{SIMILAR}\n{OWN}")
    keys.chmod(0o600)
    whole = f"{SIMILAR}\n{OWN}\n"
    assert "refused" not in ran(home, AROUND + USER_LINES).stderr
    during = (home / "during").read_text()
    assert during.startswith(f"{whole}restrict ssh-ed25519 ")
    assert during.endswith(" bringup-check\n")
    assert keys.read_text() == whole
    assert keys.stat().st_mode & 0o777 == 0o600

    ran(home, AROUND + USER_LINES, END="KILL")
    assert keys.read_text().count("restrict ssh-ed25519 ") == 1, "nobody can tidy up after a kill"
    assert "refused user" in ran(home, AROUND + USER_LINES, END="TERM").stderr
    assert (home / "during").read_text().count("restrict ssh-ed25519 ") == 1
    assert keys.read_text() == whole

    shutil.move(keys, home / "kept")
    keys.symlink_to("../kept")
    assert "refused user" in ran(home, AROUND + USER_LINES, CODE="1").stderr
    assert keys.is_symlink()
    assert keys.read_text() == whole
    assert sorted(path.name for path in keys.parent.iterdir()) == ["authorized_keys"]


def test_a_user_without_keys_has_none_afterwards(home: Path) -> None:
    assert "refused" not in ran(home, AROUND + USER_LINES).stderr
    assert (home / ".ssh/authorized_keys").read_text() == ""


def test_the_epilog_is_tested_where_jobs_neither_share_a_node_nor_have_it_alone(home: Path) -> None:
    done = ran(home, SCRIPT, CHECKS="batch epilog", SECONDS_TO_RUN="60", MARKS="/m", SHARED_HOME="/h", REPORT="/dev/null")
    batch, epilog = (home / "submitted").read_text().splitlines()
    assert "-batch " in batch
    assert "-w gpu001" in batch
    assert "--dependency=afterany:1 " in epilog, done.stderr
    assert "-w gpu001" in epilog
    assert "mark=/m/epilog.1;" in epilog


METRICS = """# HELP slurm_nodes_total Nodes.
slurm_nodes_total 2
slurm_partition_gpu_total{partition="a } b"} 8
slurm_partition_gpu_total{partition="c"} 8.0
go_goroutines 9
"""


class Syncer(BaseHTTPRequestHandler):
    """A stand-in for SUNK's syncer: it serves METRICS."""

    def do_GET(self) -> None:
        """Answer any request."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(METRICS.encode())

    def log_message(self, *_: object) -> None:
        """Write no log."""


def test_metrics_are_added_up_and_a_missing_plugin_is_told(home: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Syncer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.server_port}/metrics"
        served = ran(home, SCRIPT, CHECKS="metrics pmix", SECONDS_TO_RUN="60", METRICS=place, REPORT="/dev/null")
        server.shutdown()
    report = reader_jobs.read(served.stdout)
    assert report.metrics == {"slurm_nodes_total": 2, "slurm_partition_gpu_total": 16}, served.stderr
    assert report.answers["pmix missing"].startswith("MPI plugin types are")
    silent = ran(home, SCRIPT, CHECKS="metrics", SECONDS_TO_RUN="60", METRICS=place, REPORT="/dev/null")
    assert "Connection refused" in reader_jobs.read(silent.stdout).answers["metrics silent"]


@pytest.mark.parametrize(
    ("rules", "told"),
    [(("FORCE:2", "FORCE:4"), 0), (("FORCE:1",), 1), (("FORCE:2", "FORCE:1"), 1), (("FORCE:2", "NO"), 1), (("NO",), 0)],
)
def test_partitions_that_rule_out_the_check_of_sharing_are_named(rules: tuple[str, ...], told: int) -> None:
    partitions = [{"name": f"p{index}", "groups": "gpu", "oversubscribe": rule} for index, rule in enumerate(rules)]
    raw = yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader) | {"slurm": {"kind": "slinky", "partitions": partitions}}
    spec = ClusterSpec.model_validate(raw)
    assert len([part for part in untested(spec) if part.test == SHARED_JOBS]) == told


SUNK = {"kind": "sunk", "repo": "https://charts.example.org/sunk", "version": "7.3.0"}


@pytest.mark.parametrize(
    ("slurm", "replicas", "paths"),
    [({"kind": "slinky"}, 1, ["slurm.login.test_user"]), (SUNK, 1, []), (SUNK, 0, ["slurm.login.replicas"])],
    ids=["slinky", "sunk", "sunk without login pods"],
)
def test_a_test_user_who_cannot_log_in_is_named(slurm: dict[str, str], replicas: int, paths: list[str]) -> None:
    login = {"test_user": "alice", "replicas": replicas}
    raw = yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader) | {"slurm": slurm | {"login": login}}
    spec = ClusterSpec.model_validate(raw)
    assert [part.path for part in untested(spec) if part.test == USER_LOGIN] == paths
