"""A rehearsal in the user's own Argo over a real API server: the simulated cluster is a pod of home, and a person approves."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from actors import argo_home, kubelet_port
from actors.argo_home import SPACE, Controller, Machine, until
from kubelab.control_plane import ControlPlane

from workflows import examples

ADA = "ada@example.org"
SPEC = "small.yaml"
SECTIONS = f"stages: [os_prep, rke2]\napprovals:\n  - before: rke2\n    approvers: [{ADA}]\n"


@dataclass(frozen=True)
class Place:
    """A home cluster with a controller, and the machine of somebody who has a spec but no key and no host."""

    plane: ControlPlane
    controller: Controller
    machine: Machine

    def shown(self, *words: str) -> str:
        return self.plane.kubectl("get", *words, "-n", SPACE, "-o", "name")


@pytest.fixture(scope="module")
def place(bare: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("rehearsed")
    specs = folder / "specs"
    specs.mkdir()
    (specs / SPEC).write_text(examples.path("single-node").read_text() + SECTIONS)
    before = bare.snapshot()
    argo_home.prepare(bare)
    machine = Machine(folder / "machine", bare.kubeconfig, specs)
    with kubelet_port.serving(folder / "kubelets") as logs:
        # nothing but what is in the manifests tells the steps of a simulated cluster
        controller = Controller(bare, folder / "controller", logs, {})
        controller.start()
        yield Place(bare, controller, machine)
        machine.close()
        controller.stop()
        assert "Traceback" not in controller.said, controller.said
    bare.restore(before)


def answered(machine: Machine, run: str) -> None:
    """Approve as on hardware, on the evidence that `status` shows."""
    (waiting,) = json.loads(machine.call("status", run, "--engine", "argo", "-o", "json").stdout)["waiting"]
    given = machine.call("approve", run, "--as", ADA, "--engine", "argo", "--evidence", waiting["evidence"])
    assert given.returncode == 0, given.stderr


def test_a_rehearsal_passes_and_leaves_nothing_but_its_evidence(place: Place) -> None:
    following = place.machine.start("rehearse", SPEC, "--engine", "argo")
    following.say("waits for an approval")
    (run,) = [name.partition("/")[2] for name in place.shown("workflows").split()]
    assert run.startswith("rehearsal-single-node-")
    assert "pod/bringup-rehearsal-" in place.shown("pods")
    answered(place.machine, run)
    assert following.end() == 0, following.said
    assert "rke2: pass" in following.said
    for kind in ("pods", "services", "secrets"):
        until(lambda kind=kind: "bringup-rehearsal-" not in place.shown(kind), lambda kind=kind: place.shown(kind))
    report = json.loads((place.machine.folder / "store/runs" / run / "report/report.json").read_bytes())
    assert (report["status"], report["simulated"]) == ("pass", True)


def test_a_fault_is_caught_by_its_gate_as_in_a_rehearsal_here(place: Place) -> None:
    following = place.machine.start("rehearse", SPEC, "--engine", "argo", "--fault", "disk_full:node1")
    assert following.end() == 65, following.said
    assert "disk" in following.said
    assert "os_prep" in following.said


def test_the_manifests_are_those_of_a_real_run_but_for_the_environment(place: Place, tmp_path: Path) -> None:
    made = place.machine.call("render", SPEC, "--out", str(tmp_path))
    assert made.returncode == 0, made.stderr
    templates = json.loads(place.plane.kubectl("get", "workflowtemplates", "-n", SPACE, "-o", "json"))["items"]
    rehearsed = templates[0]["spec"]
    variables = {"BRINGUP_SIMULATOR", "BRINGUP_SIMULATOR_TOKEN", "BRINGUP_SIMULATOR_PIN", "BRINGUP_GIT_ROOT"}
    for entry in rehearsed["templates"]:
        if "container" in entry:
            names = [row["name"] for row in entry["container"]["env"]]
            assert variables < set(names)
            entry["container"]["env"] = [row for row in entry["container"]["env"] if row["name"] not in variables]
    real = json.loads(json.dumps(yaml.safe_load((tmp_path / "workflowtemplate.yaml").read_text())))["spec"]
    assert rehearsed["templates"] == real["templates"]
