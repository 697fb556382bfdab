"""Find secrets that are written out in a spec; messages never contain their values.

Secrets are given by reference. A value is refused if its text has the form of a credential, or if it is plain text under a key that
names a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from workflows.spec.errors import SpecError
from workflows.spec.parsing.document import join

REDACTED = "(redacted)"
FIX = "put it elsewhere and write {file: PATH}, {secret: {name: NAME, key: KEY}} or {env: NAME}"
PROXY_FIX = "leave the login out of the URL, and write it as proxy: {user: NAME, password: {file: PATH}}"
IMAGE_PROXY_FIX = "leave the login out of the URL: the proxy of an image is used without one"
SSH_PROXY_FIX = "leave the login out of the URL, and write it as ssh: {http_proxy_user: NAME, http_proxy_password: {file: PATH}}"

URL = "a URL with a password"
_FORMS = (
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("a GitHub token", re.compile(r"\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}")),
    ("a GitLab token", re.compile(r"\bglpat-[A-Za-z0-9_-]{18,}")),
    ("an AWS access key", re.compile(r"\b(AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("an NGC or NVIDIA API key", re.compile(r"\bnvapi-[A-Za-z0-9_-]{30,}")),
    ("a JSON web token", re.compile(r"\beyJ[A-Za-z0-9_-]{10,500}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{5}")),
    ("an RKE2 join token", re.compile(r"\bK10[0-9a-f]{64}::")),
    ("a password hash", re.compile(r"\$(?:1|5|6|2[aby]|y)\$[A-Za-z0-9./$]{20,}")),
    (URL, re.compile(r"://[^/\s:@]+:[^/\s@]+@")),
    ("a Slack webhook", re.compile(r"hooks\.slack\.com/services/")),
)
_SECRET_KEY = re.compile(
    r"(^|[_.-])(password|passwd|passphrase|token|api_?key|private_?key|client_?secret|secret_?key)$|^secret$", re.IGNORECASE
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def names_secret(key: str) -> bool:
    """Return True if the name of a key says that it holds a secret: `password`, `adminPassword`, `join_token`."""
    return bool(_SECRET_KEY.search(_CAMEL.sub("_", key)))


def form_of(text: str) -> str | None:
    """Return what a text looks like if it looks like a credential, such as `a GitHub token`; None for other texts."""
    if len(text) < 8:
        return None
    return next((name for name, form in _FORMS if form.search(text)), None)


def literals(data: object, lines: dict[str, int]) -> list[SpecError]:
    """Return an error for each secret that is written out in a spec's data; `lines` maps paths to lines."""
    of_image = isinstance(data, dict) and data.get("kind") == "Image"
    return [
        SpecError(path, f"{what} is written out in the spec", _fix(path, of_image=of_image), REDACTED, lines.get(path, 0))
        for path, what in _walk("", "", data)
    ]


def _fix(path: str, *, of_image: bool) -> str:
    """Return the fix for a secret at a path: for proxies of machines a login in separate keys, for an image's proxy none."""
    if path.endswith(".http_proxy"):
        return SSH_PROXY_FIX
    if path not in ("proxy.http", "proxy.https"):
        return FIX
    return IMAGE_PROXY_FIX if of_image else PROXY_FIX


def _walk(path: str, key: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for child, inner in value.items():
            yield from _walk(join(path, child), child, inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(join(path, index), key, inner)
    elif isinstance(value, str):
        form = form_of(value)
        if form is not None:
            yield path, form
        elif value and names_secret(key):
            yield path, f"a secret ({key})"
