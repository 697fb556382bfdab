"""Enrol host keys: scan the hosts of a spec, compare with a known_hosts file, and tell which keys may be written."""

import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from steps.clients.ssh import configuration, proxies
from steps.contract.host_play import HttpProxy, Jump, PlayHost, through
from workflows import user_paths
from workflows.engines import run_secrets
from workflows.host_keys import key_scan, known_hosts
from workflows.host_keys.known_hosts import KnownKeys
from workflows.host_keys.model import Key, KeyState, ScannedKey, place
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.machines import Machine
from workflows.stages.host_access import SSH_PROXY_PASSWORD, USERS_KNOWN_HOSTS, secret_file


class NoSuchHost(ValueError):
    """Error for a host whose key is to be replaced, but which the spec does not have."""

    hint = "name a host of the spec, or its address"


class NoOpenSsh(ValueError):
    """Error for a program of the OpenSSH client that this machine lacks."""

    hint = "install the OpenSSH client (openssh-client, openssh-clients)"


@dataclass(frozen=True, kw_only=True)
class ScanTargets:
    """The hosts to scan, private keys and proxy passwords (by name) to reach them, and the known_hosts file to compare with."""

    hosts: tuple[PlayHost, ...]
    keys: Mapping[str, Path]
    passwords: Mapping[str, bytes]
    file: Path


def scan_targets(spec: ClusterSpec, folder: Path, out: Path | None) -> ScanTargets:
    """Return a spec's hosts as SSH reaches them, and the known_hosts file: `out`, else the spec's, else the user's.

    Relative paths of the spec start from `folder`. Raises SecretMissing if the password of the HTTP proxy is not on this machine.
    """
    ssh = spec.ssh
    key = str((folder / user_paths.expand_home(ssh.key.file)).absolute()) if ssh.key and ssh.key.file else ""
    named = folder / user_paths.expand_home(ssh.known_hosts) if ssh.known_hosts else user_paths.expand_home(USERS_KNOWN_HOSTS)
    passwords = {}
    if ssh.http_proxy_password:
        password_file = secret_file(SSH_PROXY_PASSWORD, ssh.http_proxy_password)
        passwords[SSH_PROXY_PASSWORD] = run_secrets.read_secret(password_file, folder, os.environ)
    return ScanTargets(
        hosts=tuple(_host(spec, machine, key) for machine in spec.machines),
        keys={key: Path(key)} if key else {},
        passwords=passwords,
        file=(out or named).absolute(),
    )


def _host(spec: ClusterSpec, machine: Machine, key: str) -> PlayHost:
    ssh = spec.ssh
    jumps, url = machine.ssh_jump or ssh.jump_host or "", machine.ssh_http_proxy or ssh.http_proxy or ""
    before = HttpProxy.of(url, ssh.http_proxy_user or "", SSH_PROXY_PASSWORD if ssh.http_proxy_user else "") if url else None
    jump, proxy = through(Jump.of(jumps, key) if jumps else None, before)
    return PlayHost(
        name=machine.name,
        address=machine.address,
        port=machine.ssh_port or ssh.port,
        user=machine.ssh_user or ssh.user,
        key_path=key,
        jump=jump,
        proxy=proxy,
    )


def scan_host_keys(targets: ScanTargets) -> tuple[ScannedKey, ...]:
    """Scan all jump hosts, then all hosts; return their keys with states according to known_hosts. Raises NoOpenSsh."""
    if missing := [name for name in ("ssh", "ssh-keyscan", "ssh-keygen") if not shutil.which(name)]:
        raise NoOpenSsh(f"host keys are read by OpenSSH, and this machine has no {missing[0]}")
    jumps = configuration.jumps(targets.hosts)
    with tempfile.TemporaryDirectory(prefix="bringup-host-keys-") as folder:
        return _Look(targets, jumps, Path(folder)).all()


class _Look:
    """One scan of all hosts.

    `_believed` is a known_hosts file to which keys of jump hosts are added, to reach the hosts behind them.
    """

    def __init__(self, targets: ScanTargets, jumps: Sequence[Jump], folder: Path) -> None:
        self._targets, self._jumps = targets, jumps
        self._believed = folder / "known_hosts"
        self._believed.write_bytes(targets.file.read_bytes() if targets.file.is_file() else b"")
        self._folder = folder
        commands = proxies.commands(folder, targets.hosts, targets.passwords)
        keys = _linked(targets.keys, folder)
        self._through = key_scan.SshScan(folder=folder, hosts=targets.hosts, keys=keys, known=self._believed, proxies=commands)
        self._known = known_hosts.look_up(targets.file, [*map(place, jumps), *map(place, targets.hosts)])

    def all(self) -> tuple[ScannedKey, ...]:
        scanned: list[ScannedKey] = []
        names = {jump: f"bringup-jump-{number}" for number, jump in enumerate(self._jumps)}
        for depth in sorted({len(configuration.chain(jump)) for jump in self._jumps}):
            level = {place(jump): (jump, names[jump]) for jump in self._jumps if len(configuration.chain(jump)) == depth}
            rows = self._rows(level, dict.fromkeys(level, "jump host"))
            with self._believed.open("a") as file:
                file.writelines(
                    f"{row.place} {row.key.kind} {row.key.blob}\n" for row in rows if row.key and row.state is KeyState.NEW
                )
            scanned += rows
        hosts = {place(host): (host, host.name) for host in self._targets.hosts}
        return (*scanned, *self._rows(hosts, {name: host.name for name, (host, _) in hosts.items()}))

    def _rows(self, hosts: Mapping[str, tuple[PlayHost | Jump, str]], called: Mapping[str, str]) -> list[ScannedKey]:
        """Return the keys of hosts behind the same number of jumps.

        `hosts` maps known_hosts name to host and name in SSH's configuration.
        """
        answers = {
            **key_scan.scan_directly(host for host, _ in hosts.values() if not key_scan.is_behind(host)),
            **self._through.keys_of({name: alias for name, (host, alias) in hosts.items() if key_scan.is_behind(host)}),
        }
        states = {name: self._known[name].states(answers[name]) for name in hosts}
        doubtful = {
            name: alias
            for name, (_, alias) in hosts.items()
            if self._known[name].authorities and not any(state in (KeyState.SAME, KeyState.REVOKED) for _, state in states[name])
        }
        certified = self._through.accepted(doubtful, self._believed)
        scanned: list[ScannedKey] = []
        for name, (access, _) in hosts.items():
            silent = self._silent(access)
            scanned += _of_host(called[name], name, states[name], self._known[name], certified.get(name), silent)
        return scanned

    def _silent(self, access: PlayHost | Jump) -> str:
        before = access.jump.address if access.jump else access.proxy.url if access.proxy else ""
        reason = f"no host key came from port {access.port}" + (f" through {before}" if before else "")
        return proxies.failure_of(self._folder, access) or reason


def _linked(keys: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """Return links in `folder` to the private keys, because a path with a space would make the whole SSH configuration invalid."""
    links = {}
    for number, (name, path) in enumerate(keys.items()):
        links[name] = folder / f"key{number}"
        links[name].symlink_to(path)
    return links


def _of_host(
    host: str, name: str, states: Sequence[tuple[Key, KeyState]], known: KnownKeys, certified: bool | None, silent: str
) -> list[ScannedKey]:
    if certified:
        return [ScannedKey(host=host, place=name, state=KeyState.CERTIFIED, key=known.authorities[0], said="key of the CA")]
    if not states:
        return [ScannedKey(host=host, place=name, state=KeyState.SILENT, said=silent)]
    remark = "" if certified is None else "no certificate that the CA in known_hosts vouches for"
    return [ScannedKey(host=host, place=name, state=state, key=key, said=remark) for key, state in states]


def replaceable_places(targets: ScanTargets, named: Collection[str]) -> set[str]:
    """Return the known_hosts names of the hosts that the user named, by name or address. Raises NoSuchHost."""
    names = {host.name: place(host) for host in targets.hosts} | {host.address: place(host) for host in targets.hosts}
    names |= {jump.address: place(jump) for jump in configuration.jumps(targets.hosts)}
    if unknown := [name for name in named if name not in names]:
        raise NoSuchHost(f"there is no host {unknown[0]} to replace the key of")
    return {names[name] for name in named}


def refused_rows(rows: Iterable[ScannedKey], replace: Collection[str]) -> list[ScannedKey]:
    """Return the scanned keys that must not be written: revoked ones, and changed ones of hosts that the user did not name."""
    return [row for row in rows if row.state is KeyState.REVOKED or (row.state is KeyState.CHANGED and row.place not in replace)]


def writable_rows(rows: Iterable[ScannedKey], replace: Collection[str]) -> list[ScannedKey]:
    """Return the scanned keys to write after confirmation: new ones, and changed ones of hosts that the user named."""
    return [row for row in rows if row.state is KeyState.NEW or (row.state is KeyState.CHANGED and row.place in replace)]
