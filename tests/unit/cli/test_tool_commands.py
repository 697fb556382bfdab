"""The commands beside the pipeline: `simulate` for other tools, `exec` for any manifest of the portable subset."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from steps.clients import kubeconfig
from tests.unit.cli.conftest import until

CASES = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[4] / "shared") / "argo_conformance/cases"


def test_simulate_serves_a_cluster_until_ctrl_c(machine: Any) -> None:
    config = machine.folder / "kubeconfig"
    served = machine.start("simulate", "h200-16", "--kubeconfig-out", config)
    served.say("Ctrl-C ends it")
    assert config.stat().st_mode & 0o777 == 0o600
    api = kubeconfig.load(config)
    headers = {"Authorization": f"Bearer {api.token}"}
    with urllib3.PoolManager() as http:

        def ready() -> int:
            listed = json.loads(http.request("GET", f"{api.server}/api/v1/nodes", headers=headers).data)["items"]
            shown = [(one["type"], one["status"]) for node in listed for one in node["status"].get("conditions", ())]
            return shown.count(("Ready", "True"))

        until(lambda: ready() == 19, "19 nodes that are ready")
    taken = machine.call("simulate", "h200-16", "--kubeconfig-out", config)
    assert taken.code == 64
    assert f"{config} exists" in taken.err
    served.send(signal.SIGINT)
    done = served.end()
    assert done.code == 0, done.text
    assert not config.exists()
    assert machine.processes() == []


@pytest.mark.parametrize(("case", "code"), [("exit-codes", 65), ("items-lists", 0)])
def test_exec_does_what_the_controller_did(machine: Any, case: str, code: int) -> None:
    recorded = json.loads((CASES / case / "recorded.json").read_text())
    done = machine.call("exec", CASES / case / "workflow.yaml", "--record", machine.folder / "record.json")
    assert done.code == code, done.text
    made = json.loads((machine.folder / "record.json").read_text())
    assert made["phase"] == recorded["phase"]
    assert len(made["nodes"]) == len(recorded["nodes"])


def test_exec_refuses_what_is_outside_of_the_subset(machine: Any) -> None:
    templates = [{"name": "main", "http": {"url": "http://127.0.0.1"}}, {"name": "more", "data": {"source": {}}}]
    manifest = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "web"},
        "spec": {"entrypoint": "main", "templates": templates},
    }
    (machine.folder / "web.yaml").write_text(yaml.safe_dump(manifest))
    done = machine.call("exec", "web.yaml", "--record", "record.json")
    assert done.code == 64
    for place in ("spec.templates[0].http", "spec.templates[1].data"):
        assert f"{place}: this kind of template is not part of the grammar" in done.err
    assert not (machine.folder / "record.json").exists()
    assert machine.call("exec", "nowhere.yaml", "--record", "record.json").code == 64
