"""SSH settings of a task's plays, and the request to Ansible that is made of them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract import run_records
from steps.contract.fleet import Host
from steps.contract.host_play import PYTHON, HostKeys, HttpProxy, Jump, PlayHost, PlayRequest, RoleArchive, through
from steps.errors import BadTask
from steps.runtime.context import Context

FORKS = 50
"""Default forks of a play, a whole shard. 50 unchanged hosts took 15.1 s with 10, 12.2 s with 50 (tests/bench, row `forks`)."""
PROXY = "bringup_proxy"
"""Variable of every play with the proxy environment of the hosts, if the spec names a proxy."""
PROXY_USER, PROXY_PASSWORD = "bringup_proxy_user", "bringup_proxy_password"
"""Variables with the login for the proxy; the password's value is in a secret file."""


class Ssh(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """SSH settings in a task's arguments. Paths are names below the secrets folder.

    `proxy` is the environment by which hosts reach the outside; every play gets it as the variable `bringup_proxy`, and the login
    for it as two more. `http_proxy` is the URL of a proxy for SSH itself, before a jump host if there is one; its login is also
    used for the proxies of groups. `post_quantum` keeps SSH's own order of key exchanges.
    """

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
    """Return the request to play a playbook on these hosts. Tasks may be delegated to `helpers`.

    `secret_variables` are variables with values in secret files: the run's own secrets take precedence over the secrets folder, and
    files that do not exist are left out.
    """
    secrets = context.environment.secrets
    named = dict(secret_variables or {}) | ({"ansible_become_password": ssh.sudo_password} if ssh.sudo_password else {})
    proxied = ((PROXY, ssh.proxy), (PROXY_USER, ssh.proxy_user))
    named |= {PROXY_PASSWORD: ssh.proxy_password} if ssh.proxy_password else {}

    return PlayRequest(
        playbook=playbook,
        hosts=tuple(_host(host, ssh, secrets) for host in hosts),
        helpers=tuple(_host(host, ssh, secrets) for host in helpers),
        variables={**(variables or {}), **{name: value for name, value in proxied if value}},
        secret_variables=_existing(context, named),
        known_hosts=_path(secrets, ssh.known_hosts),
        host_keys=ssh.host_keys,
        met=_first_contacts(context) if ssh.host_keys is HostKeys.ACCEPT_NEW else "",
        post_quantum=ssh.post_quantum,
        forks=forks,
        together=together,
        # the file of a role is beside the tasks
        role=role and msgspec.structs.replace(role, file=str(context.environment.tasks / role.file)),
        timeout_seconds=context.task.deadline_seconds,
    )


def _first_contacts(context: Context) -> str:
    """Return the store folder of host keys from first contacts, shared by all tasks of all runs about this cluster.

    Raises BadTask before task `open` has stored the run's header.
    """
    header = context.store.read(run_records.header_key(context.environment.run))
    if header is None:
        raise BadTask("a first contact needs a run that says which cluster it is about", hint="its task `open` comes first")
    return str(context.store.folder(run_records.met_folder(run_records.decode_header(header).cluster)))


def _path(secrets: Path, name: str) -> str:
    return str(secrets / name) if name else ""


def _host(host: Host, ssh: Ssh, secrets: Path) -> PlayHost:
    # a host group may have its own jump hosts and proxy
    own_jump, url = host.variables.get("ssh_jump", ""), host.variables.get("ssh_http_proxy", ssh.http_proxy)
    jump = Jump.of(own_jump, _path(secrets, ssh.key)) if own_jump else _jump(ssh.jump, secrets)
    proxy = HttpProxy.of(url, ssh.http_proxy_user, _path(secrets, ssh.http_proxy_password)) if url else None
    jump, proxy = through(jump, proxy)
    return PlayHost(
        name=host.name,
        address=host.address,
        port=int(host.variables.get("ssh_port", ssh.port)),
        user=host.variables.get("ssh_user", ssh.user),
        key_path=_path(secrets, ssh.key),
        jump=jump,
        proxy=proxy,
        python=host.variables.get("python", PYTHON),
        groups=(host.group, host.role),
        variables=dict(host.variables),
    )


def _jump(jump: Jump | None, secrets: Path) -> Jump | None:
    """Return a chain of jump hosts with full paths of their keys."""
    if jump is None:
        return None
    return msgspec.structs.replace(jump, key_path=_path(secrets, jump.key_path), jump=_jump(jump.jump, secrets))


def _existing(context: Context, named: Mapping[str, str]) -> dict[str, str]:
    """Return those entries of variable → file name whose files exist, with the files' full paths."""
    folders = (context.run_secrets, context.environment.secrets)
    paths = {
        variable: next((folder / name for folder in folders if (folder / name).exists()), None) for variable, name in named.items()
    }
    return {variable: str(path) for variable, path in paths.items() if path is not None}
