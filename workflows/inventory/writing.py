"""A spec → an Ansible inventory: its hosts and groups, how they are reached, and where they stand; as YAML, INI or JSON. Pure."""

import ast
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from workflows import places
from workflows.inventory import gpus, standing
from workflows.inventory.connection import SSH_PROXY
from workflows.inventory.model import BadInventory
from workflows.spec.cluster import ClusterSpec
from workflows.spec.machines import Machine

Form = Literal["yaml", "ini", "json"]
_ANSIBLES = {"all", "ungrouped"}
ROLES = {"server": "rke2_servers", "agent": "rke2_agents"}
"""Groups by role, beside those of the spec."""


def inventory(spec: ClusterSpec, folder: Path) -> dict[str, Any]:
    """The inventory as data, in the form of a YAML inventory. `folder` is the spec's: its relative paths begin there.

    Raises BadInventory for a group that Ansible means otherwise.
    """
    if taken := sorted(_ANSIBLES & set(spec.hosts)):
        raise BadInventory(
            f"hosts.{taken[0]}: Ansible has a group {taken[0]} of its own", "give the group another name in the spec"
        )
    children: dict[str, Any] = {name: {"hosts": _hosts(spec, name, folder)} for name in spec.hosts}
    for role, name in ROLES.items():
        members = [group for group, one in spec.hosts.items() if one.role == role and group != name]
        if members and name not in children:
            children[name] = {"children": {member: {} for member in members}}
    return {"all": {"vars": _common(spec, folder), "children": children}}


def text(data: Mapping[str, Any], form: Form) -> str:
    """The inventory as a file. JSON is what a dynamic inventory prints."""
    if form == "yaml":
        return yaml.safe_dump(dict(data), sort_keys=False, width=120)
    return _ini(data["all"]) if form == "ini" else json.dumps(_answer(data["all"]), indent=2) + "\n"


def _hosts(spec: ClusterSpec, group: str, folder: Path) -> dict[str, Any]:
    return {machine.name: _variables(spec, machine, folder) for machine in spec.machines if machine.group == group}


def _variables(spec: ClusterSpec, machine: Machine, folder: Path) -> dict[str, Any]:
    """What one host has for itself."""
    named: dict[str, Any] = {
        "ansible_host": machine.address if machine.address != machine.name else "",
        "ansible_user": machine.ssh_user,
        "ansible_port": machine.ssh_port,
        "ansible_python_interpreter": machine.python,
        "ansible_ssh_common_args": _arguments(spec, folder, machine) if machine.ssh_jump or machine.ssh_http_proxy else "",
        SSH_PROXY: machine.ssh_http_proxy,
        "ansible_become": machine.ssh_user != "root" if machine.ssh_user else "",
        **standing.of_host(machine),
        **gpus.of_host(spec, machine),
    }
    return {name: value for name, value in named.items() if value or value is False or name == gpus.COUNT}


def _common(spec: ClusterSpec, folder: Path) -> dict[str, Any]:
    """What holds for all hosts. Host keys are verified, and secrets are left out: only the path of the key is here."""
    ssh = spec.ssh
    key = {"ansible_ssh_private_key_file": _path(folder, ssh.key.file)} if ssh.key and ssh.key.file else {}
    front = {"bringup_registration_address": spec.rke2.registration_address} if spec.rke2.registration_address else {}
    return {
        **front,
        "ansible_user": ssh.user,
        "ansible_port": ssh.port,
        **key,
        "ansible_become": ssh.user != "root",
        "ansible_ssh_common_args": _arguments(spec, folder),
        **({SSH_PROXY: ssh.http_proxy} if ssh.http_proxy else {}),
        **gpus.of_all(spec),
    }


def _arguments(spec: ClusterSpec, folder: Path, machine: Machine | None = None) -> str:
    """SSH's arguments: of several ProxyJump options SSH takes the first, so a host with its own has all of them for itself.

    Through an HTTP proxy goes OpenBSD's nc, which asks for the password of a login. One before a jump host is for ~/.ssh/config.
    """
    ssh = spec.ssh
    jump = (machine.ssh_jump if machine else "") or ssh.jump_host or ""
    proxy = (machine.ssh_http_proxy if machine else "") or ssh.http_proxy or ""
    options = ["-o StrictHostKeyChecking=" + ("yes" if ssh.host_key_policy == "strict" else "accept-new")]
    if ssh.known_hosts:  # SSH itself splits this value at spaces that are not quoted
        option = f"UserKnownHostsFile={shlex.join([_path(folder, ssh.known_hosts)])}".replace("'", '"')
        options.append(f"-o {shlex.quote(option)}")
    if proxy and not jump:
        login = f" -P {ssh.http_proxy_user}" if ssh.http_proxy_user else ""
        place = proxy.removeprefix("http://").rstrip("/")
        options.append(f"-o {shlex.quote(f'ProxyCommand=nc -X connect -x {place}{login} %h %p')}")
    return " ".join([*options, *([f"-o ProxyJump={jump}"] if jump else [])])


def _path(folder: Path, text: str) -> str:
    return str((folder / places.expanded(text)).absolute())


def _ini(everything: Mapping[str, Any]) -> str:
    lines: list[str] = []
    for name, group in everything["children"].items():
        lines += [f"[{name}]" if "hosts" in group else f"[{name}:children]"]
        lines += [
            " ".join([host, *(f"{key}={shlex.quote(_value(one))}" for key, one in own.items())]) for host, own in _members(group)
        ]
        lines += [*group.get("children", {}), ""]
    lines += ["[all:vars]", *(f"{key}={_value(one)}" for key, one in everything["vars"].items())]
    return "\n".join(lines) + "\n"


def _value(one: Any) -> str:
    """A value of an INI file, where Ansible takes `580.10` for a number and `[1]` for a list unless they stand in quotes."""
    try:
        ast.literal_eval(str(one))
    except (ValueError, SyntaxError):
        return str(one)
    return json.dumps(one) if isinstance(one, str) else str(one)


def _members(group: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return list(group.get("hosts", {}).items())


def _answer(everything: Mapping[str, Any]) -> dict[str, Any]:
    """What `--list` of a dynamic inventory prints."""
    children = everything["children"]
    hosts = {host: own for group in children.values() for host, own in _members(group)}
    groups = {name: {key: list(group[key]) for key in ("hosts", "children") if key in group} for name, group in children.items()}
    return {"_meta": {"hostvars": hosts}, "all": {"children": list(children), "vars": dict(everything["vars"])}, **groups}
