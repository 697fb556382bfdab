"""A cluster spec of the lab's hosts, with releases of the stand-in for RKE2, and the command line beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from bringup_command import Command
from hostlab.lab import Lab

from workflows import spec as specs

OLDER, NEWER = "v1.35.7+rke2r1", "v1.35.8+rke2r1"


class Site:
    """A spec of the lab's hosts and the command line beside it; `more` are further keys of `rke2` and of `nodes`, the agents."""

    def __init__(self, lab: Lab, folder: Path, source: str) -> None:
        self.lab, self.folder, self.source = lab, folder, source
        self.registration_address = ""
        self.system = ("debian", "12")
        # this machine's disk is shared with much else
        self.fsync: Mapping[str, float] = {"etcd_fsync_ms": 1000}
        self.more: Mapping[str, dict[str, Any]] = {}
        self.bringup = Command(folder, folder / "home")

    def write(self, agents: str, version: str = OLDER, *, servers: int = 1) -> specs.ClusterSpec:
        """The spec with these agents after so many servers, and this release."""
        control = "n000" if servers == 1 else f"n[000-{servers - 1:03d}]"
        document: dict[str, Any] = {
            "apiVersion": "bringup/v1",
            "kind": "Cluster",
            "name": "real-hosts",
            "owner": "tests@example.org",
            "revision": "1",
            "stages": ["os_prep", "rke2"],
            "hosts": {
                "control": {"role": "server", "ranges": control, "addresses": {"start": "10.77.0.1"}},
                "nodes": {"role": "agent", "ranges": agents, "addresses": {"start": f"10.77.0.{servers + 1}"}}
                | self.more.get("nodes", {}),
            },
            "ssh": {"key": {"file": str(self.lab.key)}, "known_hosts": str(self.lab.known_hosts)},
            "os": {
                "distribution": self.system[0],
                "version": self.system[1],
                "reboot": False,
                "free_disk_gib": {"/var/lib/rancher": 1},
                "tolerate": ["time service"],  # one clock is shared
            },
            "rke2": {"version": version, "source": self.source, "images": ["core"], "drain_seconds": 30}
            | self.fsync
            | ({"registration_address": self.registration_address} if self.registration_address else {})
            | self.more.get("rke2", {}),
            "quorum": {"default": "1/2"},
        }
        (self.folder / "cluster.yaml").write_text(yaml.safe_dump(document))
        return specs.load(self.folder / "cluster.yaml")

    def passes(self, *arguments: str) -> tuple[str, list[str]]:
        """Run a command that must pass: what it printed, and the hosts that plays changed."""
        done = self.bringup.call(*arguments, check=True)
        changes = (change for attempt in self.bringup.report()["attempts"] for change in attempt["changes"] if ": " in change)
        return done.stdout, sorted({change.partition(":")[0] for change in changes if change.startswith("n0")})
