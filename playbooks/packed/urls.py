"""Replacement for `ansible.module_utils.urls` in a packed module: it only opens a URL for reading."""

from __future__ import annotations

import base64
import gzip
import netrc
import os
import ssl
import urllib.request
from contextlib import suppress
from typing import Any, Tuple
from urllib.parse import unquote, urlsplit, urlunsplit

AUTHORITIES = (
    "/etc/pki/ca-trust/extracted/pem",
    "/etc/pki/tls/certs",
    "/usr/share/ca-certificates/cacert.org",
    "/etc/ansible",
)
"""Folders whose certificates Ansible trusts too, since a Python of the site's own may know none of the system's."""


def open_url(url: str, timeout: float = 10, authorities: Tuple[str, ...] = AUTHORITIES) -> Any:
    """Return the open response to a GET request, which went through the environment's proxies.

    A login is taken from the URL, else from ~/.netrc. Raises OSError, also for HTTP errors, and ValueError.
    """
    bare, user, password = _without_login(url)
    request = urllib.request.Request(bare)
    handlers: list = []
    if user:
        logins = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        logins.add_password(None, urlsplit(bare).netloc, user, password)
        handlers += [urllib.request.HTTPBasicAuthHandler(logins), urllib.request.HTTPDigestAuthHandler(logins)]
    else:
        _log_in(request, urlsplit(bare).hostname or "")
    if bare.lower().startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=_context(authorities)))
    response = urllib.request.build_opener(*handlers).open(request, timeout=timeout)
    if response.headers.get("content-encoding", "").lower() == "gzip":
        response.fp = gzip.GzipFile(mode="rb", fileobj=response.fp)
        response.length = None  # of the compressed bytes
    return response


def _without_login(url: str) -> Tuple[str, str, str]:
    """Return a URL without its login, and the login's user and password."""
    parts = urlsplit(url)
    login, at, netloc = parts.netloc.partition("@")
    if not at:
        return url, "", ""
    user, _, password = login.partition(":")
    return urlunsplit(parts._replace(netloc=netloc)), unquote(user), unquote(password)


def _log_in(request: urllib.request.Request, host: str) -> None:
    """Add the login that ~/.netrc, or the file that $NETRC names, has for a host."""
    with suppress(OSError):
        login = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
        if login and login[0] and login[2]:
            pair = "%s:%s" % (login[0], login[2])
            request.add_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())


def _context(authorities: Tuple[str, ...]) -> ssl.SSLContext:
    """Return a context that trusts the system's authorities and those in the folders."""
    context = ssl.create_default_context()
    for folder in authorities:
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if name.endswith((".pem", ".cer", ".crt")):
                with suppress(OSError):  # a file without a certificate
                    context.load_verify_locations(os.path.join(folder, name))
    return context
