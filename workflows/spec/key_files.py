"""The rule `key_files`: warn of files of secrets and keys that a spec names and that are not on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from workflows import user_paths
from workflows.spec.errors import Issue
from workflows.spec.fields import SecretRef
from workflows.spec.parsing.document import join

RULE = "key_files"
SOURCE = "https://man.openbsd.org/ssh_config#IdentityFile"
_PRIVATE_KEYS = ("ssh.key.file", "publish.sign.file", "publish.ssh.key.file")
_PUBLIC = (b"ssh-", b"ecdsa-", b"sk-ssh-", b"sk-ecdsa-")
"""Beginnings of a line in an SSH public key file."""
_KNOWN_HOSTS = ("ssh.known_hosts", "delivery.argo_cd.known_hosts")


def missing_files(spec: BaseModel, folder: Path) -> Iterator[Issue]:
    """Yield a warning for each file that is missing, unreadable or empty; relative paths start from `folder`, that of the spec.

    It is a warning since a spec may be checked where its keys are not; a run refuses to start without them.
    """
    for path, text in _files("", spec):
        file = folder / user_paths.expand_home(text)
        flaw = _flaw(file, is_private=path in _PRIVATE_KEYS)
        if flaw:
            yield Issue(RULE, "warning", path, f"{flaw} {file}", "create it before a run, or correct the path", SOURCE)


def _flaw(file: Path, *, is_private: bool) -> str:
    try:
        if not file.exists():
            return "there is no file"
        if not file.is_file():
            return "a file is expected, and this is none:"
        with file.open("rb") as opened:
            start = opened.read(64)
        if is_private and start.startswith(_PUBLIC):
            return "a private key is expected, and this is a public one:"
        return "" if start else "there is nothing in the file"
    except OSError as error:
        return f"the file cannot be read ({error.strerror or 'unreadable'}):"


def _files(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield key and path of every file that a value refers to."""
    if isinstance(value, SecretRef):
        if value.file is not None:
            yield f"{path}.file", value.file
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            yield from _files(join(path, field.alias or name), getattr(value, name))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _files(join(path, key), inner)
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from _files(join(path, index), inner)
    elif path in _KNOWN_HOSTS and isinstance(value, str):
        yield path, value
