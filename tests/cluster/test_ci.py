"""The CI snippets, run as their servers run them: the exit code of a job is that of the run's gates, and report.xml says why.

The home cluster is a real API server; a stand-in for Argo's controller plays the runs, and their hosts are simulated.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from actors import argo_home, kubelet_port
from kubelab.control_plane import ControlPlane

from workflows import examples
from workflows.plan.compiler import compile_plan
from workflows.rehearsal.simulated_cluster import SimulatedCluster, set_faults, simulated_cluster, write_fleet
from workflows.spec import load

SNIPPETS = Path(examples.__file__).parent / "ci"
SPEC = examples.path("single-node").read_text() + "stages: [os_prep]\n"
FAULT = f"clock_skew:{compile_plan(load(SPEC)).hosts[0].name}"
JOB = "bringup"
LONGEST = 240.0
_EXPRESSION = re.compile(r"\$\{\{ *([a-z]+)\.([A-Za-z_]+) *\}\}")


@dataclass(frozen=True)
class Place:
    """A home cluster, and the simulated hosts that its runs change."""

    plane: ControlPlane
    hosts: SimulatedCluster

    def workflows(self) -> list[str]:
        return self.plane.kubectl("get", "workflows", "-n", argo_home.SPACE, "-o", "name").split()


@dataclass(frozen=True)
class Ended:
    """Result of a job: exit code, output and the folder in which it ran."""

    code: int
    said: str
    workspace: Path

    @property
    def report(self) -> ElementTree.Element:
        """The root of report.xml, of the form that CI servers read."""
        root = ElementTree.parse(self.workspace / "report.xml").getroot()
        assert root.tag == "testsuites"
        for suite in root:
            cases = suite.findall("testcase")
            assert (suite.tag, int(suite.get("tests", -1))) == ("testsuite", len(cases))
            assert all(case.get("name") and case.get("classname") for case in cases)
            assert int(suite.get("failures", -1)) == len(suite.findall("testcase/failure"))
        return root


Server = Callable[[Path, str], Ended]


def gitlab(workspace: Path, kubeconfig: str) -> Ended:
    """As a runner does: variables expanded, a file variable as a path, all lines of `script` in one shell."""
    job = yaml.safe_load((SNIPPETS / "gitlab-ci.yml").read_text())[JOB]
    secret = workspace.with_name("KUBECONFIG")
    secret.write_text(kubeconfig)
    given = {name: text.replace("$CI_PROJECT_DIR", str(workspace)) for name, text in job["variables"].items()}
    done = shell("\n".join(job["script"]), workspace, given | {"KUBECONFIG": str(secret)})
    kept(job["artifacts"]["paths"], workspace, done)
    assert job["artifacts"]["when"] == "always"
    return done


def github(workspace: Path, kubeconfig: str) -> Ended:
    """As a runner does: a shell for each step; after one that failed only those that run always."""
    job = yaml.safe_load((SNIPPETS / "github-actions.yml").read_text())["jobs"][JOB]
    known = {("github", "workspace"): str(workspace), ("secrets", "HOME_KUBECONFIG"): kubeconfig}

    def filled(values: dict[str, Any]) -> dict[str, str]:
        return {name: _EXPRESSION.sub(lambda found: known[found[1], found[2]], str(text)) for name, text in values.items()}

    ended = Ended(0, "", workspace)
    for step in job["steps"]:
        if "run" in step and (ended.code == 0 or step.get("if") == "always()"):
            done = shell(step["run"], workspace, filled(job["env"]) | filled(step.get("env", {})))
            ended = Ended(ended.code or done.code, ended.said + done.said, workspace)
    (upload,) = (step for step in job["steps"] if "upload-artifact" in step.get("uses", ""))
    kept(upload["with"]["path"].split(), workspace, ended)
    assert not (workspace / ".home-kubeconfig").exists()
    return ended


SERVERS = pytest.mark.parametrize("server", [gitlab, github])


def shell(text: str, workspace: Path, given: dict[str, str]) -> Ended:
    """Bash as both servers start it; `uv run` runs what is installed here."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "KUBECONFIG", "BRINGUP_"))}
    uv = {"UV_NO_PROJECT": "1", "UV_OFFLINE": "1", "VIRTUAL_ENV": sys.prefix, "COLUMNS": "200"}
    line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    done = subprocess.run(line, cwd=workspace, env=plain | uv | given, capture_output=True, text=True, timeout=LONGEST, check=False)
    return Ended(done.returncode, done.stdout + done.stderr, workspace)


def kept(paths: list[str], workspace: Path, ended: Ended) -> None:
    """Check that the files that a job keeps exist after a run, whether its gates passed or failed."""
    if ended.code in (0, 65):
        assert not [path for path in paths if not (workspace / path).exists()], ended.said


@pytest.fixture(scope="module")
def place(bare: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if shutil.which("uv") is None:
        pytest.skip("uv is not on PATH")
    folder = tmp_path_factory.mktemp("ci")
    before = bare.snapshot()
    argo_home.prepare(bare)
    fleet = write_fleet(folder, compile_plan(load(SPEC)))
    with kubelet_port.serving(folder / "kubelets") as logs, simulated_cluster(folder / "target", fleet) as hosts:
        controller = argo_home.Controller(bare, folder / "controller", logs, hosts.environment)
        controller.start()
        yield Place(bare, hosts)
        controller.stop()
        assert "Traceback" not in controller.said, controller.said
    bare.restore(before)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A checked-out repository with a spec."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "cluster.yaml").write_text(SPEC)
    for name in ("id_ed25519", "known_hosts"):
        (folder / name).write_text(f"the content of {name} that nobody needs\n")
    return folder


@SERVERS
def test_a_job_passes_when_every_gate_did(place: Place, workspace: Path, server: Server) -> None:
    done = server(workspace, place.plane.kubeconfig.read_text())
    assert done.code == 0, done.said
    cases = done.report.findall("testsuite/testcase")
    assert cases
    assert not done.report.findall(".//failure")


@SERVERS
def test_a_job_whose_gate_failed_ends_with_65_and_its_report_says_which(place: Place, workspace: Path, server: Server) -> None:
    set_faults(place.hosts, [FAULT])
    try:
        done = server(workspace, place.plane.kubeconfig.read_text())
    finally:
        set_faults(place.hosts, [])
    assert done.code == 65, done.said
    (failure, *_) = done.report.findall("testsuite/testcase/failure")
    assert "clock" in (failure.get("message", "") + (failure.text or "")).lower()


@SERVERS
def test_a_wrong_spec_ends_the_job_with_64_and_starts_nothing(place: Place, workspace: Path, server: Server) -> None:
    (workspace / "cluster.yaml").write_text(SPEC.replace("hosts:", "hostz:"))
    before = place.workflows()
    done = server(workspace, place.plane.kubeconfig.read_text())
    assert done.code == 64, done.said
    assert "hosts" in done.said
    assert place.workflows() == before


@SERVERS
def test_a_home_cluster_that_is_away_ends_the_job_with_75(place: Place, workspace: Path, server: Server) -> None:
    """GitLab tries such a job again by itself, which the snippet asks for; GitHub has no such rule."""
    document = json.loads(place.plane.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    before = place.workflows()
    done = server(workspace, json.dumps(document))
    assert done.code == 75, done.said
    assert place.workflows() == before
    assert yaml.safe_load((SNIPPETS / "gitlab-ci.yml").read_text())[JOB]["retry"]["exit_codes"] == 75
