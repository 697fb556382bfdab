"""Redaction of known secrets in everything that is stored or shown: whole secret files, and every credential inside them."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from steps.contract import plain_text
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.host_play import PlayEvent
from steps.contract.runs.evidence import Diagnosis, Evidence
from steps.contract.task import Verb
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict

MARK = "[redacted]"
SHORTEST = 6
"""Least length of a secret in characters. Shorter values would redact ordinary words."""
MOST_BYTES = 1 << 20
"""Size up to which a file is searched for credentials; no credential file is larger, so larger ones are redacted as a whole only.
"""

_SECRET_KEY = re.compile(r"token|passw|passphrase|secret|credential|^auth$|-data$|key", re.IGNORECASE)
_NAMES_ONE = re.compile(r"(?:name|ref|file|path|type|algorithm|usages?)s?$", re.IGNORECASE)
"""Pattern of keys that only name where a secret is, such as `secretName` or `tokenFile`."""
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
"""Words that records are made of. A secret with such a value is not redacted, because the record would become unreadable."""


class Redactor:
    """Replaces secrets in any form: plain, in JSON strings, in JSON inside JSON, and as base64 in a Secret.

    The secret files are read on first use, and again when one has changed or appeared, because a play makes secrets.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._known: object = None
        self._values: list[str] = []

    def text(self, text: str) -> str:
        """Return the text with every known secret replaced by MARK."""
        self._read()
        for value in self._values:
            text = text.replace(value, MARK)
        return text

    def data(self, data: bytes) -> bytes:
        """Return the bytes (UTF-8) with every known secret replaced by MARK."""
        return self.text(data.decode()).encode()

    def _read(self) -> None:
        files = [path for folder in self._folders for path in _files(folder)]
        known = [(path, _stamp(path)) for path in files]
        if known == self._known:
            return
        self._known = known
        secrets = {text.strip() for path in files for text in _of_file(path)}
        plain = {text for text in secrets if len(text) >= SHORTEST and text not in _RECORDS}
        # Secrets show values as base64
        plain |= {base64.b64encode(text.encode()).decode() for text in plain}
        plain |= {form for text in plain for form in _in_one_line(text) if len(form) >= SHORTEST}
        plain |= {quote(text, safe="") for text in plain if "\n" not in text}  # the form in the URL of a proxy
        once = plain | {form for text in plain for form in _escaped(text)}
        # JSON inside JSON strings is escaped twice
        twice = once | {form for text in once for form in _escaped(text)}
        # the longest first, because a secret may contain another one
        self._values = sorted(twice, key=len, reverse=True)


def _in_one_line(text: str) -> tuple[str, str]:
    """Return a secret as it appears in a one-line message: with white space collapsed, and with special characters replaced."""
    words = " ".join(text.split())
    return words, plain_text.line(words)


def _escaped(text: str) -> tuple[str, str]:
    """Return a secret as JSON strings hold it: with non-ASCII letters escaped, and with them unescaped."""
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]


def _files(folder: Path) -> Iterable[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else ()


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return a value that changes when the file does; zeros for a file that has just been removed."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_mtime_ns, status.st_size


def _of_file(path: Path) -> Iterator[str]:
    try:
        whole = path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return
    yield whole
    if len(whole) <= MOST_BYTES:
        yield from _inside(whole)
        last = whole.rpartition(":")[2]
        is_credential = _CREDENTIAL.fullmatch(last) or (len(last) >= _LONG and " " not in last)
        if "\n" not in whole and is_credential:  # a cluster's token: `K10HASH::server:PASSWORD`
            yield last


def _inside(text: str) -> Iterator[str]:
    """Yield credentials inside the text of a secret file, found by its structure (JSON, YAML) and by its lines."""
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
    # half a key is a secret too, so each of its lines is one
    if "PRIVATE KEY" in text:
        yield from lines
    elif len(lines) > 1:
        yield from (line for line in lines if len(line) >= _LONG and _CREDENTIAL.fullmatch(line))


def _decoded(scalar: str) -> Iterator[str]:
    """Yield the content of a base64 scalar if it is text: a key, a `user:password`, a file of its own."""
    try:
        text = base64.b64decode(scalar, validate=True).decode().strip()
    except (binascii.Error, ValueError):
        return
    yield text
    yield from (line.strip() for line in text.splitlines() if "PRIVATE KEY" in text and "-----" not in line)
    yield from (text.partition(":")[2],) if "\n" not in text else ()
    yield from _scalars(_parsed(text), False, set())


def _parsed(text: str) -> Any:
    """Return the text parsed as JSON or YAML; None if it is neither. YAML tags are ignored, and every scalar stays text."""
    try:
        return msgspec.json.decode(text) if text[:1] in "{[" else _yaml(text)
    except UNREADABLE_JSON:
        return _yaml(text)


def _yaml(text: str) -> Any:
    if not _MAPPING.search(text):
        return None
    import yaml  # imported here: most secret files are a single token

    try:
        return list(yaml.load_all(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)))
    except (yaml.YAMLError, RecursionError):
        return None


def _scalars(node: Any, secret: bool, seen: set[tuple[int, bool]]) -> Iterator[str]:
    """Yield the scalars of parsed data that are at or below keys of secrets. `seen` keeps aliases from multiplying the work."""
    if isinstance(node, dict | list):
        if (id(node), secret) in seen:
            return
        seen.add((id(node), secret))
    if isinstance(node, dict):
        # all values of a Kubernetes Secret are secret, whatever their keys are
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
