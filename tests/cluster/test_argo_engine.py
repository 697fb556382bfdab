"""A run on Argo over a real API server, by the command line, while the server, the follower, a pod, a watch and a token go away."""

import functools
import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from actors import argo_home, cable, kubelet_port
from actors.argo_home import SPACE, Controller, Machine, until
from kubelab import box
from kubelab.control_plane import ControlPlane

from workflows import examples
from workflows.plan.compiler import compile_plan
from workflows.rehearsal.simulated_cluster import simulated_cluster, write_fleet
from workflows.spec import load

ADA = "ada@example.org"
SPEC = "small.yaml"
SECTIONS = f"stages: [os_prep, rke2]\napprovals:\n  - before: rke2\n    approvers: [{ADA}]\n"
AWAY = "the home cluster cannot be watched at the moment"
BACK = "the home cluster answers again"
FIRST = "01.json"
HALTED = ("play", "rke2")
"""Words in the command line of the step that tests stop at its work."""
HALTED_POD = "rke2-servers"
"""In the name of that step's pod."""
DENIED = (
    ("get", "", "secrets", ""),
    ("list", "", "secrets", ""),
    ("create", "", "pods", "exec"),
    ("create", "", "serviceaccounts", "token"),
    ("delete", "argoproj.io", "workflows", ""),
    ("delete", "", "persistentvolumeclaims", ""),
    ("escalate", "rbac.authorization.k8s.io", "roles", ""),
    ("bind", "rbac.authorization.k8s.io", "roles", ""),
    ("impersonate", "", "serviceaccounts", ""),
)
"""Verb, API group, resource, subresource: what the Role of whoever submits does not give in its own namespace."""


@dataclass(frozen=True)
class Place:
    """A home cluster with a controller, simulated hosts, and machines of people who have the spec."""

    plane: ControlPlane
    controller: Controller
    folder: Path

    def machine(self, name: str, kubeconfig: Path | None = None) -> Machine:
        return Machine(self.folder / "machines" / name, kubeconfig or self.plane.kubeconfig, self.folder / "specs")

    def runs(self) -> list[str]:
        """Names of all Workflows."""
        return self.plane.kubectl("get", "workflows", "-n", SPACE, "-o", "name").replace("workflow.argoproj.io/", "").split()

    def evidence(self, run: str) -> list[str]:
        """STAGE/TASK/SHARD/ATTEMPT.json of every record of a run."""
        kept = self.controller.store / "runs" / run / "evidence"
        return sorted(path.relative_to(kept).as_posix() for path in kept.rglob("*.json"))

    def allows(self, account: str, verb: str, group: str, resource: str, sub: str) -> bool:
        """Return True if the real authorizer grants a right to a ServiceAccount of the home cluster."""
        about = {"verb": verb, "group": group, "resource": resource, "subresource": sub, "namespace": SPACE}
        spec = {"user": f"system:serviceaccount:{SPACE}:{account}", "resourceAttributes": about}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return bool(self.plane.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"])

    def lists(self, run: str) -> int:
        """Return how often the API server got a LIST of this one Workflow; a follower begins with one."""
        asked = (row for row in self.plane.audited() if row["verb"] == "list" and row["objectRef"]["resource"] == "workflows")
        return sum(f"metadata.name%3D{run}" in row["requestURI"] for row in asked)


@pytest.fixture(scope="module")
def place(bare: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("argo")
    specs = folder / "specs"
    specs.mkdir()
    (specs / SPEC).write_text(examples.path("single-node").read_text() + SECTIONS)
    for name in ("id_ed25519", "known_hosts"):
        (specs / name).write_text(f"the content of {name} that nobody needs\n")
    before = bare.snapshot()
    argo_home.prepare(bare)
    fleet = write_fleet(folder, compile_plan(load(specs / SPEC)))
    with (
        kubelet_port.serving(folder / "kubelets") as logs,
        simulated_cluster(folder / "target", fleet) as simulated,
    ):
        controller = Controller(bare, folder / "controller", logs, simulated.environment)
        controller.start()
        yield Place(bare, controller, folder)
        controller.stop()
        assert "Traceback" not in controller.said, controller.said
    bare.restore(before)


@pytest.fixture
def ada(place: Place, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine whose command follows the run."""
    made = place.machine(f"{request.node.name}-ada")
    yield made
    made.close()


@pytest.fixture
def grace(place: Place, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Another one, which knows nothing of the run."""
    made = place.machine(f"{request.node.name}-grace")
    yield made
    made.close()


@pytest.fixture(scope="module")
def undisturbed(place: Place) -> list[str]:
    """The evidence that a run leaves where nothing happens: each task once."""
    machine = place.machine("undisturbed")
    try:
        following, run = machine.run(SPEC)
        approve(machine, run)
        assert following.end() == 0, following.said
    finally:
        machine.close()
    found = place.evidence(run)
    assert all(key.endswith(FIRST) for key in found)
    assert {"os_prep", "rke2", "run"} <= {key.split("/")[0] for key in found}
    return found


def approve(machine: Machine, run: str) -> None:
    """On just the evidence that `status` shows there."""
    shown = machine.call("status", run, "--engine", "argo", "-o", "json")
    (waiting,) = json.loads(shown.stdout)["waiting"]
    given = machine.call("approve", run, "--as", ADA, "--engine", "argo", "--evidence", waiting["evidence"])
    assert given.returncode == 0, given.stderr
    assert f"approved os_prep in {run}" in given.stdout


def assert_whole(place: Place, machine: Machine, run: str, wanted: list[str], before: list[str]) -> None:
    """Nothing is missing, nothing was done twice, and the machine that followed has it all."""
    assert place.evidence(run) == wanted
    assert sorted(place.runs()) == sorted([*before, run])
    here = machine.folder / "store/runs" / run
    assert sorted(path.relative_to(here / "evidence").as_posix() for path in (here / "evidence").rglob("*.json")) == wanted
    checked = machine.call("verify", str(here))
    assert checked.returncode == 0, checked.stdout
    report = json.loads((here / "report/report.json").read_bytes())
    assert (report["status"], report["run"]) == ("pass", run)
    nodes = json.loads(place.plane.kubectl("get", "workflow", run, "-n", SPACE, "-o", "json"))["status"]["nodes"].values()
    assert {node["phase"] for node in nodes} <= {"Succeeded", "Skipped", "Omitted", "Error"}
    (gate,) = [node for node in nodes if node["type"] == "Suspend"]
    assert gate["message"] == f"answered by {ADA}"


@pytest.mark.sampled("disturbed runs on argo")
def test_the_api_server_goes_away_and_comes_back(place: Place, ada: Machine, grace: Machine, undisturbed: list[str]) -> None:
    before = place.runs()
    following, run = ada.run(SPEC)
    again = argo_home.stop_api(place.plane)
    following.say(AWAY)
    refused = grace.call("status", run, "--engine", "argo")
    assert (refused.returncode, "Traceback" in refused.stderr) == (75, False)  # come back later
    again()
    following.say(BACK)
    with place.controller.halting(*HALTED, run) as step:
        approve(grace, run)
        step.wait()
        place.plane.restart_api()  # once more while a step is at work
    assert following.end() == 0, following.said
    assert_whole(place, ada, run, undisturbed, before)


@pytest.mark.sampled("disturbed runs on argo")
def test_a_killed_follower_is_followed_by_another_machine(
    place: Place, ada: Machine, grace: Machine, undisturbed: list[str]
) -> None:
    before = place.runs()
    following, run = ada.run(SPEC)
    following.process.send_signal(signal.SIGKILL)
    following.process.wait()
    other = grace.start("watch", run, "--engine", "argo")
    other.say("waits for an approval")
    approve(grace, run)
    assert other.end() == 0, other.said
    assert "rke2: pass" in other.said
    assert_whole(place, grace, run, undisturbed, before)
    late = ada.call("watch", run)  # who was killed sees how it ended
    assert (late.returncode, "rke2: pass" in late.stdout) == (0, True)


@pytest.mark.sampled("disturbed runs on argo")
def test_the_pod_of_a_step_is_deleted(place: Place, ada: Machine, undisturbed: list[str]) -> None:
    before = place.runs()
    following, run = ada.run(SPEC)
    wanted = "jsonpath={range .items[?(@.status.phase=='Running')]}{.metadata.name}{'\\n'}{end}"
    listed = ("get", "pods", "-n", SPACE, "-l", f"workflows.argoproj.io/workflow={run}", "-o", wanted)

    def halted(pods: list[str]) -> str:
        """The pod of the step: what is shown may be a moment behind, with the pod of the step before it."""
        return next((pod for pod in pods if f"{run}-{HALTED_POD}-" in pod), "")

    with place.controller.halting(*HALTED, run) as step:
        approve(ada, run)
        step.wait()
        pod = until(lambda: halted(place.plane.kubectl(*listed).split()), lambda: "its pod is not shown")
        place.plane.kubectl("delete", "pod", pod, "-n", SPACE)
    assert following.end() == 0, following.said
    assert "pod deleted" in following.said
    nodes = json.loads(place.plane.kubectl("get", "workflow", run, "-n", SPACE, "-o", "json"))["status"]["nodes"].values()
    lost = [node for node in nodes if node["type"] == "Pod" and node["phase"] == "Error"]
    assert [node.get("message") for node in lost] == ["pod deleted"]
    assert_whole(place, ada, run, undisturbed, before)  # what was killed had written nothing


@pytest.mark.sampled("disturbed runs on argo")
@pytest.mark.parametrize("expired", [False, True], ids=["cut", "expired"])
def test_watches_are_cut_and_revisions_expire(place: Place, grace: Machine, undisturbed: list[str], expired: bool) -> None:
    before = place.runs()
    with cable.cable(box.ADDRESS, place.plane.base) as laid:
        user = {"token": place.plane.token}
        known = argo_home.kubeconfig(place.plane, grace.folder / "kubeconfig", user, f"https://localhost:{laid.port}")
        ada = place.machine(f"cable-{expired}", known)
        try:
            following, run = ada.run(SPEC)
            for _ in range(3):
                opened = laid.opened
                laid.cut()
                until(functools.partial(lambda before: laid.opened > before, opened), lambda: following.said)
            if expired:
                laid.cut(stay=True)
                following.say(AWAY)
                place.plane.restart_api()  # it begins to remember changes now
            approve(grace, run)
            if expired:
                until(lambda: len(place.evidence(run)) > len(undisturbed) - 4, lambda: "the run does not go on")
                laid.mend()
            assert following.end() == 0, following.said
        finally:
            ada.close()
    assert place.lists(run) == (2 if expired else 1)  # a cut watch goes on where it was
    assert_whole(place, ada, run, undisturbed, before)


@pytest.fixture(scope="module")
def person(place: Place) -> dict[str, object]:
    """The user of a kubeconfig who has no more than the rendered Role, and tokens that are good for five seconds."""
    plane, machine = place.plane, place.machine("admin")
    uid = argo_home.account(plane, "person")
    made = machine.call("render", SPEC, "--out", str(machine.folder / "made"))
    assert made.returncode == 0, made.stderr
    plane.kubectl("apply", "--server-side", "--field-manager", "bringup", "-f", str(machine.folder / "made/rbac.yaml"))
    plane.kubectl("create", "rolebinding", "person", "-n", SPACE, "--role", "bringup-submitter", f"--serviceaccount={SPACE}:person")
    return argo_home.token_user(plane, "person", uid, 5.0)


@pytest.mark.sampled("disturbed runs on argo")
def test_a_token_expires(place: Place, person: dict[str, object], undisturbed: list[str]) -> None:
    before, plane = place.runs(), place.plane
    issued = plane.folder / "issued"
    with cable.cable(box.ADDRESS, plane.base) as laid:
        known = argo_home.kubeconfig(plane, place.folder / "expiring", person, f"https://localhost:{laid.port}")
        ada = place.machine("expiring", known)
        try:
            following, run = ada.run(SPEC)
            tokens = issued.read_text().split()
            until(lambda: not any(plane.get("/api", token) for token in tokens), lambda: "the tokens do not expire", 30)
            laid.cut()  # a watch that is open outlives its token
            until(lambda: len(issued.read_text().split()) > len(tokens), lambda: f"no new token: {following.said}")
            approve(ada, run)
            assert following.end() == 0, following.said
        finally:
            ada.close()
    assert AWAY not in following.said
    assert_whole(place, ada, run, undisturbed, before)


def test_who_submits_needs_no_more_than_the_rendered_role(place: Place, person: dict[str, object]) -> None:
    """`run`, `status`, `watch` and `approve` are in the test above; here all other commands, and what the Role does not give."""
    ada = place.machine("submitter", argo_home.kubeconfig(place.plane, place.folder / "submitter", person))
    scheduled = ada.specs / "scheduled.yaml"
    scheduled.write_text((ada.specs / SPEC).read_text() + 'schedule: {cron: "0 2 * * 6"}\n')
    try:
        following, run = ada.run(scheduled.name)
        assert ada.call("schedule", "suspend", "single-node").returncode == 0
        assert ada.call("logs", "os_prep", "--run", run).returncode == 0
        assert ada.call("cancel", run).returncode == 0
        assert following.end() == 65, following.said
        assert "cancelled by" in ada.call("status", run).stdout
        for command in ("pull", "sweep"):
            done = ada.call(command, run)
            assert done.returncode == 0, done.stderr
        again = ada.start("resume", run)
        again.say("waits for an approval")
        newer = ada.call("cancel", re.findall(r"^run (\S+): goes on", again.said, re.MULTILINE)[0])
        assert newer.returncode == 0, newer.stderr
        assert again.end() == 65
        (ada.specs / "scheduled.yaml").write_text((ada.specs / SPEC).read_text())
        assert ada.call("run", scheduled.name, "--engine", "argo", "--no-wait").returncode == 0  # takes the schedule away
        assert ada.call("cancel", "last", "--engine", "argo").returncode == 0
    finally:
        ada.close()
    assert "cronworkflow" not in place.plane.kubectl("get", "cronworkflows", "-n", SPACE, "-o", "name")
    refused = {line for line in DENIED if place.allows("person", *line)}
    assert not refused
