"""The real playbook os_prep on real SSH hosts, through the Ansible client: what changes, what does not, and what ends it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hostlab.census import plays
from hostlab.host import Host
from hostlab.lab import Init, Lab
from hostlab.profile import CHANGE, judged, reached, request, variables

from steps.clients.ansible import playing
from steps.contract.host_play import FailureKind, HostStatus, Jump, PlayEvent, PlayResult, PlayStatus
from steps.contract.verdict import FailureClass, Status
from steps.stages.os_prep import probe
from steps.stages.os_prep.contract import ItemStatus

pytestmark = pytest.mark.sampled("preparing hosts")

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"


def items(result: PlayResult, status: ItemStatus) -> dict[str, list[str]]:
    nodes = probe.from_play(result.hosts).nodes
    return {node.node: [item.name for item in node.items if item.status is status] for node in nodes}


def kept(events: Path) -> list[PlayEvent]:
    """The events of a play as they were kept."""
    return [msgspec.json.decode(line, type=PlayEvent) for line in events.read_bytes().splitlines()]


@pytest.mark.sampled(None)
def test_bare_hosts_are_changed_once(up: Any, tmp_path: Path) -> None:
    lab = up(3)
    events = tmp_path / "events.jsonl"

    looked = playing.play(request(lab, check=True))
    assert judged(looked).failure_class is FailureClass.COMPARISON
    assert all("package socat" in names for names in items(looked, ItemStatus.DIFFERS).values())
    assert lab.hosts[0].run("cat", "/etc/hostname") == "unnamed\n"

    lab.hosts[1].run("sh", "-c", "echo 127.0.1.1 n001.site.example n001 >> /etc/hosts")  # as Debian's installer leaves it
    for host, value in zip(lab.hosts[1:], ("65530", "1048576"), strict=True):  # the kernel's own, and Ubuntu's
        host.run("sysctl", "-w", f"vm.max_map_count={value}")

    first = playing.play(request(lab), events_file=events)
    assert first.status is PlayStatus.OK, first
    assert [outcome.changed > 0 for outcome in first.hosts] == [True] * 3
    verdict = judged(first)
    assert verdict.is_pass, verdict.reason

    again = playing.play(request(lab), events_file=tmp_path / "again.jsonl")
    assert [(outcome.status, outcome.changed) for outcome in again.hosts] == [(HostStatus.OK, 0)] * 3
    assert items(again, ItemStatus.DIFFERS) == {host.name: [] for host in lab.hosts}
    asked = [(one.host, one.task, one.seconds > 0) for one in kept(tmp_path / "again.jsonl") if one.event == "runner_on_ok"]
    assert sorted(asked) == [(host.name, CHANGE, True) for host in lab.hosts], "the whole profile in one round trip"
    assert judged(again).is_pass

    host = lab.hosts[1]
    assert host.run("hostname") == "n001\n"
    assert f"{host.address} n001.site.example n001\n" in host.run("cat", "/etc/hosts")
    assert {line.split()[0] for line in host.run("getent", "ahostsv4", "n001").splitlines()} == {host.address}
    assert host.run("dpkg-query", "--show", "--showformat=${Status}", "socat") == "install ok installed"
    assert host.run("sysctl", "-n", "vm.max_map_count") == "262144\n"
    assert "vm.max_map_count = 262144" in host.run("cat", "/etc/sysctl.d/zz-bringup.conf")
    assert lab.hosts[2].run("sysctl", "-n", "vm.max_map_count") == "1048576\n"
    assert "vm.max_map_count = 1048576" in lab.hosts[2].run("cat", "/etc/sysctl.d/zz-bringup.conf")
    assert "# bringup: /dev/vda2" in host.run("cat", "/etc/fstab")
    assert Path("/proc/sys/kernel/hostname").read_text() != "n001\n"

    lines = kept(events)
    assert [line.host for line in lines if line.event == "runner_on_ok" and line.task == CHANGE and line.changed].count("n002") == 1
    assert plays() == []


def differences(lab: Lab, host: Host, folder: Path) -> list[str]:
    """The lines that Ansible's own --diff shows of what it would change on a host."""
    (folder / "hosts.json").write_text(lab.inventory())
    (folder / "variables.json").write_text(json.dumps(variables() | {"bringup_address": host.address, "bringup_groups": []}))
    options = (
        "--check",
        "--diff",
        "--limit",
        host.name,
        "--inventory",
        folder / "hosts.json",
        "--extra-vars",
        f"@{folder}/variables.json",
    )
    command = [Path(sys.executable).with_name("ansible-playbook"), *options, "os_prep.yml"]
    done = subprocess.run(command, cwd=PLAYBOOKS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("-", "+"))]


def test_drift_is_seen_and_repaired(up: Any, tmp_path: Path) -> None:
    lab = up(3, prepared=True)
    playing.play(request(lab))
    lab.hosts[2].run("sysctl", "-w", "vm.overcommit_memory=0")
    lab.hosts[2].run("sh", "-c", "echo tampered > /etc/security/limits.d/90-bringup.conf")
    lab.hosts[2].run("touch", "/etc/security/limits.d/.bringup-cut-off")

    assert {"-tampered", "+* hard memlock unlimited"} <= set(differences(lab, lab.hosts[2], tmp_path))

    looked = playing.play(request(lab, check=True))
    verdict = judged(looked)
    assert (verdict.status, verdict.failure_class) == (Status.FAIL, FailureClass.COMPARISON)
    assert [row.node for row in verdict.nodes if row.status is not Status.PASS] == ["n002"]
    assert items(looked, ItemStatus.DIFFERS)["n002"] == [
        "file /etc/security/limits.d/90-bringup.conf",
        "sysctl vm.overcommit_memory",
    ]

    repaired = playing.play(request(lab))
    assert [outcome.changed for outcome in repaired.hosts] == [0, 0, 1]
    assert judged(repaired).is_pass
    assert "cut-off" not in lab.hosts[2].run("ls", "--all", "/etc/security/limits.d"), "what a killed run left is gone"


def test_a_host_behind_a_jump_host(up: Any) -> None:
    lab = up(2, prepared=True)
    jump, hidden = lab.hosts
    hidden.run("ip", "route", "add", "blackhole", "10.77.255.254/32")

    through = reached(lab, hidden, jump=Jump(address=jump.address, key_path=str(lab.key)))
    result = playing.play(request(lab, through))

    assert result.hosts[0].status is HostStatus.OK, result.hosts[0]
    assert plays() == []


def test_a_cable_pulled_during_the_play_does_not_hang_it(up: Any) -> None:
    lab = up(3)

    def pull(event: PlayEvent) -> None:
        if event.event == "runner_on_start" and event.host == "n001" and event.task == CHANGE:
            lab.hosts[1].unplug()

    result = playing.play(request(lab), on_event=pull)

    assert [outcome.status for outcome in result.hosts] == [HostStatus.OK, HostStatus.UNREACHABLE, HostStatus.OK]
    assert result.hosts[1].kind is FailureKind.NETWORK
    assert result.finished - result.started < 120


def test_a_play_that_takes_too_long_is_cut_off(up: Any) -> None:
    lab = up(3)

    result = playing.play(request(lab, timeout_seconds=2))

    assert result.status is PlayStatus.TIMEOUT
    assert {(outcome.status, outcome.kind) for outcome in result.hosts} == {(HostStatus.CANCELLED, FailureKind.TIMEOUT)}
    assert judged(result).status is Status.INCONCLUSIVE
    assert plays() == []


CHILD = """
import sys, msgspec
from steps.clients.ansible import playing
from steps.contract.host_play import PlayRequest
request = msgspec.json.decode(sys.stdin.buffer.read(), type=PlayRequest)
result = playing.play(request, on_event=lambda event: print(event.event, event.task, flush=True))
print(msgspec.json.encode(result).decode(), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_play_and_its_children(up: Any, number: signal.Signals) -> None:
    lab = up(3)
    environment = os.environ | {"PYTHONPATH": str(Path(playing.__file__).parents[3])}
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(msgspec.json.encode(request(lab)))
        child.stdin.close()
        lines = iter(child.stdout)
        next(line for line in lines if line.startswith(b"runner_on_start") and CHANGE.encode() in line)
        child.send_signal(number)
        began = time.monotonic()
        result = msgspec.json.decode(list(lines)[-1], type=PlayResult)

    assert child.returncode == 0
    assert time.monotonic() - began < 60
    assert (result.status, len(result.hosts)) == (PlayStatus.CANCELLED, 3)
    assert plays() == []


def test_systemd_hosts_have_their_services_set(up: Any) -> None:
    lab = up(3, Init.SYSTEMD)

    first = playing.play(request(lab))
    again = playing.play(request(lab))

    assert judged(first).is_pass, judged(first).reason
    assert [(outcome.status, outcome.changed) for outcome in again.hosts] == [(HostStatus.OK, 0)] * 3
    assert lab.hosts[0].run("readlink", "/etc/systemd/system/swap.target") == "/dev/null\n"
    assert json.loads(msgspec.json.encode(again.hosts[0].facts))["facts"]["init"] == "systemd"


def test_a_node_that_asks_for_a_reboot_gets_one_if_allowed(up: Any) -> None:
    lab = up(3, Init.SYSTEMD, prepared=True)
    lab.hosts[1].run("touch", "/run/reboot-required")
    booted = [host.boot_id() for host in lab.hosts]
    served = variables(time_servers=["192.0.2.123"])

    left = playing.play(request(lab, variables=served))
    assert any("a reboot is asked for by 1 node, first" in note for note in judged(left).notes)
    done = playing.play(request(lab, variables=served | {"os_prep_reboot": True, "os_prep_reboot_seconds": 60}))

    assert [(outcome.status, outcome.changed) for outcome in done.hosts] == [
        (HostStatus.OK, 0),
        (HostStatus.OK, 1),
        (HostStatus.OK, 0),
    ]
    again = [host.boot_id() for host in lab.hosts]
    assert [old == new for old, new in zip(booted, again, strict=True)] == [True, False, True]
    assert judged(done).notes == ()
    assert "server 192.0.2.123 iburst" in lab.hosts[0].run("cat", "/etc/chrony/chrony.conf")
