"""A machine under QEMU as bringup meets it: its spec, the play os_prep alone, and what the gate says of that."""

from pathlib import Path
from typing import Any

import yaml

from steps.clients.ansible import playing
from steps.contract.host_play import PlayHost, PlayRequest, PlayResult
from steps.contract.verdict import Verdict
from steps.stages.os_prep import gate, probe
from steps.stages.os_prep.contract import NodesExpectation
from tests.hosts.machine.qemu import Machine
from workflows import spec as specs

NAME = "m001"
HERE = "10.0.2.2"
"""Address at which the machine sees 127.0.0.1 of the machine that runs QEMU."""
ADDRESS = "10.0.2.15"
"""The machine's own, in its network."""
REBOOT_SECONDS = 180
"""Emulated, with SELinux to start, it is away for a minute."""


def spec(machine: Machine, folder: Path, **os: Any) -> specs.ClusterSpec:
    """A spec of the machine, with these keys of `os`, written into a folder."""
    document: dict[str, Any] = {
        "apiVersion": "bringup/v1",
        "kind": "Cluster",
        "name": "machine",
        "owner": "tests@example.org",
        "revision": "1",
        "stages": ["os_prep", "rke2"],
        "hosts": {"control": {"role": "server", "ranges": NAME, "addresses": {"start": "127.0.0.1"}}},
        "ssh": {"key": {"file": str(machine.disk.key)}, "known_hosts": str(machine.known_hosts), "port": machine.port},
        "os": {"distribution": "debian", "version": "12", "free_disk_gib": {"/var/lib/rancher": 1}, **os},
        "rke2": {"version": "v1.35.7+rke2r1"},
    }
    (folder / "cluster.yaml").write_text(yaml.safe_dump(document))
    return specs.load(folder / "cluster.yaml")


def play(machine: Machine, profile: dict[str, Any], *, check: bool = False, **variables: Any) -> PlayResult:
    """The play alone, with these variables; its reboot is given up sooner than a run's."""
    given = {"os_prep_profile": profile, "os_prep_reboot": True, "os_prep_reboot_seconds": REBOOT_SECONDS, **variables}
    host = PlayHost(name=NAME, address="127.0.0.1", port=machine.port, key_path=str(machine.disk.key))
    return playing.play(
        PlayRequest(playbook="os_prep", hosts=(host,), variables=given, known_hosts=str(machine.known_hosts), check=check)
    )


def judged(result: PlayResult, **words: Any) -> Verdict:
    """Judge a play with the gate of OS prep; `words` are fields of the expectation."""
    return gate.nodes(probe.from_play(result.hosts), NodesExpectation(nodes=(NAME,), **words))
