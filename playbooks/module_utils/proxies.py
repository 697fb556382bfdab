"""Proxies that want a login: it is put into this process's environment, where its children have it, and where nobody else reads it.

A login in the environment that a play sets would stand on a command line of the host, for all its users to see.
"""

from __future__ import annotations

import os
import re
import urllib.parse

OPTIONS: dict = {
    "proxy_user": {"type": "str", "default": ""},
    "proxy_password": {"type": "str", "default": "", "no_log": True},
}
"""What modules that go through a proxy are told."""
NAMES = re.compile(r"https?_proxy", re.IGNORECASE)
REFUSED = "the proxy refuses this login (407)"
UNAUTHORIZED = "the proxy refuses this login (401)"
"""Some proxies, tinyproxy among them, answer a wrong login as a site would that wants one: it counts where we gave one."""
HIDDEN = "[redacted]"


def log_in(params: dict) -> None:
    """Have the proxies of the environment with the login, where one is given."""
    login = _login(params)
    for name in [name for name in os.environ if NAMES.fullmatch(name)] if login else ():
        os.environ[name] = re.sub(r"^(https?://)(?:[^@/]*@)?", lambda found: "%s%s@" % (found.group(1), login), os.environ[name])


def refused(code: int) -> str:
    """What an answer with this code says of the login; empty where it says nothing."""
    if code == 401 and any(NAMES.fullmatch(name) and "@" in value for name, value in os.environ.items()):
        return UNAUTHORIZED
    return REFUSED if code == 407 else ""


def hidden(text: str, params: dict) -> str:
    """What a tool said, without the password: some repeat the proxy's URL."""
    password = params.get("proxy_password") or ""
    for form in sorted({password, _quoted(password)} - {""}, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


def _login(params: dict) -> str:
    return "%s:%s" % (_quoted(params["proxy_user"]), _quoted(params["proxy_password"])) if params.get("proxy_user") else ""


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")
