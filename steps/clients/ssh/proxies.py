"""HTTP proxies on the way to SSH hosts: SSH's command for each, with the login in a private file, and the reasons of failures."""

import base64
import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from steps import timeouts
from steps.clients.ssh import configuration, http_connect
from steps.contract.host_play import HttpProxy, Jump, PlayHost

TOLD = "proxied"
"""Name of the folder of failures, with a folder for each proxy and a file in it for each host that the proxy did not connect to."""


def distinct_proxies(hosts: Iterable[PlayHost]) -> tuple[HttpProxy, ...]:
    """Return every HTTP proxy through which these hosts are reached, once."""
    return tuple(dict.fromkeys(hop.proxy for host in hosts if (hop := configuration.first_hop(host)).proxy))


def commands(folder: Path, hosts: Iterable[PlayHost], passwords: Mapping[str, bytes]) -> dict[HttpProxy, str]:
    """Return SSH's ProxyCommand for each proxy of these hosts. `folder` is private and keeps the files of the command.

    `passwords` maps each `password_path` to its content.
    """
    by_proxy = {}
    for number, proxy in enumerate(distinct_proxies(hosts)):
        _told(folder, proxy).mkdir(parents=True, exist_ok=True)
        file = folder / f"proxy{number}"
        file.touch(mode=0o600)
        file.write_text(json.dumps(_settings(folder, proxy, passwords.get(proxy.password_path, b""))))
        words = [sys.executable, "-I", "-S", http_connect.__file__, str(file)]
        # SSH expands % in a ProxyCommand
        by_proxy[proxy] = f"{shlex.join(words).replace('%', '%%')} %h %p"
    return by_proxy


def _settings(folder: Path, proxy: HttpProxy, password: bytes) -> dict[str, Any]:
    login = base64.b64encode(proxy.user.encode() + b":" + password.strip()).decode() if proxy.user else ""
    return {
        "url": proxy.url,
        "address": proxy.address,
        "port": proxy.port,
        "user": proxy.user,
        "login": login,
        "seconds": timeouts.SSH_PROXY,
        "told": str(_told(folder, proxy)),
    }


def _told(folder: Path, proxy: HttpProxy) -> Path:
    return folder / TOLD / f"{proxy.address}_{proxy.port}_{proxy.user}"


def failure_of(folder: Path, access: PlayHost | Jump) -> str:
    """Return why the proxy did not connect to a host, or to its first jump host; empty if it did, or if there is no proxy."""
    hop = configuration.first_hop(access)
    file = _told(folder, hop.proxy) / f"{hop.address}_{hop.port}" if hop.proxy is not None else None
    return file.read_text() if file is not None and file.is_file() else ""
