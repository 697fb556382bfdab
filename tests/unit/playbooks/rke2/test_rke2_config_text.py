"""The text of config.yaml as Ansible makes it of the role's variables, on hosts where only `ip` is a stand-in."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.rke2 import node_address

from tests.unit.playbooks.library import PLAYBOOKS

REGISTERED = "127.55.0.1"
LINKS = [
    {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1"}, {"family": "inet6", "local": "::1"}]},
    {"ifname": "eth0", "addr_info": [{"family": "inet", "local": "192.0.2.11"}, {"family": "inet6", "local": "2001:db8::11"}]},
    {"ifname": "eth1", "addr_info": []},
]
PLAY = """
- hosts: all
  vars: {rke2_kind: "{{ 'server' if inventory_hostname.startswith('sv') else 'agent' }}"}
  tasks:
    - ansible.builtin.include_role: {name: rke2, tasks_from: see, public: true}
    - ansible.builtin.copy: {dest: "{{ said }}/{{ inventory_hostname }}", content: "{{ rke2_config_text }}"}
"""


def configured(folder: Path, addresses: dict[str, str], **variables: object) -> dict[str, dict[str, Any]]:
    """The config.yaml of each host, by how SSH reaches it; `ip` says of each that it has LINKS."""
    (folder / "ip").write_text(f"#!/bin/sh\necho '{json.dumps(LINKS)}'\n")
    (folder / "ip").chmod(0o755)
    paths = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder),
    }
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {name: {"bringup_address": address} for name, address in addresses.items()}
    groups = {"helpers": {"hosts": {}}, "played": {"hosts": {}}}
    (folder / "hosts.json").write_text(json.dumps({"all": {"vars": common, "hosts": hosts, "children": groups}}))
    (folder / "play.yml").write_text(PLAY)
    (folder / "said").mkdir()
    told = {"rke2_version": "v1.35.7+rke2r1", "rke2_registration_address": REGISTERED, "said": str(folder / "said")}
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("ansible-playbook"), folder / "play.yml", "--inventory", folder / "hosts.json"),
            *("--extra-vars", json.dumps(told | variables)),
        ],
        env={**os.environ, **paths, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: yaml.safe_load((folder / "said" / name).read_text()) for name in addresses}


def test_names_of_the_certificate_stand_in_the_order_of_the_spec(tmp_path: Path) -> None:
    names = [f"api-{number}.example.org" for number in range(6)]
    found = configured(tmp_path, {"sv1": REGISTERED}, rke2_tls_san=[REGISTERED, *names])
    assert found["sv1"]["tls-san"] == [REGISTERED, *names], "in another order the next run would restart every server"


def test_a_node_is_told_the_address_that_it_is_reached_by_only_where_it_has_it(tmp_path: Path) -> None:
    own, name, far = "192.0.2.11", "sv2.cluster.example.org", "198.51.100.7"
    reached = {"sv1": own, "sv2": name, "a1": own, "a2": "a2", "a3": far, "a4": "127.0.0.1"}
    found = configured(tmp_path, reached, rke2_tls_san=["api.example.org"])
    told = {host: config["node-ip"] for host, config in found.items() if "node-ip" in config}
    assert told == {"sv1": own, "a1": own}, "RKE2 ends at a name, and cannot listen on an address of NAT's"
    assert found["sv1"]["tls-san"] == [REGISTERED, "api.example.org"], "as it was before: nothing restarts for this"
    assert found["sv2"]["tls-san"] == [REGISTERED, "api.example.org", name], "others may come there to join"
    assert found["a2"]["server"] == f"https://{REGISTERED}:9345"


def test_a_node_that_ssh_reaches_by_ipv6_takes_its_address_of_ipv4_by_itself(tmp_path: Path) -> None:
    own, registered = "2001:db8::11", "2001:db8::10"
    found = configured(tmp_path, {"sv1": own, "a1": own}, rke2_registration_address=registered)
    assert not [name for name, config in found.items() if "node-ip" in config], "RKE2 ends at it beside pods of IPv4"
    assert found["sv1"]["tls-san"] == [registered, own], "others may come there to join"
    assert found["a1"]["server"] == f"https://[{registered}]:9345"


@pytest.mark.parametrize("kept", ["192.0.2.11", "2001:db8::11"])
def test_a_node_that_has_joined_keeps_its_address_where_ssh_reaches_it_by_ipv6(tmp_path: Path, kept: str) -> None:
    def told(*, joined: bool) -> str:
        return node_address.node_ip("2001:db8::11", joined, lambda command: (0, json.dumps(LINKS), ""), str(config))

    config = tmp_path / "config.yaml"
    config.write_text(f"# Made by bringup.\nnode-ip: {kept}\n")
    assert told(joined=True) == kept, "etcd knows a server by its address"
    assert told(joined=False) == "", "of a run that failed before the host joined"


def test_an_address_is_known_however_it_is_written() -> None:
    def ip(command: list[str]) -> tuple[int, str, str]:
        return 0, json.dumps(LINKS), ""

    assert node_address.own_address("2001:DB8:0::11", ip) == "2001:DB8:0::11", (
        "as the spec writes it, so that files stay as they are"
    )
    assert node_address.own_address("2001:db8::12", ip) == ""


@pytest.mark.parametrize("text", ["node-ip: 10.20.0.7\n", "node-ip: [10.20.0.7]\n", "node-ip+:\n- 10.20.0.7\n", "i: 10.20.0.7\n"])
def test_a_drop_in_names_the_address_of_a_node_that_has_joined_by_no_other(tmp_path: Path, text: str) -> None:
    def told(*, joined: bool) -> str:
        return node_address.node_ip("192.0.2.11", joined, lambda command: (0, json.dumps(LINKS), ""), str(config))

    config = tmp_path / "config.yaml"
    assert told(joined=False) == "192.0.2.11"
    (tmp_path / "config.yaml.d").mkdir()
    (tmp_path / "config.yaml.d/50-site.yaml").write_text(text)
    assert told(joined=False) == told(joined=True) == ""
    config.write_text("# Made by bringup.\nnode-ip: 192.0.2.11\n")
    assert told(joined=True) == "192.0.2.11", "the drop-in is refused then: etcd knows a server by its address"
    assert told(joined=False) == "", "of a run that was killed, or failed, before the host joined"


@pytest.mark.parametrize("said", [(257, "", "No such file or directory: 'ip'"), (0, "not JSON", "")])
def test_a_host_that_does_not_tell_its_addresses_is_no_host_without_any(said: tuple[int, str, str]) -> None:
    with pytest.raises(node_address.AddressesUnreadable, match="ip -json address show ended with"):
        node_address.own_address("192.0.2.11", lambda command: said)
