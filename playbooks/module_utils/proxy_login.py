"""Logins for HTTP proxies, put into the environment of the module's process, where only its child processes see them.

A login in the environment that a play sets would appear on a command line of the host, where every user could read it.
"""

from __future__ import annotations

import os
import re
import urllib.parse

OPTIONS: dict = {"proxy_user": {"type": "str", "default": ""}, "proxy_password": {"type": "str", "default": "", "no_log": True}}
"""Arguments of every module that downloads through a proxy."""
NAMES = re.compile(r"https?_proxy", re.IGNORECASE)
LOGIN_REFUSED = "the proxy refuses this login (407)"
UNAUTHORIZED = "the proxy refuses this login (401)"
"""The message for a 401, used only if the proxy has a login: some proxies (tinyproxy) answer a wrong login as a web site would."""
REDACTED = "[redacted]"


def log_in(params: dict) -> None:
    """Add the module's proxy login, if it has one, to the proxy URLs in this process's environment."""
    if not params.get("proxy_user"):
        return
    login = "%s:%s" % (_quoted(params["proxy_user"]), _quoted(params["proxy_password"]))
    for name in filter(NAMES.fullmatch, list(os.environ)):
        os.environ[name] = re.sub(r"^(https?://)(?:[^@/]*@)?", lambda match: "%s%s@" % (match.group(1), login), os.environ[name])


def login_refusal(code: int) -> str:
    """Return the message for an HTTP status code by which a proxy refuses its login; empty for any other code."""
    if code == 401 and any(NAMES.fullmatch(name) and "@" in value for name, value in os.environ.items()):
        return UNAUTHORIZED
    return LOGIN_REFUSED if code == 407 else ""


def redact_login(text: str, params: dict) -> str:
    """Return a tool's output with the proxy password removed; some tools repeat the proxy's URL."""
    password = params.get("proxy_password") or ""
    for form in sorted({password, _quoted(password)} - {""}, key=len, reverse=True):
        text = text.replace(form, REDACTED)
    return text


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")
