"""Plays by which commands about factories ask or try machines over SSH, outside of any run."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from steps.clients.ansible import playing
from steps.clients.private_folder import private_folder
from steps.contract.fleet import Host
from steps.contract.host_play import PYTHON, HostKeys, HostOutcome, HttpProxy, Jump, PlayHost, PlayRequest, through
from workflows.engines.run_secrets import read_secrets
from workflows.plan import run_folders
from workflows.spec import ClusterSpec
from workflows.stages import host_access

_NEEDED = (host_access.SSH_KEY, host_access.KNOWN_HOSTS, host_access.SUDO_PASSWORD, host_access.SSH_PROXY_PASSWORD)


def play(
    spec: ClusterSpec,
    folder: Path,
    playbook: str,
    seconds: int,
    names: Collection[str] = (),
    variables: Mapping[str, Any] | None = None,
) -> tuple[HostOutcome, ...]:
    """Run a playbook on machines of a spec, all or those with the `names`; relative paths of the spec start from `folder`.

    Raises SecretMissing without the SSH key, and BadTask without known host keys.
    """
    files = [file for file in host_access.secret_files(spec) if file.name in _NEEDED]
    with private_folder() as secrets:
        for name, data in read_secrets(files, folder, os.environ).items():
            (secrets / name).write_bytes(data)
            (secrets / name).chmod(0o600)
        (secrets / "met").mkdir()
        return playing.play(request(spec, secrets, playbook, seconds, names, variables)).hosts


def request(
    spec: ClusterSpec,
    secrets: Path,
    playbook: str,
    seconds: int,
    names: Collection[str] = (),
    variables: Mapping[str, Any] | None = None,
) -> PlayRequest:
    """Return the play on machines of a spec; `secrets` is the folder with the files that SSH needs."""
    password = secrets / host_access.SUDO_PASSWORD
    known = secrets / host_access.KNOWN_HOSTS
    chosen = (host for host in run_folders.hosts(spec.machines) if not names or host.name in names)
    return PlayRequest(
        playbook=playbook,
        hosts=tuple(_play_host(spec, host, secrets) for host in chosen),
        variables=dict(variables or {}),
        secret_variables={"ansible_become_password": str(password)} if spec.ssh.sudo_password else {},
        known_hosts=str(known) if known.exists() else "",
        host_keys=HostKeys(spec.ssh.host_key_policy.replace("_", "-")),
        met=str(secrets / "met"),
        post_quantum=spec.ssh.post_quantum,
        timeout_seconds=seconds,
        idle_timeout_seconds=seconds,
    )


def _play_host(spec: ClusterSpec, host: Host, secrets: Path) -> PlayHost:
    """Return the way to a machine; its group may have a login, jump hosts and a proxy of its own."""
    ssh, own = spec.ssh, host.variables
    key = str(secrets / host_access.SSH_KEY) if ssh.key else ""
    chain, url = own.get("ssh_jump") or ssh.jump_host, own.get("ssh_http_proxy") or ssh.http_proxy
    password = str(secrets / host_access.SSH_PROXY_PASSWORD) if ssh.http_proxy_password else ""
    proxy = HttpProxy.of(url, ssh.http_proxy_user or "", password) if url else None
    jump, proxy = through(Jump.of(chain, key) if chain else None, proxy)
    return PlayHost(
        name=host.name,
        address=host.address,
        port=int(own.get("ssh_port", ssh.port)),
        user=own.get("ssh_user", ssh.user),
        key_path=key,
        jump=jump,
        proxy=proxy,
        python=own.get("python", PYTHON),
    )
