"""Export a spec as an Ansible inventory in YAML, INI or JSON: hosts, groups, access, topology and GPUs."""

import ast
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from workflows import user_paths
from workflows.inventory import machine_variables
from workflows.inventory.connection import SSH_PROXY
from workflows.inventory.model import BadInventory
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.machines import Machine

Form = Literal["yaml", "ini", "json"]
_ANSIBLES = {"all", "ungrouped"}
ROLES = {"server": "rke2_servers", "agent": "rke2_agents"}
"""Inventory group of each role, which is added to the groups of the spec."""


def export_inventory(spec: ClusterSpec, folder: Path) -> dict[str, Any]:
    """Return a spec's inventory as data in the form of a YAML inventory. Relative paths of the spec start from `folder`.

    Raises BadInventory for a group name that has a meaning of its own in Ansible.
    """
    if taken := sorted(_ANSIBLES & set(spec.hosts)):
        raise BadInventory(
            f"hosts.{taken[0]}: Ansible has a group {taken[0]} of its own", "give the group another name in the spec"
        )
    children: dict[str, Any] = {name: {"hosts": {}} for name in spec.hosts}
    for machine in spec.machines:
        children[machine.group]["hosts"][machine.name] = _variables(spec, machine, folder)
    for role, name in ROLES.items():
        members = [group for group, host_group in spec.hosts.items() if host_group.role == role and group != name]
        if members and name not in children:
            children[name] = {"children": {member: {} for member in members}}
    return {"all": {"vars": _common(spec, folder), "children": children}}


def render_inventory(data: Mapping[str, Any], form: Form) -> str:
    """Return an inventory as text. The JSON form is what a dynamic inventory prints."""
    if form == "yaml":
        return yaml.safe_dump(dict(data), sort_keys=False, width=120)
    return _ini(data["all"]) if form == "ini" else json.dumps(_answer(data["all"]), indent=2) + "\n"


def _variables(spec: ClusterSpec, machine: Machine, folder: Path) -> dict[str, Any]:
    named: dict[str, Any] = {
        "ansible_host": machine.address if machine.address != machine.name else "",
        "ansible_user": machine.ssh_user,
        "ansible_port": machine.ssh_port,
        "ansible_python_interpreter": machine.python,
        "ansible_ssh_common_args": _arguments(spec, folder, machine) if machine.ssh_jump or machine.ssh_http_proxy else "",
        SSH_PROXY: machine.ssh_http_proxy,
        "ansible_become": machine.ssh_user != "root" if machine.ssh_user else "",
        **machine_variables.topology_variables_of(machine),
        **machine_variables.host_gpu_variables(spec, machine),
    }
    return {name: value for name, value in named.items() if value or value is False or name == machine_variables.COUNT}


def _common(spec: ClusterSpec, folder: Path) -> dict[str, Any]:
    """Return the variables that all hosts share. Secrets are left out: only the path of the SSH key is included."""
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
        **machine_variables.fleet_gpu_variables(spec),
    }


def _arguments(spec: ClusterSpec, folder: Path, machine: Machine | None = None) -> str:
    """Return SSH arguments for all hosts, or for one machine that has its own jump host or proxy.

    SSH uses the first of several ProxyJump options, so a machine with its own jump host gets all arguments for itself. An HTTP
    proxy is reached by OpenBSD's nc, which asks for the password of a login. A proxy before a jump host must be configured in
    ~/.ssh/config.
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
    return str((folder / user_paths.expand_home(text)).absolute())


def _ini(everything: Mapping[str, Any]) -> str:
    lines: list[str] = []
    for name, group in everything["children"].items():
        lines.append(f"[{name}]" if "hosts" in group else f"[{name}:children]")
        for host, variables in group.get("hosts", {}).items():
            lines.append(" ".join([host, *(f"{key}={shlex.quote(_value(value))}" for key, value in variables.items())]))
        lines += [*group.get("children", {}), ""]
    lines += ["[all:vars]", *(f"{key}={_value(value)}" for key, value in everything["vars"].items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """Return a value for an INI file, in quotes where Ansible would read a number (`580.10`) or a list (`[1]`)."""
    try:
        ast.literal_eval(str(value))
    except (ValueError, SyntaxError):
        return str(value)
    return json.dumps(value) if isinstance(value, str) else str(value)


def _answer(everything: Mapping[str, Any]) -> dict[str, Any]:
    """Return an inventory in the form that a dynamic inventory prints for `--list`."""
    children = everything["children"]
    hosts = {host: variables for group in children.values() for host, variables in group.get("hosts", {}).items()}
    groups = {name: {key: list(group[key]) for key in ("hosts", "children") if key in group} for name, group in children.items()}
    return {"_meta": {"hostvars": hosts}, "all": {"children": list(children), "vars": dict(everything["vars"])}, **groups}
