"""Reads entries of a kubeconfig like kubectl does: with type checks, and with unsupported fields refused instead of ignored."""

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
"""Fields that kubectl honours and bringup does not, by section, with advice.

Ignoring them would mean to act as another user, or to reach another server. (`disable-compression` and `extensions` can be
ignored.)
"""


class KubeconfigEntry(Struct, frozen=True):
    """An entry of a kubeconfig and the file that it is in: paths in the entry are relative to that file's folder.

    Every method raises BadTask with the file's name and the place in it.
    """

    path: Path
    fields: Fields

    def wrong(self, what: str, hint: str = "") -> BadTask:
        """Return a BadTask about this entry, with its file and place."""
        return BadTask(f"kubeconfig {self.path}: {what}", hint=hint)

    def text(self, field: str) -> str:
        """Return the text in a field, empty if it is absent or null."""
        value = self.fields.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(f"{field} is no text; put it in quotes")
        return value

    def flag(self, field: str) -> bool:
        """Return the boolean in a field. A quoted "false" is refused."""
        value = self.fields.get(field)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(f"{field} is neither true nor false; write it without quotes")
        return bool(value)

    def beside(self, field: str) -> str:
        """Return the content of the file that a field names, relative to the kubeconfig; empty if the field is absent."""
        name = self.text(field)
        try:
            return (self.path.parent / name).read_text() if name else ""
        except (OSError, ValueError) as error:
            raise self.wrong(f"{field} {name}: {getattr(error, 'strerror', None) or 'no text'}") from error

    def server(self) -> str:
        """Return the API server's URL without trailing slash. Plain http is accepted on this machine only, for emulated servers."""
        from urllib.parse import urlsplit

        address = self.text("server")
        if not address:
            raise self.wrong("its cluster names no server")
        try:
            url = urlsplit(address)
            usable = bool(url.hostname) and url.port != 0
        except ValueError:
            usable = False
        if not usable or url.scheme not in ("https", "http") or url.username is not None or url.query or url.fragment:
            raise self.wrong(f"server {address!r} is no URL of an API server", "write it as https://HOST:PORT")
        if url.scheme == "http" and not _is_here(url.hostname or ""):
            hint = "write https://; or reach it by a tunnel that begins on this machine"
            raise self.wrong(f"server {address!r} would be told its credentials over plain http", hint)
        return address.rstrip("/")


class Entries:
    """The entries of a kubeconfig of one file, or of several as `KUBECONFIG` lists them.

    The first file's entry of each name counts. Every method raises BadTask with the file's name and the place in it.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self._documents = [_read(path) for path in paths]

    def wrong(self, what: str, hint: str = "") -> BadTask:
        """Return a BadTask that names all files."""
        return BadTask(f"kubeconfig {os.pathsep.join(map(str, self.paths))}: {what}", hint=hint)

    def context(self, chosen: str) -> str:
        """Return the name of the context to use: `chosen`, else the current one of the files."""
        name = chosen or next(filter(None, (document.text("current-context") for document in self._documents)), "")
        if not name:
            raise self.wrong("it has no current-context", "choose one: kubectl config use-context NAME --kubeconfig FILE")
        return name

    def named(self, section: str, name: str) -> KubeconfigEntry:
        """Return the first entry of that name in section `contexts`, `clusters` or `users`."""
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


def _read(path: Path) -> KubeconfigEntry:
    """Return the document of a file. Raises BadTask if it is no YAML mapping."""
    read = KubeconfigEntry(path, {})
    try:
        raw = path.read_bytes()
    except OSError as error:
        hint = "the rke2 stage writes it; or name an existing one in the spec"
        raise read.wrong(str(error.strerror), hint) from error
    if len(raw) > MAX_BYTES:
        raise BadTask(f"kubeconfig {path} has {len(raw)} bytes, limit {MAX_BYTES}")
    import yaml  # imported here: some verbs need no cluster

    try:
        document = yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError) as error:  # ValueError for an impossible date
        raise BadTask(f"kubeconfig {path} is no YAML: {' '.join(str(error).split())}") from error
    if document is not None and not isinstance(document, dict):
        raise BadTask(f"kubeconfig {path} holds no mapping")
    return KubeconfigEntry(path, document or {})


def _inside(document: KubeconfigEntry, row: Fields, section: str, name: str) -> KubeconfigEntry:
    inside = row.get(section.removesuffix("s"))
    if not isinstance(inside, dict):
        raise document.wrong(f"entry {name!r} under {section} has no mapping {section.removesuffix('s')}")
    for field, hint in REFUSED.get(section, {}).items():
        if inside.get(field):
            raise document.wrong(f"{field} of entry {name!r} under {section} is not honoured here, and so refused", hint)
    return KubeconfigEntry(document.path, inside)


def _is_here(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
