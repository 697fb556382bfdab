"""What RKE2 reads of its settings: config.yaml and the drop-ins beside it, which are read after it and win (configfilearg of K3s).

A host's Python may lack a YAML parser. Then a reader of its own follows what people and tools write there, a JSON object or keys
that stand one below the other with anything that ends, and says so where it meets something else: a key that is overlooked would
win unseen. Where there is a parser, the reader has the word on what that refuses, such as the tabs that RKE2 takes.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from ansible.module_utils.rke2.outline import NOTHING, Reader, Unreadable

try:
    import yaml
except ImportError:  # not every node has it, and nothing is installed for it
    yaml = None  # type: ignore[assignment]

YAML: Any = yaml
CONFIG = "/etc/rancher/rke2/config.yaml"
DROP_INS = CONFIG + ".d"
OURS = "# Made by bringup."
ENDINGS = (".yaml", ".yml")
SHORT = {"t": "token", "s": "server", "d": "data-dir", "i": "node-ip", "o": "write-kubeconfig"}
"""RKE2 takes the short names of its flags too."""
ODD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]|\r(?!\n)")
"""Characters that YAML forbids, or takes for the end of a line."""
BEGIN = re.compile(r"---[ \t]*(?:(?<=[ \t])#.*)?$")
END = re.compile(r"\.\.\.[ \t]*(?:(?<=[ \t])#.*)?$")
MARK = re.compile(r"(?:---|\.\.\.)(?:[ \t]|$)")
"""Begins or ends a document wherever it stands at the left, in quotes and brackets too."""
LOOSE = r"^[ \t{,]*[\"']?%s\+?[\"']? *:[ \t]*[\"']?([^\s\"',}]+)"


def parse(text: str, parser: Any = YAML) -> dict:
    """Key → value of the outermost mapping, where it is a text of lines, else an empty one. Raises Unreadable."""
    text = text[1:] if text.startswith("\ufeff") else text
    if ODD.search(text):
        raise Unreadable("a character that no settings have")
    whole = text.strip()
    if whole.startswith("{"):
        try:
            return _object(whole)
        except Unreadable:
            if parser is None:
                raise
    node = None
    if parser is not None:
        try:
            node = parser.compose(text, Loader=parser.SafeLoader)
        except (parser.YAMLError, ValueError, OverflowError, RecursionError):
            return _lines(text)
    return _lines(text) if node is None else _node(node, parser)


def _node(node: Any, parser: Any) -> dict:
    """The same of what a parser made of the text, whose scalars are still what was written."""
    if isinstance(node, parser.ScalarNode) and not node.value and not node.style:
        return {}
    if not isinstance(node, parser.MappingNode):
        raise Unreadable("line %d" % (node.start_mark.line + 1))
    found = {}
    for key, value in node.value:
        if not isinstance(key, parser.ScalarNode) or key.value == "<<":  # keys of another place would be keys here
            raise Unreadable("line %d" % (key.start_mark.line + 1))
        is_text = isinstance(value, parser.ScalarNode) and value.style not in ("|", ">")
        found[key.value] = value.value if is_text and (value.style or value.value not in NOTHING) else ""
    return found


def _lines(text: str) -> dict:
    """The same without a parser."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    first = next((number for number, line in enumerate(lines) if not _is_blank(line)), len(lines))
    if lines[first : first + 1] and BEGIN.match(lines[first]):
        lines[first] = ""
    last = next((number for number, line in enumerate(lines) if MARK.match(line)), len(lines))
    if lines[last:] and not (END.match(lines[last]) and all(map(_is_blank, lines[last + 1 :]))):
        raise Unreadable("line %d" % (last + 1))
    del lines[last:]
    whole = "\n".join("" if _is_blank(line) else line for line in lines).strip()
    return _object(whole) if whole.startswith("{") else Reader("\n".join([*lines, ""])).mapping()


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
    found = [said(path, key) for path in [config, *_there(config + ".d")]]
    return next(filter(None, reversed(found)), "")


def is_dropped_in(key: str, folder: str = DROP_INS) -> bool:
    """Whether a drop-in has this key, whatever it says by it."""
    return any(_has(path, key) for path in _there(folder))


def _has(path: str, key: str) -> bool:
    try:
        return {key, key + "+"} & set(load(path)) != set()
    except OSError:
        return False
    except Unreadable:
        return said(path, key) != ""


def _there(folder: str) -> list:
    try:
        return drop_ins(folder)
    except OSError:
        return []


def said(path: str, key: str) -> str:
    """What a file says by this key; one that is not understood is searched, and one that is not there says nothing."""
    try:
        found = load(path)
        return found.get(key + "+") or found.get(key, "")
    except OSError:
        return ""
    except Unreadable:
        with open(path, encoding="utf-8-sig", errors="replace") as source:
            return "".join(re.findall(LOOSE % re.escape(key), source.read(), re.MULTILINE)[-1:])
