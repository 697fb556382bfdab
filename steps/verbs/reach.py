"""How a play reaches its hosts: the SSH part of a task's arguments and what becomes of it in the request to Ansible."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.fleet import Host
from steps.contract.play import HostKeys, Jump, PlayHost, PlayRequest
from steps.verbs.context import Context

FORKS = 50


class Ssh(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How hosts are reached: paths are names below the secrets folder."""

    user: str = "root"
    port: int = 22
    key: str = ""
    known_hosts: str = ""
    host_keys: HostKeys = HostKeys.STRICT
    jump: Jump | None = None
    sudo_password: str = ""


def request(
    context: Context,
    playbook: str,
    ssh: Ssh,
    hosts: Iterable[Host],
    *,
    variables: Mapping[str, Any] | None = None,
    secret_variables: Mapping[str, str] | None = None,
    forks: int = FORKS,
) -> PlayRequest:
    """The play of a playbook on these hosts. `secret_variables` are variables whose values lie in secret files: the run's own
    win over the secrets folder, and those that do not exist are left out."""
    secrets = context.environment.secrets
    path = {name: str(secrets / name) if name else "" for name in (ssh.key, ssh.known_hosts)}
    named = dict(secret_variables or {}) | ({"ansible_become_password": ssh.sudo_password} if ssh.sudo_password else {})
    return PlayRequest(
        playbook=playbook,
        hosts=tuple(_host(host, ssh, path[ssh.key], _jump(ssh, secrets)) for host in hosts),
        variables=dict(variables or {}),
        secret_variables=_existing(context, named),
        known_hosts=path[ssh.known_hosts],
        host_keys=ssh.host_keys,
        forks=forks,
        timeout_seconds=context.task.deadline_seconds,
    )


def _host(host: Host, ssh: Ssh, key_path: str, jump: Jump | None) -> PlayHost:
    return PlayHost(
        name=host.name,
        address=host.address,
        port=int(host.variables.get("ssh_port", ssh.port)),
        user=host.variables.get("ssh_user", ssh.user),
        key_path=key_path,
        jump=jump,
        groups=(host.group, host.role),
        variables=dict(host.variables),
    )


def _jump(ssh: Ssh, secrets: Path) -> Jump | None:
    if ssh.jump is None or not ssh.jump.key_path:
        return ssh.jump
    return msgspec.structs.replace(ssh.jump, key_path=str(secrets / ssh.jump.key_path))


def _existing(context: Context, named: Mapping[str, str]) -> dict[str, str]:
    """Variable → file for all that exist."""
    folders = (context.run_secrets, context.environment.secrets)
    found = {
        variable: next((folder / name for folder in folders if (folder / name).exists()), None) for variable, name in named.items()
    }
    return {variable: str(path) for variable, path in found.items() if path is not None}
