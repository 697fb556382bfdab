"""A small stored run: two stages, four nodes, one node set aside, one approval, one failed functional gate."""

from pathlib import Path

import msgspec
import pytest

from steps.clients.store import Store
from steps.contract import fleet, run_records
from steps.contract.canonical import canonical
from steps.contract.runs import quarantine
from steps.contract.runs.evidence import Diagnosis, Evidence
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, failed, of_nodes, passed
from steps.report import source

NODES = ("sv1", "gpu001", "gpu002", "gpu003")
PLAN = {
    "stages": [
        {"id": "os_prep", "title": "OS prep", "gates": ["os_prep/nodes"], "rollback": "remove the files"},
        {
            "id": "gang",
            "title": "Gang scheduling",
            "gates": ["gang/control", "gang/functional"],
            "rollback": "helm uninstall volcano",
        },
        {"id": "slurm", "title": "Slurm", "gates": ["slurm/control"], "rollback": "helm uninstall slurm"},
    ],
    "releases": [
        {
            "id": "volcano",
            "version": "1.15.1",
            "source": "https://charts.example.org/volcano",
            "namespace": "volcano-system",
            "stage": "gang",
        }
    ],
}


def _nodes(bad: str) -> Verdict:
    rows = [
        NodeVerdict(
            node=name,
            status=Status.FAIL,
            seen="10.77.0.3 timed out <b>",
            expected="an answer",
            next_step="check /etc/ssh/sshd_config",
        )
        if name == bad
        else NodeVerdict(node=name, status=Status.PASS)
        for name in NODES
    ]
    return of_nodes("os_prep/nodes", rows, what="prepared")


def _evidence(stage: str, task: str, time: float, verdict: Verdict | None, **more: object) -> Evidence:
    record = Evidence(
        run="r1", stage=stage, task=task, verb="wait", shard=0, attempt=1, input_digest="sha256:0", engine="local",
        started=time, finished=time + 5, verdict=verdict, tools={"bringup": "0.1.0"},
    )  # fmt: skip
    return msgspec.structs.replace(record, **more)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    header = run_records.Header(
        run="r1", engine="local", plan="sha256:p", cluster="lab", owner="ada@example.org", revision="7", simulated=True
    )
    made.write(run_records.header_key("r1"), canonical(header))
    made.write(run_records.plan_key("r1"), canonical(PLAN))
    hosts = [
        fleet.Host(name=name, address=f"10.77.0.{number}", group="g", role="server" if number == 0 else "agent", rack="rack7")
        for number, name in enumerate(NODES)
    ]
    made.write(run_records.hosts_key("r1"), canonical(hosts))
    broken = failed(
        "gang/functional",
        FailureClass.RUNTIME,
        seen="3 of 17 pods bound on gpu002",
        expected="none",
        next_step="check schedulerName",
    )
    log = Diagnosis(what="last 30 log lines", source="Pod volcano-system/scheduler-0", content="panic at /opt/volcano/main.go")
    for record in (
        _evidence("os_prep", "play", 100, _nodes("gpu003"), changes=("gpu001: 12 changes",)),
        _evidence("os_prep", "judge", 110, passed("os_prep/judge", "3 of 4 nodes passed", _nodes("gpu003").nodes)),
        _evidence("gang", "control", 120, passed("gang/control", "volcano is up")),
        _evidence("gang", "functional", 130, broken, diagnosis=(log,)),
        _evidence("gang", "judge", 140, broken),
        _evidence(
            "gang", "confirm", 117, passed("gang/approval", "ada approved os_prep"),
            observation={"decision": "pass", "approver": "ada", "approved": "os_prep", "evidence": "sha256:e", "signed": False},
        ),
    ):  # fmt: skip
        made.write_evidence(record, canonical)
    entry = quarantine.QuarantineEntry(node="gpu003", stage="os_prep", gate="os_prep/judge", reason="gpu003: 10.77.0.3 timed out")
    made.replace(quarantine.key("r1", "os_prep"), quarantine.encode((entry,)))
    return made


@pytest.fixture
def stored(store: Store) -> source.StoredRun:
    return source.read(store, "r1")
