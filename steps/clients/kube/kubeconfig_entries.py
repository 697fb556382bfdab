"""The entries of a kubeconfig as kubectl reads them: of the right type, and none of a meaning that we would ignore in silence."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from steps.errors import BadTask

MAX_BYTES = 1 << 20
Fields = dict[str, Any]

_TUNNEL = "reach the API server directly or by a tunnel; where its certificate has another name then, tls-server-name says it"
_ITSELF = "give a kubeconfig whose user has by itself the rights that are needed"
_GONE = "API servers take tokens, client certificates and what exec plug-ins give"
REFUSED = {
    "clusters": {"proxy-url": _TUNNEL},
    "users": {
        "as": _ITSELF,
        "as-uid": _ITSELF,
        "as-groups": _ITSELF,
        "as-user-extra": _ITSELF,
        "username": _GONE,
        "password": _GONE,
    },
}
"""Fields that kubectl honours and we do not, by section, and what to do instead: to act without them is to act as somebody else,
or to reach something else. (`disable-compression` and `extensions` change nothing that we do.)"""


class Entry(Struct, frozen=True):
    """What one entry holds, and the file that it was found in: the files that it names lie beside that one.

    Every method raises BadTask with the file's name and the place in it.
    """

    path: Path
    fields: Fields

    def wrong(self, what: str, hint: str = "") -> BadTask:
        """The error of this entry."""
        return BadTask(f"kubeconfig {self.path}: {what}", hint=hint)

    def text(self, field: str) -> str:
        """A text, empty where it is absent or null."""
        value = self.fields.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(f"{field} is no text; put it in quotes")
        return value

    def flag(self, field: str) -> bool:
        """True or false; "false" in quotes is neither."""
        value = self.fields.get(field)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(f"{field} is neither true nor false; write it without quotes")
        return bool(value)

    def beside(self, field: str) -> str:
        """What the file holds that a field names, relative to where the kubeconfig lies; empty where it names none."""
        name = self.text(field)
        try:
            return (self.path.parent / name).read_text() if name else ""
        except (OSError, ValueError) as error:
            raise self.wrong(f"{field} {name}: {getattr(error, 'strerror', None) or 'no text'}") from error

    def server(self) -> str:
        """Of a cluster: the URL of the API server without a slash at its end; plain http only on this machine itself, where
        emulated ones are."""
        from urllib.parse import urlsplit

        given = self.text("server")
        if not given:
            raise self.wrong("its cluster names no server")
        try:
            url = urlsplit(given)
            usable = bool(url.hostname) and url.port != 0
        except ValueError:
            usable = False
        if not usable or url.scheme not in ("https", "http") or url.username is not None or url.query or url.fragment:
            raise self.wrong(f"server {given!r} is no URL of an API server", "write it as https://HOST:PORT")
        if url.scheme == "http" and not _is_here(url.hostname or ""):
            hint = "write https://; or reach it by a tunnel that begins on this machine"
            raise self.wrong(f"server {given!r} would be told its credentials over plain http", hint)
        return given.rstrip("/")


class Entries:
    """One kubeconfig, of one file or of several as `KUBECONFIG` lists them: of each name the first file's entry holds.

    Every method raises BadTask with the file's name and the place in it.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self._documents = [_read(path) for path in paths]

    def wrong(self, what: str, hint: str = "") -> BadTask:
        """The error of all files together."""
        return BadTask(f"kubeconfig {os.pathsep.join(map(str, self.paths))}: {what}", hint=hint)

    def context(self, wanted: str) -> str:
        """The name of the context: the `wanted` one, else the current one."""
        name = wanted or next(filter(None, (document.text("current-context") for document in self._documents)), "")
        if not name:
            raise self.wrong("it has no current-context", "choose one: kubectl config use-context NAME --kubeconfig FILE")
        return name

    def named(self, section: str, name: str) -> Entry:
        """What the first entry of that name holds under `context`, `cluster` or `user`."""
        names = []
        for document in self._documents:
            rows = document.fields.get(section) or []
            if not isinstance(rows, list):
                raise document.wrong(f"{section} is no list")
            for row in rows:
                if isinstance(row, dict) and row.get("name") == name:
                    return _inside(document, row, section, name)
                names.append(str(row.get("name")) if isinstance(row, dict) else "")
        there = ", ".join(sorted(filter(None, names)))
        raise self.wrong(f"no entry {name!r} under {section}", f"{section} there: {there}" if there else "")


def _read(path: Path) -> Entry:
    """A whole file."""
    read = Entry(path, {})
    try:
        raw = path.read_bytes()
    except OSError as error:
        hint = "the rke2 stage writes it; or name an existing one in the spec"
        raise read.wrong(str(error.strerror), hint) from error
    if len(raw) > MAX_BYTES:
        raise BadTask(f"kubeconfig {path} has {len(raw)} bytes, limit {MAX_BYTES}")
    import yaml  # a verb that does not reach for a cluster does not pay for it

    try:
        document = yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError) as error:  # a date that is none is a ValueError
        raise BadTask(f"kubeconfig {path} is no YAML: {' '.join(str(error).split())}") from error
    if document is not None and not isinstance(document, dict):
        raise BadTask(f"kubeconfig {path} holds no mapping")
    return Entry(path, document or {})


def _inside(document: Entry, row: Fields, section: str, name: str) -> Entry:
    inside = row.get(section.removesuffix("s"))
    if not isinstance(inside, dict):
        raise document.wrong(f"entry {name!r} under {section} has no mapping {section.removesuffix('s')}")
    for field, hint in REFUSED.get(section, {}).items():
        if inside.get(field):
            raise document.wrong(f"{field} of entry {name!r} under {section} is not honoured here, and so refused", hint)
    return Entry(document.path, inside)


def _is_here(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
