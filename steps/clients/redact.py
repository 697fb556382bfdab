"""Takes known secrets out of what is stored or shown: whole secret files, and every credential inside them."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from steps.contract import plain as plain_text
from steps.contract.evidence import Diagnosis, Evidence
from steps.contract.play import PlayEvent
from steps.contract.task import Verb
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict

MARK = "[redacted]"
SHORTEST = 6
"""Shorter values would take out ordinary words; such a secret is none."""
MOST_BYTES = 1 << 20
"""A larger file is known as a whole only: no credential file is that large."""

_SECRET_KEY = re.compile(r"token|passw|passphrase|secret|credential|^auth$|-data$|key", re.IGNORECASE)
_NAMES_ONE = re.compile(r"(?:name|ref|file|path|type|algorithm|usages?)s?$", re.IGNORECASE)
"""`secretName` or `tokenFile` say where a secret is."""
_MAPPING = re.compile(r"""^\s*(?:- +)?["']?[\w./-]+["']?:(?:\s|$)""", re.MULTILINE)
_LINE = re.compile(r"""^\s*(?:export\s+|-\s+)?["']?([\w.-]+)["']?\s*([:=])\s*(\S.*?)\s*$""", re.MULTILINE)
_NETRC = re.compile(r"(?:^|\slogin\s+\S+)\s*passw(?:or)?d\s+(\S+)\s*$", re.MULTILINE)
_URL = re.compile(r"://[^/\s:@]*:([^@\s/]+)@")
_QUOTED = re.compile(r"""(["'])(.*?)\1""")
_CREDENTIAL = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z])\S+")
_LONG = 16
_RECORDS = "\n".join(
    [name for kind in (Evidence, Verdict, NodeVerdict, Diagnosis, PlayEvent) for name in kind.__struct_fields__]
    + [word for words in (Status, FailureClass, Verb) for word in words]
    + ["sha256"]
)
"""The words that records are made of: taking one out would make the record unreadable, so such a secret is none."""


class Redactor:
    """Replaces secrets wherever they turn up: plain, in JSON strings, in JSON inside JSON, and base64 as a Secret shows them.

    The files are read when they are first needed, and again when one has changed or come since: a play makes secrets.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._known: object = None
        self._values: list[str] = []

    def text(self, text: str) -> str:
        """The text without secrets."""
        self._read()
        for value in self._values:
            text = text.replace(value, MARK)
        return text

    def data(self, data: bytes) -> bytes:
        """The bytes (UTF-8) without secrets."""
        return self.text(data.decode()).encode()

    def _read(self) -> None:
        files = [path for folder in self._folders for path in _files(folder)]
        known = [(path, _stamp(path)) for path in files]
        if known == self._known:
            return
        self._known = known
        found = {text.strip() for path in files for text in _of_file(path)}
        plain = {text for text in found if len(text) >= SHORTEST and text not in _RECORDS}
        plain |= {base64.b64encode(text.encode()).decode() for text in plain}
        plain |= {form for text in plain for form in _in_one_line(text) if len(form) >= SHORTEST}
        plain |= {quote(text, safe="") for text in plain if "\n" not in text}  # as in the URL of a proxy
        once = plain | {form for text in plain for form in _escaped(text)}
        twice = once | {form for text in once for form in _escaped(text)}
        self._values = sorted(twice, key=len, reverse=True)


def _in_one_line(text: str) -> tuple[str, str]:
    """As a message holds it that was made one line: its white space collapsed, and also what else is no plain text replaced."""
    words = " ".join(text.split())
    return words, plain_text.line(words)


def _escaped(text: str) -> tuple[str, str]:
    """As a JSON string holds it: with letters beyond ASCII escaped, and with them as they are."""
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]


def _files(folder: Path) -> Iterable[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else ()


def _stamp(path: Path) -> tuple[int, int, int]:
    """Changes when the file does; a file that goes away while it is looked at has none."""
    try:
        seen = path.stat()
    except OSError:
        return 0, 0, 0
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


def _of_file(path: Path) -> Iterator[str]:
    try:
        whole = path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return
    yield whole
    if len(whole) <= MOST_BYTES:
        yield from _inside(whole)
        last = whole.rpartition(":")[2]
        if "\n" not in whole and _is_credential(last):  # a cluster's token: `K10HASH::server:PASSWORD`
            yield last


def _inside(text: str) -> Iterator[str]:
    """Credentials inside a text, by its structure where it has one and by its lines."""
    for scalar in _scalars(_parsed(text), False, set()):
        yield scalar
        yield from _decoded(scalar)
    for key, sign, value in _LINE.findall(text):
        if sign == "=" or _is_secret_key(key):
            quoted = _QUOTED.match(value)
            yield from (value, quoted[2] if quoted else value.partition(" #")[0])
    yield from _NETRC.findall(text)
    yield from _URL.findall(text)
    lines = [line.strip() for line in text.splitlines() if "-----" not in line]
    if "PRIVATE KEY" in text:
        yield from lines
    elif len(lines) > 1:
        yield from (line for line in lines if len(line) >= _LONG and _CREDENTIAL.fullmatch(line))


def _decoded(scalar: str) -> Iterator[str]:
    """What a base64 scalar holds, where that is text: a key, a `user:password`, a file of its own."""
    try:
        text = base64.b64decode(scalar, validate=True).decode().strip()
    except (binascii.Error, ValueError):
        return
    yield text
    yield from (line.strip() for line in text.splitlines() if "PRIVATE KEY" in text and "-----" not in line)
    yield from (text.partition(":")[2],) if "\n" not in text else ()
    yield from _scalars(_parsed(text), False, set())


def _parsed(text: str) -> Any:
    """The text as JSON or YAML; None where it is neither. No tags are built; every YAML scalar stays the text that it is."""
    try:
        return msgspec.json.decode(text) if text[:1] in "{[" else _yaml(text)
    except msgspec.DecodeError:
        return _yaml(text)


def _yaml(text: str) -> Any:
    if not _MAPPING.search(text):
        return None
    import yaml  # most secret files are one token: they do not pay for it

    try:
        return list(yaml.load_all(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)))
    except (yaml.YAMLError, RecursionError):
        return None


def _scalars(node: Any, secret: bool, seen: set[tuple[int, bool]]) -> Iterator[str]:
    """Scalars at or below the keys of secrets. `seen` keeps aliases from multiplying."""
    if isinstance(node, dict | list):
        if (id(node), secret) in seen:
            return
        seen.add((id(node), secret))
    if isinstance(node, dict):
        packed = ("data", "stringData") if node.get("kind") == "Secret" else ()
        for key, value in node.items():
            yield from _scalars(value, secret or key in packed or _is_secret_key(str(key)), seen)
    elif isinstance(node, list):
        for item in node:
            yield from _scalars(item, secret, seen)
    elif secret and node is not None and not isinstance(node, bool):
        yield str(node)


def _is_secret_key(key: str) -> bool:
    return bool(_SECRET_KEY.search(key)) and not _NAMES_ONE.search(key)


def _is_credential(text: str) -> bool:
    return bool(_CREDENTIAL.fullmatch(text)) or (len(text) >= _LONG and " " not in text)
