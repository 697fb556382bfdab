"""Which keys the hosts of a spec show, and what their known_hosts file says of each: looked at first, written after a yes."""

import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from steps.clients.ssh import configuration, proxies
from steps.contract.play import HttpProxy, Jump, PlayHost, through
from workflows import places
from workflows.engines import inputs
from workflows.host_keys import known, scan
from workflows.host_keys.known import Known
from workflows.host_keys.model import Key, Seen, State, place
from workflows.spec.cluster import ClusterSpec
from workflows.spec.machines import Machine
from workflows.stages.access import SSH_PROXY_PASSWORD, USERS_KNOWN_HOSTS, secret_file


class NoSuchHost(ValueError):
    """A host to be replaced that the spec does not have."""

    hint = "name a host of the spec, or its address"


class NoOpenSsh(ValueError):
    """A program of OpenSSH that this machine lacks."""

    hint = "install the OpenSSH client (openssh-client, openssh-clients)"


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Who is asked, and which file is looked into."""

    hosts: tuple[PlayHost, ...]
    keys: Mapping[str, Path]
    passwords: Mapping[str, bytes]
    file: Path


def fleet(spec: ClusterSpec, folder: Path, out: Path | None) -> Fleet:
    """The hosts of a spec as SSH reaches them. `folder` is the spec's, where its relative paths begin.

    Raises SecretMissing where the password of the HTTP proxy before them is not on this machine.
    """
    ssh = spec.ssh
    key = str((folder / places.expanded(ssh.key.file)).absolute()) if ssh.key and ssh.key.file else ""
    named = folder / places.expanded(ssh.known_hosts) if ssh.known_hosts else places.expanded(USERS_KNOWN_HOSTS)
    passwords = {}
    if ssh.http_proxy_password:
        wanted = secret_file(SSH_PROXY_PASSWORD, ssh.http_proxy_password)
        passwords[SSH_PROXY_PASSWORD] = inputs.secret(wanted, folder, os.environ)
    return Fleet(
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


def look(asked: Fleet) -> tuple[Seen, ...]:
    """Ask every host, jump hosts first, and compare. Raises NoOpenSsh."""
    if missing := [name for name in ("ssh", "ssh-keyscan", "ssh-keygen") if not shutil.which(name)]:
        raise NoOpenSsh(f"host keys are read by OpenSSH, and this machine has no {missing[0]}")
    jumps = configuration.jumps(asked.hosts)
    with tempfile.TemporaryDirectory(prefix="bringup-host-keys-") as folder:
        return _Look(asked, jumps, Path(folder)).all()


class _Look:
    """One look at all hosts. `believed` is the file with the new keys of jump hosts, asked before what lies behind them."""

    def __init__(self, asked: Fleet, jumps: Sequence[Jump], folder: Path) -> None:
        self._asked, self._jumps = asked, jumps
        self._believed = folder / "known_hosts"
        self._believed.write_bytes(asked.file.read_bytes() if asked.file.is_file() else b"")
        self._folder = folder
        commands = proxies.commands(folder, asked.hosts, asked.passwords)
        keys = _linked(asked.keys, folder)
        self._through = scan.Through(folder=folder, hosts=asked.hosts, keys=keys, known=self._believed, proxies=commands)
        self._known = known.look_up(asked.file, [*map(place, jumps), *map(place, asked.hosts)])

    def all(self) -> tuple[Seen, ...]:
        found: list[Seen] = []
        names = {jump: f"bringup-jump-{number}" for number, jump in enumerate(self._jumps)}
        for depth in sorted({len(configuration.chain(jump)) for jump in self._jumps}):
            level = {place(jump): (jump, names[jump]) for jump in self._jumps if len(configuration.chain(jump)) == depth}
            rows = self._rows(level, dict.fromkeys(level, "jump host"))
            with self._believed.open("a") as file:
                file.writelines(
                    f"{row.place} {row.key.kind} {row.key.blob}\n" for row in rows if row.key and row.state is State.NEW
                )
            found += rows
        hosts = {place(host): (host, host.name) for host in self._asked.hosts}
        return (*found, *self._rows(hosts, {name: host.name for name, (host, _) in hosts.items()}))

    def _rows(self, hosts: Mapping[str, tuple[PlayHost | Jump, str]], called: Mapping[str, str]) -> list[Seen]:
        """What is found of hosts of one level; each with its name in the SSH configuration."""
        answers = {
            **scan.direct(host for host, _ in hosts.values() if not scan.is_behind(host)),
            **self._through.keys_of({name: alias for name, (host, alias) in hosts.items() if scan.is_behind(host)}),
        }
        states = {name: self._known[name].states(answers[name]) for name in hosts}
        doubtful = {
            name: alias
            for name, (_, alias) in hosts.items()
            if self._known[name].authorities and not any(state in (State.SAME, State.REVOKED) for _, state in states[name])
        }
        certified = self._through.accepted(doubtful, self._believed)
        return [
            row
            for name in hosts
            for row in _of_host(
                called[name], name, states[name], self._known[name], certified.get(name), self._silent(hosts[name][0])
            )
        ]

    def _silent(self, access: PlayHost | Jump) -> str:
        """What there is to say of a host without an answer."""
        before = access.jump.address if access.jump else access.proxy.url if access.proxy else ""
        said = f"no host key came from port {access.port}" + (f" through {before}" if before else "")
        return proxies.told(self._folder, access) or said


def _linked(keys: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """The same keys by names that SSH's configuration takes: one with a blank in its path would make all of it void."""
    found = {}
    for number, (name, path) in enumerate(keys.items()):
        found[name] = folder / f"key{number}"
        found[name].symlink_to(path)
    return found


def _of_host(
    host: str, name: str, states: Sequence[tuple[Key, State]], told: Known, certified: bool | None, silent: str
) -> list[Seen]:
    if certified:
        return [Seen(host=host, place=name, state=State.CERTIFIED, key=told.authorities[0], said="key of the CA")]
    if not states:
        return [Seen(host=host, place=name, state=State.SILENT, said=silent)]
    said = "" if certified is None else "no certificate that the CA in known_hosts vouches for"
    return [Seen(host=host, place=name, state=state, key=key, said=said) for key, state in states]


def replaced(asked: Fleet, named: Iterable[str]) -> set[str]:
    """Places of the hosts whose keys may be replaced. Raises NoSuchHost."""
    wanted = list(named)
    every = {access: place(access) for access in (*configuration.jumps(asked.hosts),)}
    names = {host.name: place(host) for host in asked.hosts} | {host.address: place(host) for host in asked.hosts}
    names |= {jump.address: where for jump, where in every.items()}
    for name in wanted:
        if name not in names:
            raise NoSuchHost(f"there is no host {name} to replace the key of")
    return {names[name] for name in wanted}


def refused(rows: Iterable[Seen], replace: Collection[str]) -> list[Seen]:
    """Rows that nobody may write: changed keys whose host was not named, and revoked ones."""
    return [row for row in rows if row.state is State.REVOKED or (row.state is State.CHANGED and row.place not in replace)]


def to_write(rows: Iterable[Seen], replace: Collection[str]) -> list[Seen]:
    """Rows to be written after a yes."""
    return [row for row in rows if row.state is State.NEW or (row.state is State.CHANGED and row.place in replace)]


def write(file: Path, rows: Iterable[Seen], replace: Iterable[str]) -> None:
    """Write these keys; what the file has of the places to replace goes."""
    known.write(file, [(row.place, row.key) for row in rows if row.key is not None], replace)
