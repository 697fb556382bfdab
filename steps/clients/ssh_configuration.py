"""An SSH configuration of our own: how each host is reached, through which others, and whose keys are believed. Pure."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from steps.contract.play import Jump, PlayHost

COMMON = """Host *
  UserKnownHostsFile {known}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking {check}
  LogLevel ERROR
  BatchMode yes
  ConnectTimeout 10
  ServerAliveInterval 5
  ServerAliveCountMax 3
"""
"""Holds for jump hosts too. ServerAlive ends a dead connection after 15 s, also one that a master holds (ssh_ansible.md)."""


def configuration(hosts: Iterable[PlayHost], keys: Mapping[str, Path], *, known: str, check: str) -> str:
    """The file. `keys` says where the private key of each `key_path` lies now, `known` which files hold host keys, `check` is SSH's
    StrictHostKeyChecking. Jump hosts get the same options and key checks as the hosts behind them."""
    members = tuple(hosts)
    aliases = {jump: f"bringup-jump-{number}" for number, jump in enumerate(jumps(members))}
    sections = [_section(alias, jump, keys, aliases) for jump, alias in aliases.items()]
    sections += [_section(host.name, host, keys, aliases) for host in members]
    return "\n".join([*sections, COMMON.format(known=known, check=check)])


def jumps(hosts: Iterable[PlayHost]) -> tuple[Jump, ...]:
    """Every host that these are reached through, each once, the nearest first."""
    found: dict[Jump, int] = {}
    for host in hosts:
        for jump in chain(host):
            found[jump] = len(chain(jump))
    return tuple(sorted(found, key=lambda jump: (found[jump], jump.address, jump.port, jump.user)))


def chain(access: PlayHost | Jump) -> tuple[Jump, ...]:
    """The hosts that one is reached through, the nearest last."""
    return () if access.jump is None else (access.jump, *chain(access.jump))


def _section(alias: str, access: PlayHost | Jump, keys: Mapping[str, Path], aliases: Mapping[Jump, str]) -> str:
    lines = [f"Host {alias}", f"  HostName {access.address}", f"  Port {access.port}", f"  User {access.user}"]
    if access.key_path:
        lines += [f"  IdentityFile {keys[access.key_path]}", "  IdentitiesOnly yes"]
    if access.jump is not None:
        lines.append(f"  ProxyJump {aliases[access.jump]}")
    return "\n".join(lines)
