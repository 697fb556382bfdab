"""HTTP proxies before SSH hosts: SSH's command for each, with the login in a file for us alone, and what was said of a failure."""

import base64
import json
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from steps import timeouts
from steps.clients.ansible import failures
from steps.clients.ssh import configuration, http_connect
from steps.contract.play import HttpProxy, Jump, PlayHost

TOLD = "proxied"
"""Folder with one for each proxy, and there a file for each host that it did not connect us to."""

_NO_CONNECTION = re.compile(r"proxy dialer did not pass back|kex_exchange_identification")
"""What SSH says then: the second where the proxy stands before a jump host."""


def named(hosts: Iterable[PlayHost]) -> tuple[HttpProxy, ...]:
    """Every proxy that these hosts are reached through, each once."""
    return tuple(dict.fromkeys(hop.proxy for host in hosts if (hop := configuration.first_hop(host)).proxy))


def commands(folder: Path, hosts: Iterable[PlayHost], passwords: Mapping[str, bytes]) -> dict[HttpProxy, str]:
    """SSH's ProxyCommand for each proxy of these hosts; `folder` is private, and keeps what the command reads and writes.

    `passwords` has the content of each `password_path`.
    """
    found = {}
    for number, proxy in enumerate(named(hosts)):
        _told(folder, proxy).mkdir(parents=True, exist_ok=True)
        file = folder / f"proxy{number}"
        file.touch(mode=0o600)
        file.write_text(json.dumps(_settings(folder, proxy, passwords.get(proxy.password_path, b""))))
        words = [sys.executable, "-I", "-S", http_connect.__file__, str(file)]
        found[proxy] = f"{shlex.join(words).replace('%', '%%')} %h %p"
    return found


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


def told(folder: Path, access: PlayHost | Jump) -> str:
    """Why the proxy did not connect us to a host, or to the first of those before it; empty where it did, or there is none."""
    hop = configuration.first_hop(access)
    file = _told(folder, hop.proxy) / f"{hop.address}_{hop.port}" if hop.proxy is not None else None
    return file.read_text() if file is not None and file.is_file() else ""


def explained(event: dict[str, Any], folder: Path, reached: Iterable[PlayHost]) -> dict[str, Any]:
    """An event of Ansible, with the proxy's reason where it made no connection: where SSH keeps connections for later it drops what
    its ProxyCommand says. A task may have been delegated, so that the connection was one to another host."""
    if event.get("event") != "runner_on_unreachable":
        return event
    data = event["event_data"]
    result = data["res"]
    if not _NO_CONNECTION.search(failures.message(result)):
        return event
    ordered = sorted(reached, key=lambda host: host.name != data["host"])
    why = next((sentence for host in ordered if (sentence := told(folder, host))), "")
    return event | {"event_data": data | {"res": {**result, "msg": why, "stderr": ""}}} if why else event
