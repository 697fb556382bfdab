"""A rehearsal on Argo with an emulated home cluster: the simulating pod, its manifests, and what it leaves."""

import json
import os
import re
import subprocess
from pathlib import Path

import yaml

from steps.clients.environment import GIT_ROOT, SIMULATOR, SIMULATOR_PIN, SIMULATOR_TOKEN
from tests.unit.engines.argo.lab import Lab, until
from tests.unit.warm_commands import COMMAND
from workflows import bringup, examples
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.rehearsal import home_rehearsal
from workflows.render.bundle import Bundle, render
from workflows.render.steps import Settings
from workflows.render.titles import TITLE
from workflows.spec import load

ADA = "ada@example.org"
SECTIONS = f"stages: [os_prep, rke2]\napprovals:\n  - before: rke2\n    approvers: [{ADA}]\n"
VARIABLES = {SIMULATOR, SIMULATOR_TOKEN, SIMULATOR_PIN, GIT_ROOT}


def rendered() -> tuple[Plan, Bundle]:
    plan = compile_plan(load(examples.path("h200-16")))
    return plan, render(plan, bringup.build)


def test_the_manifests_are_the_real_ones_but_for_the_environment() -> None:
    plan, real = rendered()
    rehearsal = home_rehearsal.new_rehearsal("rehearsal-h200-16-1", "bringup")
    made = home_rehearsal.rehearsed(real, plan, rehearsal)
    name = made.template["metadata"]["name"]
    assert name != real.template["metadata"]["name"]
    assert made.workflow["spec"]["workflowTemplateRef"] == {"name": name}
    assert len(name) <= 63
    assert made.template["metadata"]["annotations"][TITLE] == "rehearsal of bringup h200-16"
    assert (made.config_maps, made.rbac, made.starts) == (real.config_maps, real.rbac, None)
    for mine, other in zip(made.template["spec"]["templates"], real.template["spec"]["templates"], strict=True):
        if "container" in mine:
            added = {row["name"]: row["value"] for row in mine["container"]["env"] if row["name"] in VARIABLES}
            assert added == rehearsal.environment
            mine["container"]["env"] = [row for row in mine["container"]["env"] if row["name"] not in VARIABLES]
        assert mine == other


def test_no_secret_of_the_site_is_mounted() -> None:
    plan, real = rendered()
    made = home_rehearsal.rehearsed(real, plan, home_rehearsal.new_rehearsal("r", "bringup"))
    assert "bringup-secrets-" in json.dumps(real.template["spec"]["volumes"])
    for volume in made.template["spec"]["volumes"]:
        if volume["name"].startswith("secrets-"):
            sources = volume.get("projected", {}).get("sources", [])
            assert {source["secret"]["name"].rpartition("-")[0] for source in sources} <= {"bringup-rehearsal"}


def test_the_pod_runs_the_builder_image_without_rights_or_token() -> None:
    plan, _ = rendered()
    rehearsal = home_rehearsal.new_rehearsal("r", "bringup")
    settings = Settings(builder="registry.example.org/builder:1", pull_secret="pull")
    secret, service, pod = home_rehearsal.objects(plan, rehearsal, settings, ["--seed", "1"])
    spec = pod["spec"]
    (container,) = spec["containers"]
    assert (container["image"], spec["automountServiceAccountToken"]) == ("registry.example.org/builder:1", False)
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert container["command"][-2:] == ["--simulator=--seed", "--simulator=1"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert {port["port"] for port in service["spec"]["ports"]} == {rehearsal.api_port, rehearsal.control_port}
    assert {"tls.crt", "tls.key", "token"} < set(secret["stringData"])
    assert rehearsal.key not in json.dumps([service, pod])


def test_a_rehearsal_on_argo_passes_and_takes_its_pod_away(emulated: Lab, tmp_path: Path) -> None:
    home = emulated.home
    (tmp_path / "small.yaml").write_text(examples.path("single-node").read_text() + SECTIONS)
    emulated.stand_in()
    environment = {**os.environ, "BRINGUP_HOME": str(tmp_path / "runs"), "KUBECONFIG": emulated.where.kubeconfig}
    place = ("--namespace", emulated.where.namespace)
    said = tmp_path / "said"
    with said.open("w") as out:
        words = [str(COMMAND), "rehearse", "small.yaml", "--engine", "argo", *place]
        running = subprocess.Popen(words, env=environment, cwd=tmp_path, stdout=out, stderr=out)
    try:
        until(lambda: "waits for an approval" in said.read_text() or running.poll() is not None, "the approval", 120)
        found = re.search(r"^run (rehearsal-single-node-\S+): rehearsal of", said.read_text(), re.MULTILINE)
        assert found, said.read_text()
        assert b"bringup-rehearsal-" in home.fetch(home.core("services"))
        shown = subprocess.run(
            [str(COMMAND), "approve", found[1], "--as", ADA, *place], env=environment, capture_output=True, text=True, check=False
        )
        digest = re.search("--evidence (sha256:[0-9a-f]{64})", shown.stderr)
        assert digest, shown.stderr
        (gate,) = [node for node in home.workflow(found[1]).nodes().values() if node.type == "Suspend"]
        assert gate.inputs is not None
        assert {row.name: row.value for row in gate.inputs.parameters}["evidence"] == digest[1], "the node shows what is approved"
        given = [str(COMMAND), "approve", found[1], "--as", ADA, "--evidence", digest[1], *place]
        assert subprocess.run(given, env=environment, check=False).returncode == 0
        assert running.wait(120) == 0, said.read_text()
    finally:
        running.kill()
        running.wait()
    assert "rke2: pass" in said.read_text()
    for kind in ("services", "secrets", "pods"):
        assert b"bringup-rehearsal-" not in home.fetch(home.core(kind)), kind
    report = json.loads((tmp_path / "runs/store/runs" / found[1] / "report/report.json").read_text())
    assert (report["status"], report["simulated"]) == ("pass", True)
    (template,) = yaml.safe_load(home.fetch(home.argo("workflowtemplates")))["items"]
    assert template["metadata"]["ownerReferences"][0]["name"] == found[1], "it is deleted with its Workflow"
