"""Turn Ansible's errors about an unreadable inventory into one sentence with the place, and a hint.

Ansible repeats the line at fault with any password in it. The sentence has the number of the line instead.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from workflows.inventory.model import BadInventory
from workflows.spec.parsing import secrecy

OF_SCRIPT = "Standard error from inventory script:"
"""Text that Ansible prints before the stderr of an inventory script."""
LARGEST = 1 << 20
"""Size limit in bytes of a file that is searched for the place of an error."""
_ONE = "Failed to parse inventory with '(script|yaml|ini)' plugin: (.*)"
_WHOLE = "[ERROR]: Completely failed to parse inventory source "
_LINE = (
    re.compile(r"Error parsing host definition '(?P<line>.*)': (?P<why>.*)"),
    re.compile(r"(?P<why>Expected .*), got: (?P<line>.*)"),
)
"""Errors of Ansible's plugin `ini` that quote a line of the file or a part of it."""
_KIND = re.compile(r"\"?<class '[\w.]*?(?:_AnsibleTagged)?(List|Str|Int|Float|Dict|dict|list|str|int|float)'>\"?( instead)?")
_KINDS = {"list": "a list", "str": "a text", "int": "a number", "float": "a number", "dict": "a mapping"}
_VARIABLES = ("group_vars", "host_vars")
_MOST_FILES = 500


def inventory_error(stderr: str, named: Path, source: Path) -> BadInventory:
    """Return Ansible's `stderr` as an error about `named`; `source` is the file that Ansible was given in its place."""
    rows = [line.strip() for line in stderr.splitlines() if line.strip()]
    messages = {match[1]: match[2] for row in rows if (match := re.fullmatch(rf"\[WARNING\]: {_ONE}", row))}
    whole = next((row.removeprefix(_WHOLE) for row in rows if row.startswith(_WHOLE)), "")
    file = Path(whole) if whole and Path(whole) != source else named
    why = "it is no inventory of a form that is known" if whole else ""
    why = _of_plugins(messages, file) if messages else why or _of_error(rows, file)
    place = f"{file}: " if file != named else ""
    return BadInventory(f"Ansible cannot read {named}: {place}{why}{_last_of_script(stderr)}", _hint(stderr, named))


def _of_plugins(messages: Mapping[str, str], file: Path) -> str:
    """Return the message of the inventory plugin for the file's form; other plugins complain about a form that it does not have."""
    if "script" in messages:
        return _plain(messages["script"])
    text = _text(file)
    if "ini" in messages and ("yaml" not in messages or re.search(r"^\s*\[", text, re.MULTILINE)):
        return _of_ini(_plain(messages["ini"]), text)
    mark = _mark(text)
    return f"{mark}{': ' if mark else ''}{_plain(messages['yaml'])}"


def _of_ini(why: str, text: str) -> str:
    for form in _LINE:
        if match := form.fullmatch(why):
            return f"{_lines_with(match['line'], text)}{match['why']}"
    return why


def _lines_with(part: str, text: str) -> str:
    """Return `line 3: ` or `line 3 or 7: `, the lines that hold the text quoted by Ansible; empty if there is none."""
    rows = [row.strip() for row in text.splitlines()]
    numbers = [n for n, row in enumerate(rows, 1) if row == part] or [n for n, row in enumerate(rows, 1) if part and part in row]
    return f"line {' or '.join(map(str, numbers[:3]))}: " if numbers else ""


def _mark(text: str) -> str:
    """Return `line 3`, where a YAML text stops being valid, which Ansible's plugin does not report; empty if it is valid."""
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
    """Return Ansible's first error, preceded by the invalid file of variables if it is about one."""
    errors = [row for row in rows if row.startswith(("[ERROR]", "ERROR", "MemoryError"))] or rows[-1:] or ["it says nothing"]
    place = next(_marks(file), "") if "YAML parsing failed" in errors[0] else ""
    return f"{place}{_plain(errors[0])}"


def _marks(file: Path) -> Iterator[str]:
    """Yield file and line of each invalid YAML file in group_vars and host_vars beside an inventory."""
    folder = file if file.is_dir() else file.parent
    every = (path for name in _VARIABLES for path in sorted((folder / name).rglob("*")))
    for path in itertools.islice(every, _MOST_FILES):
        if mark := _mark(_text(path)):
            yield f"{path}: {mark}: "


def _plain(words: str) -> str:
    """Return Ansible's words without internal class names, redacted if they have the form of a credential."""
    text = words.removeprefix("[ERROR]: ").removeprefix("Failed to parse inventory: ").removesuffix(" and got:")
    text = _KIND.sub(lambda match: _KINDS[match[1].lower()], text)[:600]
    return secrecy.REDACTED if secrecy.form_of(text) else text


def _last_of_script(stderr: str) -> str:
    """Return a sentence with the last line that a script wrote to stderr, redacted if it holds a credential; empty without one."""
    _, _, output = stderr.partition(f"\n{OF_SCRIPT}\n")
    rows = [line.strip() for line in output.partition("\n[ERROR]")[0].splitlines() if line.strip()]
    if not rows:
        return ""
    return f" Its last words: {secrecy.REDACTED if _is_secret(rows[-1]) else rows[-1][:300]}"


def _is_secret(row: str) -> bool:
    """Return True if a line holds a credential, by its form or by a name such as `token=…`, `"password": …` or `Bearer …`."""
    named = re.findall(r"([\w.-]+)[\"']?\s*[=:]\s*\S", row)
    shown = secrecy.form_of(row) is not None or re.search(r"(?i)\b(bearer|basic) \S{8}", row) is not None
    return shown or any(secrecy.names_secret(name) for name in named)


def _hint(stderr: str, named: Path) -> str:
    if "vault" in stderr.lower():
        return "name the file with the vault's password: --vault-password-file FILE"
    if "MemoryError" in stderr:
        return "a range in it names more hosts than anybody has"
    if "Plugin configuration YAML file" in stderr or (_WHOLE in stderr and "Failed to parse" not in stderr):
        return f"where Ansible itself can: ansible-inventory --list -i {named} > hosts.json, then name hosts.json"
    return f"see what Ansible says: ansible-inventory --list -i {named}"
