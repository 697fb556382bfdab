"""SELinux on a machine whose kernel has it: Debian's own policy, every file labelled by it, booted permissive.

The mode that a spec wants, now and over a reboot; and what a policy alone shows, that each file which the profile made or replaced
bears the label that the policy has for its place, so that nobody is denied it once the kernel enforces.
"""

import base64
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rke2_stand_in
import time_server
from bringup_command import Command

from steps.clients.ansible.workspace import playbook_path
from steps.stages.os_prep import probe
from tests.hosts.hostlab.waiting import until
from tests.hosts.machine import plays, qemu
from tests.hosts.machine.plays import ADDRESS, HERE, judged, play
from tests.hosts.machine.qemu import BOOT_SECONDS, Machine
from workflows import spec as specs
from workflows.stages.os_prep import node_profile

pytestmark = pytest.mark.long

USER = "ops"
VERSIONS = ("v1.35.7+rke2r1", "v1.35.8+rke2r1")
LOADED = """set -e
rm -f /.autorelabel  # its packages ask for it at the first boot: the files bear their labels already
echo 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX security=selinux selinux=1"' > /etc/default/grub.d/60-site.cfg
update-grub
(sleep 1; systemctl reboot) > /dev/null 2>&1 &
"""
PLACES = "/boot /etc /home /root /run /usr/local /var"
DENIED = re.compile(r"avc: +denied +\{ (?P<what>[^}]*) \} .*comm=\"(?P<comm>[^\"]*)\"(?P<rest>.*)")
CONTEXTS = re.compile(r"scontext=\S+?:\S+?:(\w+)\S* tcontext=\S+?:\S+?:(\w+)\S* tclass=(\w+)")


@pytest.fixture(scope="module")
def machine(able: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """As its installer left it, booted again with SELinux, by what its site has told GRUB; every file labelled."""
    folder = tmp_path_factory.mktemp("machine")
    kept = qemu.made(folder)
    with time_server.serving("127.0.0.1", 0) as port, qemu.started(kept, folder) as made:
        made.run(f"echo server {HERE} port {port} iburst > /etc/chrony/sources.d/site.sources")
        made.run(LOADED)
        assert until(lambda: made.boots == 2, BOOT_SECONDS, every=0.2)
        made.awaited()
        made.run("systemctl is-system-running --wait; restorecon -R -F " + PLACES)
        yield made


def spec(machine: Machine, folder: Path, mode: str) -> specs.ClusterSpec:
    """A spec that has the machine write about all that it can."""
    user = {"name": USER, "keys": [machine.disk.key.with_suffix(".pub").read_text().strip()], "sudo": True}
    said: dict[str, Any] = {"users": [user], "kernel_parameters": ["audit=1"], "peer_to_peer": True}
    return plays.spec(machine, folder, selinux=mode, **said)


def modes(machine: Machine) -> tuple[str, str]:
    """The kernel's mode, and that of its next boot."""
    now, kept = machine.run("getenforce; grep ^SELINUX= /etc/selinux/config").split()
    return now.lower(), kept.partition("=")[2]


def mislabelled(machine: Machine) -> set[str]:
    """Each file whose label is not the policy's for its place, and both labels."""
    return set(machine.run(f"restorecon -R -n -v {PLACES}").splitlines())


def denials(machine: Machine) -> set[tuple[str, ...]]:
    """Return denials by the policy since the last boot, each kind once; in permissive mode they are only logged."""
    said = machine.run("journalctl --boot --output=cat --grep='avc: +denied' || true")
    return {
        (found["comm"], found["what"].strip(), *kinds.groups())
        for found in map(DENIED.search, said.splitlines())
        if found and (kinds := CONTEXTS.search(found["rest"]))
    }


def test_a_machine_is_prepared_and_enforces_with_every_file_as_the_policy_wants_it(machine: Machine, tmp_path: Path) -> None:
    profile = node_profile(spec(machine, tmp_path, "enforcing"))
    assert modes(machine) == ("permissive", "permissive")
    before, usual, boots = mislabelled(machine), denials(machine), machine.boots

    first = judged(play(machine, profile, os_prep_address=ADDRESS), selinux="enforcing", clock_synchronized=True)
    assert first.is_pass, first.reason
    assert machine.boots == boots + 1
    assert modes(machine) == ("enforcing", "enforcing"), "over the reboot"
    assert mislabelled(machine) - before == set()
    assert denials(machine) - usual == set()
    assert as_user(machine, "id --user --name").strip() == USER

    (again,) = probe.from_play(play(machine, profile, os_prep_address=ADDRESS).hosts).nodes
    assert {item.status for item in again.items} <= {"ok", "unavailable"}
    assert machine.boots == boots + 1


def test_a_machine_that_enforces_is_made_permissive_without_a_boot(machine: Machine, tmp_path: Path) -> None:
    spec(machine, tmp_path, "permissive")
    boots = machine.boots
    done = Command(tmp_path, tmp_path / "home").call("run", "--until", "os_prep", check=True).stdout
    assert "1 of 1 host changed" in done
    assert (modes(machine), machine.boots) == (("permissive", "permissive"), boots)


def test_a_release_of_rke2_is_installed_and_replaced_with_the_labels_of_its_places(machine: Machine, tmp_path: Path) -> None:
    rke2_stand_in.authority(tmp_path / "ca")
    for version in VERSIONS:
        rke2_stand_in.release(tmp_path / "site", version, tmp_path / "ca")
    given = io.BytesIO()
    with tarfile.open(fileobj=given, mode="w:gz") as archive:
        archive.add(tmp_path / "site", "site")
    machine.run("base64 --decode | tar --extract --gzip --directory=/srv", base64.b64encode(given.getvalue()).decode())
    before = mislabelled(machine)
    older, newer = VERSIONS
    states = [
        ("fetched", older, ""),
        ("installed", older, ""),
        ("fetched", newer, ""),
        ("installed", newer, older),
        ("restored", older, ""),
    ]
    releases(machine, tmp_path, [{"state": state, "version": version, "replaces": old} for state, version, old in states])
    assert older in machine.run("cat /usr/local/bin/rke2 /var/lib/rancher/download/kept/VERSION")
    assert mislabelled(machine) - before == set()


def releases(machine: Machine, folder: Path, wanted: list[dict[str, str]]) -> None:
    """Have the module of the stage rke2 do these things to releases, one after the other."""
    tasks = [{"rke2_release": {**one, "artifacts": f"/srv/site/{one['version']}", "images": ["core"]}} for one in wanted]
    (folder / "play.json").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    reached = {
        "ansible_host": "127.0.0.1",
        "ansible_port": machine.port,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(machine.disk.key),
        "ansible_ssh_extra_args": f"-F none -o UserKnownHostsFile={machine.known_hosts}",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "--inventory", "m001,", "--extra-vars", json.dumps(reached)]
    settings = {"ANSIBLE_CONFIG": str(playbook_path("os_prep").with_name("ansible.cfg")), "ANSIBLE_HOME": str(folder)}
    done = subprocess.run([*command, str(folder / "play.json")], env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def as_user(machine: Machine, command: str) -> str:
    """A line of shell as the user whom the spec names, by SSH and the spec's key."""
    words = ["ssh", "-F", "none", "-i", str(machine.disk.key), "-p", str(machine.port), "-o", "BatchMode=yes"]
    words += ["-o", f"UserKnownHostsFile={machine.known_hosts}", f"{USER}@127.0.0.1", command]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=qemu.SSH_SECONDS).stdout
