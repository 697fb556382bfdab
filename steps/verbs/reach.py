"""How a play reaches its hosts: the SSH part of a task's arguments and what becomes of it in the request to Ansible."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract import run
from steps.contract.fleet import Host
from steps.contract.play import PYTHON, HostKeys, HttpProxy, Jump, PlayHost, PlayRequest, RoleArchive, through
from steps.errors import BadTask
from steps.verbs.context import Context

FORKS = 50
"""A shard at once: 50 unchanged hosts took 15.1 s with 10 forks, 13.7 s with 25, 12.2 s with 50 (tests/bench, row `forks`)."""
PROXY = "bringup_proxy"
"""Variable of every play: the environment by which hosts reach others, where the spec names a proxy."""
PROXY_USER, PROXY_PASSWORD = "bringup_proxy_user", "bringup_proxy_password"
"""Variables with the login that the proxy wants; the password's value lies in a secret file."""


class Ssh(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How hosts are reached: paths are names below the secrets folder. `proxy` is the environment by which they reach others:
    every play has it as the variable `bringup_proxy`, and as others the login that the proxy wants: a user, and a secret file.
    `http_proxy` is the URL of what SSH itself goes through, before a jump host if there is one; its login is that of the proxies of
    groups too. `post_quantum`: SSH's own order of key exchanges holds."""

    user: str = "root"
    port: int = 22
    key: str = ""
    known_hosts: str = ""
    host_keys: HostKeys = HostKeys.STRICT
    jump: Jump | None = None
    sudo_password: str = ""
    proxy: dict[str, str] = {}
    proxy_user: str = ""
    proxy_password: str = ""
    http_proxy: str = ""
    http_proxy_user: str = ""
    http_proxy_password: str = ""
    post_quantum: bool = False


def request(
    context: Context,
    playbook: str,
    ssh: Ssh,
    hosts: Iterable[Host],
    *,
    helpers: Iterable[Host] = (),
    variables: Mapping[str, Any] | None = None,
    secret_variables: Mapping[str, str] | None = None,
    forks: int = FORKS,
    role: RoleArchive | None = None,
    together: bool = False,
) -> PlayRequest:
    """The play of a playbook on these hosts; tasks may be delegated to `helpers`. `secret_variables` are variables whose values lie
    in secret files: the run's own win over the secrets folder, and those that do not exist are left out."""
    secrets = context.environment.secrets
    path = {name: str(secrets / name) if name else "" for name in (ssh.key, ssh.known_hosts)}
    named = dict(secret_variables or {}) | ({"ansible_become_password": ssh.sudo_password} if ssh.sudo_password else {})
    named |= {PROXY_PASSWORD: ssh.proxy_password} if ssh.proxy_password else {}
    way = _Through(ssh, secrets)
    return PlayRequest(
        playbook=playbook,
        hosts=tuple(_host(host, ssh, path[ssh.key], *way(host)) for host in hosts),
        helpers=tuple(_host(host, ssh, path[ssh.key], *way(host)) for host in helpers),
        variables={**(variables or {}), **_proxy(ssh)},
        secret_variables=_existing(context, named),
        known_hosts=path[ssh.known_hosts],
        host_keys=ssh.host_keys,
        met=_met(context) if ssh.host_keys is HostKeys.ACCEPT_NEW else "",
        post_quantum=ssh.post_quantum,
        forks=forks,
        together=together,
        role=_role(role, context),
        timeout_seconds=context.task.deadline_seconds,
    )


def _met(context: Context) -> str:
    """Where all tasks of all runs about this cluster keep the keys of first contacts: in the store, which pods share too."""
    header = context.store.read(run.header_key(context.environment.run))
    if header is None:
        raise BadTask("a first contact needs a run that says which cluster it is about", hint="its task `open` comes first")
    return str(context.store.folder(run.met_folder(run.decode_header(header).cluster)))


def _proxy(ssh: Ssh) -> dict[str, Any]:
    return {name: value for name, value in ((PROXY, ssh.proxy), (PROXY_USER, ssh.proxy_user)) if value}


def _host(host: Host, ssh: Ssh, key_path: str, jump: Jump | None, proxy: HttpProxy | None) -> PlayHost:
    return PlayHost(
        name=host.name,
        address=host.address,
        port=int(host.variables.get("ssh_port", ssh.port)),
        user=host.variables.get("ssh_user", ssh.user),
        key_path=key_path,
        jump=jump,
        proxy=proxy,
        python=host.variables.get("python", PYTHON),
        groups=(host.group, host.role),
        variables=dict(host.variables),
    )


def _role(role: RoleArchive | None, context: Context) -> RoleArchive | None:
    """A role of the site with the path of its file, which lies beside the tasks."""
    return role and msgspec.structs.replace(role, file=str(context.environment.tasks / role.file))


class _Through:
    """What each host is reached through: its group's jump hosts and HTTP proxy, else those of all."""

    def __init__(self, ssh: Ssh, secrets: Path) -> None:
        self._key = str(secrets / ssh.key) if ssh.key else ""
        self._all = _jump(ssh.jump, secrets)
        self._ssh = ssh
        self._password = str(secrets / ssh.http_proxy_password) if ssh.http_proxy_password else ""

    def __call__(self, host: Host) -> tuple[Jump | None, HttpProxy | None]:
        own = host.variables.get("ssh_jump", "")
        jump = Jump.of(own, self._key) if own else self._all
        url = host.variables.get("ssh_http_proxy", self._ssh.http_proxy)
        proxy = HttpProxy.of(url, self._ssh.http_proxy_user, self._password) if url else None
        return through(jump, proxy)


def _jump(jump: Jump | None, secrets: Path) -> Jump | None:
    """A jump host, and those before it, with the paths of their keys."""
    if jump is None:
        return None
    path = str(secrets / jump.key_path) if jump.key_path else ""
    return msgspec.structs.replace(jump, key_path=path, jump=_jump(jump.jump, secrets))


def _existing(context: Context, named: Mapping[str, str]) -> dict[str, str]:
    """Variable → file for all that exist."""
    folders = (context.run_secrets, context.environment.secrets)
    found = {
        variable: next((folder / name for folder in folders if (folder / name).exists()), None) for variable, name in named.items()
    }
    return {variable: str(path) for variable, path in found.items() if path is not None}
