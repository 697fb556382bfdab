"""What RKE2 reads of its settings: config.yaml and the drop-ins beside it, which are read after it and win (configfilearg of K3s).

A host's Python may lack a YAML parser. This one knows what people and tools write there, a JSON object or one key a line, and says
so where it meets anything else: a key that is overlooked would win unseen.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

CONFIG = "/etc/rancher/rke2/config.yaml"
DROP_INS = CONFIG + ".d"
OURS = "# Made by bringup."
ENDINGS = (".yaml", ".yml")
SHORT = {"t": "token", "s": "server", "d": "data-dir", "i": "node-ip", "o": "write-kubeconfig"}
"""RKE2 takes the short names of its flags too."""
KEY = re.compile(r"(\"[^\"\\]*\"|'[^']*'|[A-Za-z0-9][A-Za-z0-9_.-]*\+?) *:(?=[ \t]|$)[ \t]*")
"""A key that stands by itself at the left; one with escapes is none that RKE2 knows."""
QUOTED = r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*')"
INNER = re.compile(r"(?:%s|[^\s\"'\[\]{},&*!|>%%@`#?][^#]*?) *:(?=[ \t]|$)[ \t]*" % QUOTED)
ITEM = r"(?:%s|[^\s\"'\[\]{},&*!|>%%@`#?][^\"'\[\]{},#]*)" % QUOTED
WHOLE = re.compile(r"(?:%s|\{\}|\[[ \t]*(?:%s[ \t]*(?:,[ \t]*|(?=\])))*\])[ \t]*(?:(?<=[ \t])#.*)?$" % (QUOTED, ITEM))
"""A quoted text or a plain list that ends on its line."""
BLOCK = re.compile(r"[|>][0-9+-]*[ \t]*(?:[ \t]#.*)?$")
ODD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x85\u2028\u2029\ufeff]|\r(?!\n)")
"""Characters that YAML forbids, or takes for the end of a line."""
LOOSE = r"^[ \t{,]*[\"']?%s\+?[\"']? *:[ \t]*[\"']?([^\s\"',}]+)"


class Unreadable(Exception):
    """A text that may hold keys that are not seen here; says where."""


def parse(text: str) -> dict:
    """Key → value of the outermost mapping, where it is a text of one line, else an empty one. Raises Unreadable."""
    if ODD.search(text):
        raise Unreadable("a character that no settings have")
    lines = [line.rstrip("\r") for line in text.split("\n")]
    first = next((number for number, line in enumerate(lines) if not _is_blank(line)), len(lines))
    if lines[first : first + 1] and lines[first].rstrip() == "---":
        lines[first] = ""
    lines = ["" if _is_blank(line) else line for line in lines]
    whole = "\n".join(lines).strip()
    return _object(whole) if whole.startswith("{") else _mapping(lines)


def _is_blank(line: str) -> bool:
    return line.strip(" ") == "" or line.lstrip(" ").startswith("#")


def _object(text: str) -> dict:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable("it is no JSON, though it begins so (%s)" % error) from None
    return {key: _shown(value) for key, value in found.items()}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (str, int, float)) else ""


def _mapping(lines: list) -> dict:
    """One key a line, all as far to the right; what belongs to a key stands further to the right, or is a list."""
    found: dict = {}
    left, is_open = None, False
    for number, line in enumerate(lines, 1):
        words = line.lstrip(" ")
        indent = len(line) - len(words)
        left = indent if left is None and words else left
        if not words:
            continue
        if words.startswith("\t") or indent < left or line.startswith(("---", "...", "%")):
            raise Unreadable("line %d" % number)
        if indent > left or (is_open and (words + " ").startswith("- ")):
            _inner(words, number)
            continue
        key = KEY.match(words)
        if key is None:
            raise Unreadable("line %d" % number)
        text = words[key.end() :]
        _check(text, number)
        is_open = text == "" or text.startswith("#")
        found[key.group(1).strip("\"'")] = "" if is_open else _plain(text)
    return found


def _inner(words: str, number: int) -> None:
    """A line below a key: nothing may begin there that could go on at the left. Raises Unreadable."""
    while (words + " ").startswith("- "):
        words = words[1:].lstrip(" \t")
    key = INNER.match(words)
    _check(words[key.end() :] if key else words, number)


def _check(text: str, number: int) -> None:
    """What begins here ends here, or goes on further to the right. Raises Unreadable."""
    first = text[:1] or " "
    if first in "\"'[{" and not WHOLE.match(text):
        raise Unreadable("line %d, which has no end there" % number)
    if first in "&*!%@`?,]}" or (first in "|>" and not BLOCK.match(text)):
        raise Unreadable("line %d" % number)


def _plain(text: str) -> str:
    """A text of one line without its quotes and remark; empty for lists and blocks."""
    if text[:1] in "\"'":
        return text[1 : text.rindex(text[0])].replace("''", "'")
    return "" if text[:1] in "[{|>" else re.split(r"[ \t]+#", text)[0].rstrip()


def drop_ins(folder: str = DROP_INS) -> list:
    """The drop-ins that RKE2 reads, in its order. Raises OSError."""
    names = sorted(os.listdir(folder), key=os.fsencode) if os.path.isdir(folder) else []
    paths = [os.path.join(folder, name) for name in names if name.lower().endswith(ENDINGS)]
    return [path for path in paths if os.path.islink(path) or not os.path.isdir(path)]


def load(path: str) -> dict:
    """The keys of a file, by their long names; an appended one ends in +. Raises Unreadable and OSError."""
    with open(path, "rb") as source:
        data = source.read()
    try:
        found = parse(data.decode())
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8") from None
    return {SHORT.get(key.rstrip("+"), key.rstrip("+")) + "+" * key.endswith("+"): value for key, value in found.items()}


def find(key: str, config: str = CONFIG) -> str:
    """What RKE2 has by this key, the last where there are several; empty where nothing says it."""
    said = [_said(path, key) for path in [config, *_there(config + ".d")]]
    return next(filter(None, reversed(said)), "")


def _there(folder: str) -> list:
    try:
        return drop_ins(folder)
    except OSError:
        return []


def _said(path: str, key: str) -> str:
    """What a file says by this key; one that is not understood is searched, and one that is not there says nothing."""
    try:
        found = load(path)
        return found.get(key + "+") or found.get(key, "")
    except OSError:
        return ""
    except Unreadable:
        with open(path, errors="replace") as source:
            return "".join(re.findall(LOOSE % re.escape(key), source.read(), re.MULTILINE)[-1:])
