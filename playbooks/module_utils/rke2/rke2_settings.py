"""Reader of RKE2's settings: config.yaml and the drop-ins beside it, which are read later and win (configfilearg of K3s).

A host's Python may lack a YAML parser. A reader of our own (`yaml_reader`) then reads JSON objects and lists of keys, and refuses
everything else, because an overlooked key would win unseen. With a parser, that reader decides on texts the parser refuses, such as
the tabs that RKE2 accepts.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from ansible.module_utils.rke2.yaml_reader import NOTHING, SettingsReader, SettingsUnreadable

try:
    import yaml
except ImportError:  # not every node has it, and nothing is installed for it
    yaml = None  # type: ignore[assignment]

YAML: Any = yaml
CONFIG = "/etc/rancher/rke2/config.yaml"
DROP_INS = CONFIG + ".d"
OURS = "# Made by bringup."
ENDINGS = (".yaml", ".yml")
SHORT_NAMES = {"t": "token", "s": "server", "d": "data-dir", "i": "node-ip", "o": "write-kubeconfig"}
"""Short name of a flag → its long name; RKE2 accepts both as keys of config.yaml."""
FORBIDDEN_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]|\r(?!\n)")
"""Characters that YAML forbids or takes for a line end."""
BEGIN = re.compile(r"---[ \t]*(?:(?<=[ \t])#.*)?$")
END = re.compile(r"\.\.\.[ \t]*(?:(?<=[ \t])#.*)?$")
MARK = re.compile(r"(?:---|\.\.\.)(?:[ \t]|$)")
"""A line that begins or ends a YAML document, even inside quotes and brackets."""
LOOSE = r"^[ \t{,]*[\"']?%s\+?[\"']? *:[ \t]*[\"']?([^\s\"',}]+)"


def parse(text: str, parser: Any = YAML) -> dict:
    """Return the keys of a YAML text's outermost mapping with their values; a value that is no single text becomes empty.

    Raises SettingsUnreadable if the text may have keys that cannot be seen. `parser` is the module `yaml`, or None.
    """
    text = text[1:] if text.startswith("\ufeff") else text
    if FORBIDDEN_CHARACTERS.search(text):
        raise SettingsUnreadable("a character that no settings have")
    whole = text.strip()
    if whole.startswith("{"):
        try:
            return _parse_object(whole)
        except SettingsUnreadable:
            if parser is None:
                raise
    node = None
    if parser is not None:
        try:
            node = parser.compose(text, Loader=parser.SafeLoader)
        except (parser.YAMLError, ValueError, OverflowError, RecursionError):
            return _parse_lines(text)
    return _parse_lines(text) if node is None else _from_yaml_node(node, parser)


def _from_yaml_node(node: Any, parser: Any) -> dict:
    """Return key → value from the node tree of a YAML parser, whose scalars still have their written form.

    Raises SettingsUnreadable.
    """
    if isinstance(node, parser.ScalarNode) and not node.value and not node.style:
        return {}
    if not isinstance(node, parser.MappingNode):
        raise SettingsUnreadable("line %d" % (node.start_mark.line + 1))
    keys = {}
    for key, value in node.value:
        if not isinstance(key, parser.ScalarNode) or key.value == "<<":  # keys of another place would be keys here
            raise SettingsUnreadable("line %d" % (key.start_mark.line + 1))
        is_text = isinstance(value, parser.ScalarNode) and value.style not in ("|", ">")
        keys[key.value] = value.value if is_text and (value.style or value.value not in NOTHING) else ""
    return keys


def _parse_lines(text: str) -> dict:
    """Return key → value of a YAML text without a YAML parser. Raises SettingsUnreadable."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    first = next((number for number, line in enumerate(lines) if not _is_blank(line)), len(lines))
    if lines[first : first + 1] and BEGIN.match(lines[first]):
        lines[first] = ""
    last = next((number for number, line in enumerate(lines) if MARK.match(line)), len(lines))
    if lines[last:] and not (END.match(lines[last]) and all(map(_is_blank, lines[last + 1 :]))):
        raise SettingsUnreadable("line %d" % (last + 1))
    del lines[last:]
    whole = "\n".join("" if _is_blank(line) else line for line in lines).strip()
    return _parse_object(whole) if whole.startswith("{") else SettingsReader("\n".join([*lines, ""])).mapping()


def _is_blank(line: str) -> bool:
    return line.strip(" ") == "" or line.lstrip(" ").startswith("#")


def _parse_object(text: str) -> dict:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsUnreadable("it is no JSON, though it begins so (%s)" % error) from None
    return {key: _shown(value) for key, value in parsed.items()}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (str, int, float)) else ""


def drop_ins(folder: str = DROP_INS) -> list:
    """Return the paths of the drop-ins that RKE2 reads, in the order in which it reads them. Raises OSError."""
    # like `dotDFiles` of K3s: in the order of bytes, endings in any case, and links even if they lead to folders
    names = sorted(os.listdir(folder), key=os.fsencode) if os.path.isdir(folder) else []
    paths = [os.path.join(folder, name) for name in names if name.lower().endswith(ENDINGS)]
    return [path for path in paths if os.path.islink(path) or not os.path.isdir(path)]


def load(path: str) -> dict:
    """Return key → value of a settings file, by long names; a key that appends ends in +. Raises SettingsUnreadable and OSError."""
    with open(path, "rb") as source:
        data = source.read()
    try:
        keys = parse(data.decode())
    except UnicodeDecodeError:
        raise SettingsUnreadable("it is not UTF-8") from None
    return {SHORT_NAMES.get(key.rstrip("+"), key.rstrip("+")) + "+" * key.endswith("+"): value for key, value in keys.items()}


def effective_value(key: str, config: str = CONFIG) -> str:
    """Return the value that RKE2 uses for a key: that of the last file which sets it; empty if none does."""
    values = [file_value(path, key) for path in [config, *_readable_drop_ins(config + ".d")]]
    return next(filter(None, reversed(values)), "")


def is_in_drop_in(key: str, folder: str = DROP_INS) -> bool:
    """Return True if a readable drop-in has this key, with any value."""
    return any(_has(path, key) for path in _readable_drop_ins(folder))


def _has(path: str, key: str) -> bool:
    try:
        return {key, key + "+"} & set(load(path)) != set()
    except OSError:
        return False
    except SettingsUnreadable:
        return file_value(path, key) != ""


def _readable_drop_ins(folder: str) -> list:
    try:
        return drop_ins(folder)
    except OSError:
        return []


def file_value(path: str, key: str) -> str:
    """Return a file's value for a key; empty if the file is missing or lacks it.

    A file that cannot be parsed is searched by pattern.
    """
    try:
        keys = load(path)
        return keys.get(key + "+") or keys.get(key, "")
    except OSError:
        return ""
    except SettingsUnreadable:
        with open(path, encoding="utf-8-sig", errors="replace") as source:
            return "".join(re.findall(LOOSE % re.escape(key), source.read(), re.MULTILINE)[-1:])
