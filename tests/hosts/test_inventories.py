"""Ansible's inventories and real hosts: one of each form becomes a spec that reaches them, and the spec's own is used by Ansible.

One host is reached by nothing but another port as another user, the other has its Python elsewhere.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from bringup_command import Command
from hostlab.host import Host
from hostlab.lab import Lab
from hostlab.lab import folder as hosts_folder
from hostlab.waiting import listens, until

from workflows import spec as specs

pytestmark = pytest.mark.sampled("reaching hosts")

PORT, PYTHON, MARK = 2222, "/usr/local/bin/python-of-the-site", "/var/python-of-the-site"
START_SECONDS = 30.0
HOSTS = ("n000", "n001")
SETTINGS = {
    "stages": ["os_prep"],
    "os": {
        "distribution": "debian",
        "version": "12",
        "reboot": False,
        "free_disk_gib": {"/var/lib/rancher": 1},
        "tolerate": ["time service"],
    },
}
"""Keys that an inventory cannot give, so that its user adds them to the spec."""
INI = """[all:vars]
ansible_ssh_private_key_file=@KEY@
ansible_ssh_common_args=-o UserKnownHostsFile=@KNOWN@
[masters]
n000 ansible_host=10.77.0.1 ansible_port=@PORT@ ansible_user=admin bringup_rack=r7
[nodes]
n001 ansible_host=10.77.0.2 ansible_user=root ansible_python_interpreter=@PYTHON@
"""
YAML = """all:
  vars: {ansible_ssh_private_key_file: "@KEY@", ansible_ssh_common_args: "-o UserKnownHostsFile=@KNOWN@"}
  children:
    masters: {hosts: {n000: {ansible_host: 10.77.0.1, ansible_port: @PORT@, ansible_user: admin, bringup_rack: r7}}}
    nodes: {hosts: {n001: {ansible_host: 10.77.0.2, ansible_user: root, ansible_python_interpreter: @PYTHON@}}}
"""
DYNAMIC = """#!/bin/sh
test "$1" = --list || exit 1
cat <<'END'
{"_meta": {"hostvars": {
  "n000": {"ansible_host": "10.77.0.1", "ansible_port": @PORT@, "ansible_user": "admin", "bringup_rack": "r7"},
  "n001": {"ansible_host": "10.77.0.2", "ansible_user": "root", "ansible_python_interpreter": "@PYTHON@"}}},
 "all": {"children": ["masters", "nodes"], "vars": {"ansible_ssh_private_key_file": "@KEY@",
  "ansible_ssh_common_args": "-o UserKnownHostsFile=@KNOWN@"}},
 "masters": {"hosts": ["n000"]}, "nodes": {"hosts": ["n001"]}}
END
"""
FORMS = {"ini": INI, "yaml": YAML, "json": DYNAMIC}
"""By what `bringup inventory -o` calls it; JSON is what a program prints."""
PLAY = """- name: Ask who it is
  hosts: rke2_servers:rke2_agents
  gather_facts: false
  become: true
  tasks:
    - name: Be root
      ansible.builtin.command: id -u
      register: told
      failed_when: told.stdout != "0"
"""


@pytest.fixture
def lab(up: Any) -> Lab:
    """The two hosts."""
    made: Lab = up(2, prepared=True)
    other, elsewhere = made.hosts
    other.run("sh", "-c", f"printf 'Port {PORT}\\nPermitRootLogin no\\n' > /etc/ssh/sshd_config.d/00-site.conf; kill -HUP 1")
    assert until(lambda: listens(other.address, PORT), START_SECONDS)
    text = f'#!/bin/sh\ntouch {MARK}\nexec /usr/bin/python3 "$@"\n'
    elsewhere.run("sh", "-c", f"cat > {PYTHON}; chmod 755 {PYTHON}", text=text)
    return made


def given(folder: Path, lab: Lab, form: str) -> str:
    """Write an inventory of the two hosts; its name."""
    text = FORMS[form]
    words = {"KEY": lab.key, "KNOWN": folder / "known_hosts", "PORT": PORT, "PYTHON": PYTHON}
    for word, value in words.items():
        text = text.replace(f"@{word}@", str(value))
    return program(folder / "site", text) if form == "json" else kept(folder / f"site.{form}", text)


def kept(path: Path, text: str) -> str:
    """Write a file; its name."""
    path.write_text(text)
    return path.name


def program(path: Path, text: str) -> str:
    """Write a program; its name."""
    kept(path, text)
    path.chmod(0o755)
    return path.name


def said(path: Path) -> tuple[Any, ...]:
    """Return a spec's machines, their groups and its SSH settings."""
    spec = specs.load(path)
    return spec.machines, dict(spec.hosts), spec.ssh


def used(host: Host) -> bool:
    """Return True if the Python named by the inventory was used since the last call."""
    return host.run("sh", "-c", f"rm {MARK} && echo yes || true") == "yes\n"


def ansible(folder: Path, program: str, *words: str) -> str:
    """Run a program of Ansible that must end well, with no settings but its own, and return its output."""
    command = [Path(sys.executable).with_name(program), *words]
    # Ansible keeps sockets below HOME, whose paths may have 107 characters: those of tests are too long
    settings = {"PATH": "/usr/bin:/bin", "HOME": str(hosts_folder())}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_specs_of_inventories_reach_hosts_and_their_own_inventories_are_used_by_ansible(lab: Lab, tmp_path: Path) -> None:
    bringup = Command(tmp_path, tmp_path / "home")
    (tmp_path / "play.yaml").write_text(PLAY)
    specs_of, owns = {}, {}
    for form in FORMS:
        spec, own, again = (tmp_path / f"{name}-{form}" for name in ("spec", "own", "again"))
        bringup.call("init", spec, "--from-inventory", given(tmp_path, lab, form), check=True)
        bringup.call("inventory", spec, "-o", form, "--out", own, check=True)
        if form == "json":
            own = tmp_path / program(tmp_path / "dynamic", f"#!/bin/sh\ncat {own}\n")
        bringup.call("init", again, "--from-inventory", own, check=True)
        specs_of[form], owns[form] = said(spec), str(own)
        assert said(again) == said(spec), "groups, ports, users, key, racks"
    assert specs_of["ini"] == specs_of["yaml"] == specs_of["json"]

    spec = tmp_path / "spec-json"
    bringup.call("host-keys", spec, "--yes", check=True)
    spec.write_text(yaml.safe_dump(yaml.safe_load(spec.read_text()) | SETTINGS))
    done = bringup.call("run", spec, "--only", "os_prep", check=True)
    assert "os_prep: pass: 2 of 2 nodes passed all gates" in done.stdout, done.stdout
    assert used(lab.hosts[1])

    for own in owns.values():
        played = ansible(tmp_path, "ansible-playbook", "--inventory", own, "play.yaml")
        assert [line.split()[:3] for line in played.splitlines() if " : ok=" in line] == [[name, ":", "ok=1"] for name in HOSTS]
        assert used(lab.hosts[1])
    pinged = ansible(tmp_path, "ansible", "all", "--inventory", owns["yaml"], "--module-name", "ping")
    assert [name for name in HOSTS if f"{name} | SUCCESS" not in pinged] == [], pinged
