"""The simulated play os_prep, read by the Ansible client and judged by the stage's gate with its own expectations."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from steps.clients.ansible.events import Ledger
from steps.contract.host_play import PlayHost, PlayRequest, PlayStatus
from steps.contract.verdict import FailureClass, Status, Verdict
from steps.runtime import gating
from steps.stages.os_prep import gate as gates
from steps.stages.os_prep import probe as os_prep
from steps.stages.os_prep.contract import FleetNode, FleetObservation
from tests.unit.rehearsal.simulator.harness import Make, User
from tests.unit.rehearsal.simulator.stage_runner import stage
from workflows.rehearsal.faults import os_prep as faults
from workflows.rehearsal.faults.fault_registry import Fault
from workflows.rehearsal.simulator import playbook_runs
from workflows.rehearsal.simulator.api.api_kinds import NODES, Ref
from workflows.rehearsal.simulator.stages.gpu_operator.gpu_operator_nodes import DRIVER

CLASSES = {
    "hosts_unreachable": FailureClass.DEPENDENCY,
    "nouveau_loaded": FailureClass.RUNTIME,
    "host_driver_conflict": FailureClass.INPUT,
    "disk_full": FailureClass.DEPENDENCY,
    "clock_skew": FailureClass.DEPENDENCY,
    "kernel_parameter_lost": FailureClass.RUNTIME,
    "acs_on": FailureClass.HARDWARE,
    "fabric_mtu": FailureClass.RUNTIME,
    "reboot_hangs": FailureClass.HARDWARE,
    "kernel_differs": FailureClass.COMPARISON,
    "nic_firmware_differs": FailureClass.COMPARISON,
    "secure_boot_on": FailureClass.INPUT,
    "kernel_headers_gone": FailureClass.DEPENDENCY,
    "dns_loopback_only": FailureClass.DEPENDENCY,
    "noexec_data_folder": FailureClass.DEPENDENCY,
    "upgrade_runs": FailureClass.DEPENDENCY,
    "containerd_template_left": FailureClass.INPUT,
    "link_type_wrong": FailureClass.DEPENDENCY,
    "gpu_not_on_the_bus": FailureClass.HARDWARE,
}
UNDECIDED = {"kernel_headers_gone", "upgrade_runs"}
"""Faults whose gate cannot tell what they will lead to: its verdict is inconclusive."""
FABRIC = {"kind": "infiniband", "interfaces": ["ibs1"], "mtu": 9000}


def judge(user: User, check: bool = False) -> tuple[Verdict, int]:
    """The verdict on the whole fleet, and how many tasks changed something."""
    play = stage("os_prep", fabric=FABRIC).steps[0].task
    hosts = tuple(
        PlayHost(name=host.name, address=host.address, groups=("gpu" if host.gpus else "servers",)) for host in user.world.fleet
    )
    request = PlayRequest(playbook="os_prep", hosts=hosts, variables=play.arguments["variables"], check=check)
    events = playbook_runs.run_play(user.world, request)
    ledger = Ledger(host.name for host in hosts)
    for event in events:
        ledger.feed(event)
    outcomes = ledger.outcomes(PlayStatus.OK)
    gate = gating.find("os_prep/nodes")
    want = gate.expect(play.expectations, tuple(host.name for host in hosts), {host.name: host.groups[0] for host in hosts})
    seen = os_prep.from_play(outcomes)
    verdict = gates.nodes(seen, want)
    if verdict.is_pass:
        # the stage compares its machines once each of them is as it should be
        rows = tuple(FleetNode(node=node.node, facts=node.facts) for node in seen.nodes)
        verdict = msgspec.structs.replace(gates.fleet(FleetObservation(nodes=rows), want), gate=verdict.gate)
    return verdict, sum(outcome.changed for outcome in outcomes)


def shown(user: User, name: str) -> dict[str, Any]:
    """Run the simulated play on one machine and return the facts that it reports."""
    variables = stage("os_prep", fabric=FABRIC).steps[0].task.arguments["variables"]
    request = PlayRequest(playbook="os_prep", hosts=(PlayHost(name=name, address="10.0.0.1"),), variables=variables)
    ledger = Ledger([name])
    for event in playbook_runs.run_play(user.world, request):
        ledger.feed(event)
    (outcome,) = ledger.outcomes(PlayStatus.OK)
    return dict(outcome.facts)


def test_bare_machines_are_prepared_once(make: Make) -> None:
    user = make(agents=3, servers=1)
    first, changes = judge(user)
    again, none = judge(user)
    assert first.is_pass, first.reason
    assert again.is_pass, again.reason
    assert (changes, none) == (4 + 3, 0), "one change on each machine, and a reboot of those with GPUs"


def test_the_limit_of_locked_memory_is_among_the_items(make: Make) -> None:
    user = make(agents=1, servers=1)
    items = shown(user, next(iter(user.world.fleet)).name)["items"]
    assert {"name": "memlock", "want": "infinity", "after": "infinity", "status": "changed"} in items


def test_check_mode_changes_nothing(make: Make) -> None:
    user = make(agents=1, servers=1)
    judge(user, check=True)
    assert judge(user)[1] == 2 + 1


def test_the_operators_driver_is_in_the_kernel_and_is_not_the_hosts(make: Make) -> None:
    user = make(agents=2, servers=1)
    user.bring_up()
    for node in ("gpu000", "gpu001"):
        user.api.merge(NODES, Ref("", node), {"metadata": {"annotations": {DRIVER: "580.126.20"}}})
    user.simulator.settle()
    verdict, _ = judge(user)
    assert verdict.is_pass, verdict.reason
    rows = [shown(user, name)["facts"] for name in ("gpu000", "gpu001", "cp00")]
    assert [(row["nvidia_driver"], row["driver_installed"]) for row in rows] == [("580.126.20", False)] * 2 + [("", False)]


@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize(
    "fault",
    [fault for fault in faults.FAULTS if not fault.needs or fault.needs == "fabric.driver=host"],
    ids=lambda fault: fault.name,
)
def test_a_fault_fails_its_two_victims_and_nobody_else(make: Make, fault: Fault) -> None:
    user = make(agents=5, servers=1, faults=[(fault.name, ())])
    verdict, _ = judge(user)
    status = Status.INCONCLUSIVE if fault.name in UNDECIDED else Status.FAIL
    bad = {row.node: row.failure_class for row in verdict.nodes if row.status is status}
    assert verdict.gate == fault.gate
    assert bad == dict.fromkeys(("gpu000", "gpu001"), CLASSES[fault.name]), verdict.reason
    assert all(row.status is Status.PASS for row in verdict.nodes if row.node not in bad)
