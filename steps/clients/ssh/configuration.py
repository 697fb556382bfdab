"""An SSH configuration of our own: how each host is reached, through which others, whose keys are believed. Pure, but for `met`."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from steps.clients.ssh.met import Met
from steps.contract.play import HttpProxy, Jump, PlayHost

COMMON = """Host *
  UserKnownHostsFile {known}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking {check}
  LogLevel ERROR
  IgnoreUnknown LogVerbose
  LogVerbose packet.c:sshpkt_*fatal():*
  BatchMode yes
  ConnectTimeout 10
  ServerAliveInterval 5
  ServerAliveCountMax 3
{exchange}"""
"""Holds for jump hosts too. ServerAlive ends a dead connection after 15 s, also one that a master holds (ssh_ansible.md). SSH tells
why a connection ended (closed by the other end, no algorithm in common) as information, which LogLevel keeps quiet, as it does the
banners of sites: LogVerbose (OpenSSH 8.5) has it told all the same."""


SLOW_EXCHANGES = "sntrup761"
"""OpenSSH's first post-quantum key exchange: 80 ms of CPU a login, five times all the rest of it, and paid by one controller for
each of its hosts. From OpenSSH 9.9 on, both ends have mlkem768, which is post-quantum too and takes no time. Where one end is
older, having this one last means curve25519: as safe against whoever listens today, but a recorded session could be read with a
quantum computer one day. Who must exclude that has `ssh.post_quantum` in the spec, and pays the 80 ms."""


def key_exchanges(settings: str) -> tuple[str, ...]:
    """The key exchanges that this machine's SSH would offer, as `ssh -G` says, in their order, but the slow ones last: a host that
    allows nothing else is reached all the same. Empty where SSH does not say."""
    found = next((line.split()[1] for line in settings.splitlines() if line.startswith("kexalgorithms ")), "")
    return tuple(sorted(filter(None, found.split(",")), key=lambda name: name.startswith(SLOW_EXCHANGES)))


def configuration(
    hosts: Iterable[PlayHost],
    keys: Mapping[str, Path],
    *,
    known: str,
    check: str,
    proxies: Mapping[HttpProxy, str],
    exchanges: Iterable[str] = (),
    met: Met | None = None,
) -> str:
    """The file. `keys` says where the private key of each `key_path` lies now, `known` which files hold host keys, `check` is SSH's
    StrictHostKeyChecking (where there is `met`, it says both host by host), `exchanges` the key exchanges by preference. Jump hosts
    get the same options and key checks as the hosts behind them. `proxies` has the command that goes through each HTTP proxy."""
    members = tuple(hosts)
    aliases = {jump: f"bringup-jump-{number}" for number, jump in enumerate(jumps(members))}
    every: list[tuple[str, PlayHost | Jump]] = [(alias, jump) for jump, alias in aliases.items()]
    every += [(host.name, host) for host in members]
    sections = [
        "\n".join(_section(alias, access, keys, aliases, proxies) + (met.lines(access) if met else [])) for alias, access in every
    ]
    exchange = ",".join(exchanges)
    return "\n".join(
        [*sections, COMMON.format(known=known, check=check, exchange=f"  KexAlgorithms {exchange}\n" if exchange else "")]
    )


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


def first_hop(access: PlayHost | Jump) -> PlayHost | Jump:
    """What this machine itself connects to, perhaps through an HTTP proxy."""
    return (access, *chain(access))[-1]


def _section(
    alias: str,
    access: PlayHost | Jump,
    keys: Mapping[str, Path],
    aliases: Mapping[Jump, str],
    proxies: Mapping[HttpProxy, str],
) -> list[str]:
    lines = [f"Host {alias}", f"  HostName {access.address}", f"  Port {access.port}", f"  User {access.user}"]
    if access.key_path:
        lines += [f"  IdentityFile {keys[access.key_path]}", "  IdentitiesOnly yes"]
    if access.jump is not None:
        lines.append(f"  ProxyJump {aliases[access.jump]}")
    elif access.proxy is not None:
        lines += [f"  ProxyCommand {proxies[access.proxy]}", "  ProxyUseFdpass yes"]
    return lines
