"""Writes the SSH configuration for a play: the way to each host, jump hosts, trusted host keys. Pure, but for first contacts."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from steps.clients.ssh.first_contact_keys import FirstContactKeys
from steps.contract.host_play import HttpProxy, Jump, PlayHost

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
"""SSH options for every host and jump host.

ServerAlive ends a dead connection after 15 s, even one that a master holds (`playbooks/docs/facts.md`, SSH logins). SSH reports why
a connection ended (closed by the other end, no algorithm in common) at level INFO, which LogLevel suppresses together with the
banners of sites. LogVerbose (OpenSSH 8.5) shows these messages anyway.
"""


SLOW_EXCHANGES = "sntrup761"
"""Prefix of OpenSSH's first post-quantum key exchange, which takes 80 ms of CPU a login: five times the rest of the login.

One controller pays that for each of its hosts. From OpenSSH 9.9 on, both ends have mlkem768, which is post-quantum too and fast. If
one end is older, preferring others means curve25519: safe today, but a recorded session could be read with a future quantum
computer. A spec excludes that with `ssh.post_quantum`, at the cost of the 80 ms.
"""


def key_exchanges(settings: str) -> tuple[str, ...]:
    """Return the key exchanges that this machine's SSH offers, from `ssh -G`, in their order but with the slow ones last.

    A host that allows nothing else can still be reached. Empty if SSH does not list them.
    """
    offered = next((line.split()[1] for line in settings.splitlines() if line.startswith("kexalgorithms ")), "")
    # sorted() is stable, so the others keep their order
    return tuple(sorted(filter(None, offered.split(",")), key=lambda name: name.startswith(SLOW_EXCHANGES)))


def configuration(
    hosts: Iterable[PlayHost],
    keys: Mapping[str, Path],
    *,
    known: str,
    check: str,
    proxies: Mapping[HttpProxy, str],
    exchanges: Iterable[str] = (),
    first_contacts: FirstContactKeys | None = None,
) -> str:
    """Return the text of the SSH configuration for the hosts of a play.

    `keys` maps each `key_path` to the private key's current path. `known` are the files with host keys, `check` is SSH's
    StrictHostKeyChecking; `first_contacts`, if given, sets both for each host. `exchanges` are key exchanges by preference.
    `proxies` maps each HTTP proxy to its command. Jump hosts get the same options and key checks as the hosts behind them.
    """
    members = tuple(hosts)
    aliases = {jump: f"bringup-jump-{number}" for number, jump in enumerate(jumps(members))}
    accesses: list[tuple[str, PlayHost | Jump]] = [(alias, jump) for jump, alias in aliases.items()]
    accesses += [(host.name, host) for host in members]
    sections = [
        "\n".join(_section(alias, access, keys, aliases, proxies) + (first_contacts.lines(access) if first_contacts else []))
        for alias, access in accesses
    ]
    exchange = ",".join(exchanges)
    return "\n".join(
        [*sections, COMMON.format(known=known, check=check, exchange=f"  KexAlgorithms {exchange}\n" if exchange else "")]
    )


def jumps(hosts: Iterable[PlayHost]) -> tuple[Jump, ...]:
    """Return every jump host of these hosts once, those nearest to this machine first."""
    distances: dict[Jump, int] = {}
    for host in hosts:
        for jump in chain(host):
            distances[jump] = len(chain(jump))
    return tuple(sorted(distances, key=lambda jump: (distances[jump], jump.address, jump.port, jump.user)))


def chain(access: PlayHost | Jump) -> tuple[Jump, ...]:
    """Return the jump hosts on the way to a host, from the one next to the host back to the one that this machine connects to."""
    return () if access.jump is None else (access.jump, *chain(access.jump))


def first_hop(access: PlayHost | Jump) -> PlayHost | Jump:
    """Return the host that this machine itself connects to, perhaps through an HTTP proxy."""
    return (access, *chain(access))[-1]


def _section(
    alias: str, access: PlayHost | Jump, keys: Mapping[str, Path], aliases: Mapping[Jump, str], proxies: Mapping[HttpProxy, str]
) -> list[str]:
    lines = [f"Host {alias}", f"  HostName {access.address}", f"  Port {access.port}", f"  User {access.user}"]
    if access.key_path:
        lines += [f"  IdentityFile {keys[access.key_path]}", "  IdentitiesOnly yes"]
    if access.jump is not None:
        lines.append(f"  ProxyJump {aliases[access.jump]}")
    elif access.proxy is not None:
        # with Fdpass SSH takes over the connection, and the proxy command ends
        lines += [f"  ProxyCommand {proxies[access.proxy]}", "  ProxyUseFdpass yes"]
    return lines
