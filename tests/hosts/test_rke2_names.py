"""A cluster whose spec has its hosts by DNS name, as one made of an inventory without addresses: its nodes have addresses,
or those that the site's drop-ins say."""

import os
import subprocess
from pathlib import Path
from typing import Any

import bringup_command
import nodes_stand_in
import pytest
import yaml
from cluster_site import Site
from hostlab.host import Host
from hostlab.lab import Init
from rke2_plays import nodes

from workflows import spec as specs
from workflows.plan.compiler import compile_plan

pytestmark = pytest.mark.sampled("rke2 on hosts")

DOMAIN = "cluster.example.org"
DROP_INS, ANOTHER = "/etc/rancher/rke2/config.yaml.d", "10.77.200.9"
RESOLVED = """#!/bin/sh
exec unshare --mount sh -c 'mount --bind @HOSTS@ /etc/hosts && exec "$@"' sh @BRINGUP@ "$@"
"""
"""The command line, which alone finds the names: /etc/hosts is this machine's, too."""


def test_hosts_that_are_reached_by_names_become_a_cluster_and_stay_as_they_are(up: Any, tmp_path: Path, source: str) -> None:
    lab = up(3, Init.SYSTEMD, prepared=True)
    resolve(tmp_path, lab.hosts)
    site = Site(lab, tmp_path, source)
    site.more = {"nodes": {"overrides": {"n002": {"address": lab.hosts[2].address}}}}
    site.write("n[001-002]")
    document = yaml.safe_load((tmp_path / "cluster.yaml").read_text())
    for group in document["hosts"].values():
        group["addresses"] = {"dns_suffix": DOMAIN}
    lab.hosts[2].run("ip", "address", "add", f"{ANOTHER}/16", "dev", "eth0")
    lab.hosts[2].run("sh", "-c", f"mkdir -p {DROP_INS} && echo 'node-ip: {ANOTHER}' > {DROP_INS}/50-site.yaml")
    known = lab.known_hosts.read_text()
    for host in lab.hosts[:2]:
        known = known.replace(f"{host.address} ", f"{host.name}.{DOMAIN} ")
    (tmp_path / "known_hosts").write_text(known)
    document["ssh"]["known_hosts"] = str(tmp_path / "known_hosts")
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(document))

    with nodes_stand_in.played(lab, compile_plan(specs.load(tmp_path / "cluster.yaml")), tmp_path / "played"):
        run = [tmp_path / "bringup", "run", "cluster.yaml", "--only", "rke2"]
        settings = {"cwd": tmp_path, "env": os.environ | {"BRINGUP_HOME": str(site.bringup.home), "NO_COLOR": "1"}}
        done = subprocess.run(run, **settings, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        server, agent, told = (yaml.safe_load(host.run("cat", "/etc/rancher/rke2/config.yaml")) for host in lab.hosts)
        assert "node-ip" not in {**server, **agent, **told}, "RKE2 ends at a name, and the site has said another"
        assert agent["server"] == f"https://n000.{DOMAIN}:9345"
        assert server["tls-san"] == [f"n000.{DOMAIN}"]
        seen = {name: node["status"]["address"] for name, node in nodes(lab.hosts[0]).items()}
        assert seen == {"n000": lab.hosts[0].address, "n001": lab.hosts[1].address, "n002": ANOTHER}

        again = subprocess.run(run, **settings, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert again.returncode == 0, again.stdout + again.stderr
        assert "3 hosts: nothing changed" in again.stdout


def resolve(folder: Path, hosts: tuple[Host, ...]) -> None:
    """Have hosts find each other by name, and a command line of its own in the folder do so too."""
    lines = "".join(f"{host.address} {host.name}.{DOMAIN}\n" for host in hosts)
    for host in hosts:
        host.run("sh", "-c", "cat >> /etc/hosts", text=lines)
    (folder / "hosts").write_text(Path("/etc/hosts").read_text() + lines)
    script = RESOLVED.replace("@HOSTS@", str(folder / "hosts")).replace("@BRINGUP@", str(bringup_command.BRINGUP))
    (folder / "bringup").write_text(script)
    (folder / "bringup").chmod(0o755)
