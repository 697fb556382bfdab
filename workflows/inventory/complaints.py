"""What Ansible said of an inventory that it cannot read → one sentence with the place, and what to do.

Ansible repeats the line that it stumbled over, with every password in it: here stands the number of that line instead.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from workflows.inventory.model import BadInventory
from workflows.spec import secrecy

OF_SCRIPT = "Standard error from inventory script:"
"""What stands in Ansible's words before a script's own."""
LARGEST = 1 << 20
"""A larger file is not looked into for the place of an error."""
_ONE = "Failed to parse inventory with '(script|yaml|ini)' plugin: (.*)"
_WHOLE = "[ERROR]: Completely failed to parse inventory source "
_LINE = (
    re.compile(r"Error parsing host definition '(?P<line>.*)': (?P<why>.*)"),
    re.compile(r"(?P<why>Expected .*), got: (?P<line>.*)"),
)
"""Words of the plugin `ini` that have a line of the file, or a part of it, in them."""
_KIND = re.compile(r"\"?<class '[\w.]*?(?:_AnsibleTagged)?(List|Str|Int|Float|Dict|dict|list|str|int|float)'>\"?( instead)?")
_KINDS = {"list": "a list", "str": "a text", "int": "a number", "float": "a number", "dict": "a mapping"}
_VARIABLES = ("group_vars", "host_vars")
_MOST_FILES = 500


def refusal(said: str, named: Path, source: Path) -> BadInventory:
    """The error for what Ansible wrote to stderr; `source` is what it was given in the place of `named`."""
    rows = [line.strip() for line in said.splitlines() if line.strip()]
    told = {match[1]: match[2] for row in rows if (match := re.fullmatch(rf"\[WARNING\]: {_ONE}", row))}
    whole = next((row.removeprefix(_WHOLE) for row in rows if row.startswith(_WHOLE)), "")
    file = Path(whole) if whole and Path(whole) != source else named
    why = _of_plugins(told, file) if told else _of_error(rows, file) if not whole else "it is no inventory of a form that is known"
    place = f"{file}: " if file != named else ""
    return BadInventory(f"Ansible cannot read {named}: {place}{why}{_last_of_script(said)}", _hint(said, named))


def _of_plugins(told: Mapping[str, str], file: Path) -> str:
    """What the plugin says whose form the file has; those of the others are about a form that it was never meant to have."""
    if "script" in told:
        return _plain(told["script"])
    text = _text(file)
    if "ini" in told and ("yaml" not in told or re.search(r"^\s*\[", text, re.MULTILINE)):
        return _of_ini(_plain(told["ini"]), text)
    mark = _mark(text)
    return f"{mark}{': ' if mark else ''}{_plain(told['yaml'])}"


def _of_ini(why: str, text: str) -> str:
    for form in _LINE:
        if match := form.fullmatch(why):
            return f"{_lines_with(match['line'], text)}{match['why']}"
    return why


def _lines_with(part: str, text: str) -> str:
    """Which lines of a file may be meant, by what Ansible repeats of one."""
    rows = [row.strip() for row in text.splitlines()]
    found = [n for n, row in enumerate(rows, 1) if row == part] or [n for n, row in enumerate(rows, 1) if part and part in row]
    return f"line {' or '.join(map(str, found[:3]))}: " if found else ""


def _mark(text: str) -> str:
    """Where a YAML file ends to be one; Ansible's plugin keeps that to itself."""
    try:
        for _ in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            pass
    except yaml.MarkedYAMLError as wrong:
        mark = wrong.problem_mark or wrong.context_mark
        return f"line {mark.line + 1}" if mark else ""
    except (yaml.YAMLError, RecursionError):
        return ""
    return ""


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace") if file.is_file() and file.stat().st_size <= LARGEST else ""
    except OSError:
        return ""


def _of_error(rows: list[str], file: Path) -> str:
    """The first error; where it is one of a file of variables, which of them that is."""
    errors = [row for row in rows if row.startswith(("[ERROR]", "ERROR", "MemoryError"))] or rows[-1:] or ["it says nothing"]
    place = next(_marks(file), "") if "YAML parsing failed" in errors[0] else ""
    return f"{place}{_plain(errors[0])}"


def _marks(file: Path) -> Iterator[str]:
    """The files of variables beside an inventory that are no YAML, each with its line."""
    folder = file if file.is_dir() else file.parent
    every = (path for name in _VARIABLES for path in sorted((folder / name).rglob("*")))
    for path in itertools.islice(every, _MOST_FILES):
        if mark := _mark(_text(path)):
            yield f"{path}: {mark}: "


def _plain(words: str) -> str:
    """Ansible's words without what it is called inside, and without the credentials that can be told by their form."""
    text = words.removeprefix("[ERROR]: ").removeprefix("Failed to parse inventory: ").removesuffix(" and got:")
    text = _KIND.sub(lambda match: _KINDS[match[1].lower()], text)[:600]
    return secrecy.REDACTED if secrecy.form_of(text) else text


def _last_of_script(said: str) -> str:
    """The last line that a script wrote of its error; a credential in it is not told."""
    _, _, told = said.partition(f"\n{OF_SCRIPT}\n")
    rows = [line.strip() for line in told.partition("\n[ERROR]")[0].splitlines() if line.strip()]
    if not rows:
        return ""
    return f" Its last words: {secrecy.REDACTED if _is_secret(rows[-1]) else rows[-1][:300]}"


def _is_secret(row: str) -> bool:
    """Whether a line has a credential in it: by its form, or because it says so (`token=…`, `"password": …`, `Bearer …`)."""
    named = re.findall(r"([\w.-]+)[\"']?\s*[=:]\s*\S", row)
    shown = secrecy.form_of(row) is not None or re.search(r"(?i)\b(bearer|basic) \S{8}", row) is not None
    return shown or any(secrecy.names_secret(name) for name in named)


def _hint(said: str, named: Path) -> str:
    if "vault" in said.lower():
        return "name the file with the vault's password: --vault-password-file FILE"
    if "MemoryError" in said:
        return "a range in it names more hosts than anybody has"
    if "Plugin configuration YAML file" in said or (_WHOLE in said and "Failed to parse" not in said):
        return f"where Ansible itself can: ansible-inventory --list -i {named} > hosts.json, then name hosts.json"
    return f"see what Ansible says: ansible-inventory --list -i {named}"
