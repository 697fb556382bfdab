"""Machines of a factory on which somebody works: a slurmd, or processes of users, because of which it is not rebuilt."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.clients.ansible import playing
from steps.clients.private_folder import private_folder
from steps.contract import plain_text
from steps.contract.fleet import Host
from steps.contract.host_play import PYTHON, HostKeys, HostOutcome, HttpProxy, Jump, PlayHost, PlayRequest, through
from workflows.app.factories.rebuild_refusals import Refusal
from workflows.engines.run_secrets import read_secrets
from workflows.plan import run_folders
from workflows.spec import ClusterSpec
from workflows.stages import host_access

PLAYBOOK = "host_processes"
SECONDS = 120
"""Time limit to ask all machines; one answers within seconds."""
_MOST_USERS = 5
_NEEDED = (host_access.SSH_KEY, host_access.KNOWN_HOSTS, host_access.SUDO_PASSWORD, host_access.SSH_PROXY_PASSWORD)


class HostProcesses(Struct, frozen=True):
    """Observation of module host_processes on one machine: does a slurmd run, and how many processes does each user have."""

    slurmd: bool
    users: dict[str, int] = {}


def ask(spec: ClusterSpec, folder: Path) -> list[Refusal]:
    """Ask all machines of a spec over SSH who works on them, and return the refusals. Relative paths start from `folder`.

    Raises SecretMissing without the SSH key, and BadTask without known host keys.
    """
    files = [file for file in host_access.secret_files(spec) if file.name in _NEEDED]
    with private_folder() as secrets:
        for name, data in read_secrets(files, folder, os.environ).items():
            (secrets / name).write_bytes(data)
            (secrets / name).chmod(0o600)
        (secrets / "met").mkdir()
        return [reason for outcome in playing.play(request(spec, secrets)).hosts for reason in refusals_of(outcome)]


def request(spec: ClusterSpec, secrets: Path) -> PlayRequest:
    """Return the play that asks the machines of a spec; `secrets` is the folder with the files that SSH needs."""
    password = secrets / host_access.SUDO_PASSWORD
    known = secrets / host_access.KNOWN_HOSTS
    return PlayRequest(
        playbook=PLAYBOOK,
        hosts=tuple(_play_host(spec, host, secrets) for host in run_folders.hosts(spec.machines)),
        secret_variables={"ansible_become_password": str(password)} if spec.ssh.sudo_password else {},
        known_hosts=str(known) if known.exists() else "",
        host_keys=HostKeys(spec.ssh.host_key_policy.replace("_", "-")),
        met=str(secrets / "met"),
        post_quantum=spec.ssh.post_quantum,
        timeout_seconds=SECONDS,
        idle_timeout_seconds=SECONDS,
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


def refusals_of(outcome: HostOutcome) -> Iterator[Refusal]:
    """Yield the reasons of one machine: its slurmd, each user with processes; or that it does not say, which an admin may force."""
    host, fix = outcome.host, "wait for their end, or take the machine out of the spec"
    try:
        seen = msgspec.convert(outcome.facts, HostProcesses)
    except msgspec.ValidationError:
        message = plain_text.line(outcome.message or "it has not answered")
        fix = 'repair it, or add --force "REASON"'
        yield Refusal(problem=f"{host} does not say whose processes run on it: {message}", fix=fix, forcible=True)
        return
    if seen.slurmd:
        fix_slurm = "drain the node in Slurm and stop slurmd, or take the machine out of the spec"
        yield Refusal(problem=f"{host} runs slurmd, so jobs may be on it", fix=fix_slurm)
    users = sorted(seen.users.items(), key=lambda entry: (-entry[1], entry[0]))
    for user, processes in users[:_MOST_USERS]:
        number = "1 process" if processes == 1 else f"{processes} processes"
        yield Refusal(problem=f"{host} runs {number} of user {plain_text.line(user)}", fix=fix)
    if (more := len(users) - _MOST_USERS) > 0:
        yield Refusal(problem=f"{host} runs processes of {plain_text.count(more, 'more user')}", fix=fix)
