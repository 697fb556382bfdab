"""Scan host keys: by `ssh-keyscan` for hosts in direct reach, by `ssh` through jump hosts and HTTP proxies."""

import functools
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from steps.clients.ssh import configuration
from steps.contract.host_play import HttpProxy, Jump, PlayHost
from workflows.host_keys.model import Key, place

KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512")
SCAN_SECONDS = 5
"""Longest time in seconds that one host may take to answer."""
LONGEST = 4 * SCAN_SECONDS
"""Longest time in seconds of one ssh-keyscan, which waits forever for a service that talks but is not SSH."""
_BATCH = 64
_AT_ONCE = 16
_LINE = re.compile(r"(\S+) ([a-z0-9@.-]+) ([A-Za-z0-9+/=]+)")
_ACCEPTED = re.compile(r"Permission denied|Too many authentication failures|No more authentication methods")

Answers = Mapping[str, tuple[Key, ...]]
"""Scanned keys by known_hosts name; empty for a host that did not answer."""
Question = TypeVar("Question")
Answer = TypeVar("Answer")


def is_behind(access: PlayHost | Jump) -> bool:
    """Return True if this machine reaches a host only through a jump host or proxy."""
    return access.jump is not None or access.proxy is not None


def scan_directly(hosts: Iterable[PlayHost | Jump], longest: float = LONGEST) -> Answers:
    """Return the keys of hosts in direct reach. Hosts of one port are scanned in batches, and again alone if a batch hangs.

    `longest` is the time limit in seconds of each scan.
    """
    by_port: dict[int, dict[str, str]] = {}
    for host in hosts:
        by_port.setdefault(host.port, {})[host.address] = place(host)
    batches = [
        (port, tuple(places)[first : first + _BATCH]) for port, places in by_port.items() for first in range(0, len(places), _BATCH)
    ]
    keys_by_name: dict[str, list[Key]] = {name: [] for places in by_port.values() for name in places.values()}
    left: list[tuple[int, tuple[str, ...]]] = []
    scanned = functools.partial(_scanned, longest=longest)
    for (port, part), (keys, ended) in zip(batches, _side_by_side(scanned, batches), strict=True):
        _add(keys_by_name, keys)
        left += [] if ended else [(port, (address,)) for address in part if not keys_by_name[by_port[port][address]]]
    for keys, _ in _side_by_side(scanned, left):
        _add(keys_by_name, keys)
    return {name: tuple(dict.fromkeys(keys)) for name, keys in keys_by_name.items()}


def _add(keys_by_name: Mapping[str, list[Key]], keys: Iterable[tuple[str, Key]]) -> None:
    for name, key in keys:
        if name in keys_by_name:
            keys_by_name[name].append(key)


def _scanned(batch: tuple[int, tuple[str, ...]], longest: float) -> tuple[list[tuple[str, Key]], bool]:
    """Return the names and keys that ssh-keyscan found at addresses of one port, and True if it finished in time."""
    port, addresses = batch
    command = ["ssh-keyscan", "-T", str(SCAN_SECONDS), "-t", "ed25519,ecdsa,rsa", "-p", str(port), "-f", "-"]
    stdin = ("\n".join(addresses) + "\n").encode()
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=longest, check=False)
    except subprocess.TimeoutExpired as late:
        whole = (late.stdout or b"").rpartition(b"\n")[0]
        return parse_keys(whole.decode(errors="replace")), False
    return parse_keys(done.stdout.decode(errors="replace")), True


def parse_keys(text: str) -> list[tuple[str, Key]]:
    """Return (known_hosts name, key) for each line of a known_hosts file or of ssh-keyscan's output."""
    matches = (_LINE.fullmatch(line.strip()) for line in text.splitlines() if not line.startswith("#"))
    return [(match[1], Key(kind=match[2], blob=match[3])) for match in matches if match]


@dataclass(frozen=True, kw_only=True)
class SshScan:
    """A scan of hosts behind jump hosts or proxies, by `ssh` with a configuration of its own in `folder`.

    `keys` maps private keys to their linked paths, `known` holds the host keys of jump hosts, and `proxies` the command for each
    HTTP proxy.
    """

    folder: Path
    hosts: tuple[PlayHost, ...]
    keys: Mapping[str, Path]
    known: Path
    proxies: Mapping[HttpProxy, str]

    def keys_of(self, aliases: Mapping[str, str]) -> Answers:
        """Return the keys of hosts behind jump hosts or a proxy. `aliases` maps known_hosts name to name in the configuration."""
        return dict(zip(aliases, _side_by_side(self._all_kinds, aliases.values()), strict=True))

    def accepted(self, aliases: Mapping[str, str], known: Path) -> dict[str, bool]:
        """Return, by known_hosts name, True if SSH accepts the host's key or certificate with the file `known`, as in a play."""
        answers = _side_by_side(lambda alias: self._ask(alias, known, "yes"), aliases.values())
        return {name: _ACCEPTED.search(stderr) is not None for name, stderr in zip(aliases, answers, strict=True)}

    def _all_kinds(self, alias: str) -> tuple[Key, ...]:
        keys: list[Key] = []
        for kind in KINDS:
            file = self.folder / f"{alias}.{kind}"
            self._ask(alias, file, "accept-new", kind)
            keys += [key for _, key in parse_keys(file.read_text())] if file.exists() else []
        return tuple(dict.fromkeys(keys))

    def _ask(self, alias: str, known: Path, check: str, kind: str = "") -> str:
        """Return stderr of an SSH login without any authentication method; the host shows its key before. Empty after a timeout."""
        options = [f'UserKnownHostsFile="{known}"', f"StrictHostKeyChecking={check}", "HashKnownHosts=no", "ControlPath=none"]
        options += ["PreferredAuthentications=none", *([f"HostKeyAlgorithms={kind}"] if kind else [])]
        command = ["ssh", "-F", str(self._configuration()), *(word for option in options for word in ("-o", option)), alias, "true"]
        nothing, timeout = subprocess.DEVNULL, 6 * SCAN_SECONDS
        try:
            return subprocess.run(command, stdin=nothing, capture_output=True, text=True, timeout=timeout, check=False).stderr
        except subprocess.TimeoutExpired:
            return ""

    def _configuration(self) -> Path:
        file = self.folder / "ssh_config"
        if not file.exists():
            text = configuration.configuration(self.hosts, self.keys, known=f'"{self.known}"', check="yes", proxies=self.proxies)
            file.write_text(text)
        return file


def _side_by_side(ask: Callable[[Question], Answer], whom: Iterable[Question]) -> list[Answer]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(ask, list(whom)))
