"""Folders that a module file adds to the search of the dynamic loader (LD_LIBRARY_PATH), read from its text. Pure.

It reads Lua and Tcl as EasyBuild and Spack write them, such as `pathJoin(root, "lib", "sub")` and `"/a/lib", ":"`. Text that a
module computes in another way adds no folder: a library that comes from there alone counts as missing.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Final

VARIABLE: Final = "LD_LIBRARY_PATH"
_LUA_CALL: Final = re.compile(rf"\b(?:prepend_path|append_path|setenv|pushenv)\s*[({{]?\s*[\"']{VARIABLE}[\"']\s*,\s*(.*)")
_TCL_COMMAND: Final = re.compile(rf"^\s*(?:prepend-path|append-path|setenv|pushenv)\s+(?:-\S+\s+\S+\s+)?{VARIABLE}\s+(.*)")
_LUA_LOCAL: Final = re.compile(r"^\s*local\s+(\w+)\s*=\s*(.+)")
_TCL_SET: Final = re.compile(r"^\s*set\s+(\w+)\s+(.+)")
_LUA_VALUE: Final = re.compile(r"pathJoin\(([^()]*)\)|\"([^\"]*)\"|'([^']*)'|\[\[(.*?)\]\]|\[=+\[(.*?)\]=+\]|(\w+)")
_TCL_JOIN: Final = re.compile(r"\[\s*file\s+join\s+([^\]]*)\]")
_TCL_NAME: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def library_folders(text: str) -> tuple[str, ...]:
    """Return the absolute folders, without repetition, that a module file adds to LD_LIBRARY_PATH."""
    if VARIABLE not in text:
        return ()
    values = _of_tcl(text) if text.startswith("#%Module") else _of_lua(text)
    folders = (posixpath.normpath(folder) for value in values for folder in value.split(":") if folder.startswith("/"))
    return tuple(dict.fromkeys(folders))


def _of_lua(text: str) -> Iterator[str]:
    names = dict[str, str]()
    for line in text.splitlines():
        if variable := _LUA_LOCAL.match(line):
            names[variable[1]] = _lua_value(variable[2], names)
        elif not line.lstrip().startswith("--") and (call := _LUA_CALL.search(line)):
            yield _lua_value(call[1], names)


def _lua_value(text: str, names: Mapping[str, str]) -> str:
    """Return the first value of an argument list; empty for a name that no line above it defines."""
    value = _LUA_VALUE.match(text)
    if value is None:
        return ""
    if value[1] is not None:
        return posixpath.join(*(_lua_value(part.strip(), names).rstrip("/") or "" for part in value[1].split(",")))
    literal = next((part for part in value.groups()[1:5] if part is not None), None)
    return names.get(value[6], "") if literal is None else literal


def _of_tcl(text: str) -> Iterator[str]:
    names = dict[str, str]()
    for line in text.splitlines():
        if variable := _TCL_SET.match(line):
            names[variable[1]] = _tcl_value(variable[2], names)
        elif command := _TCL_COMMAND.match(line):
            yield _tcl_value(command[1], names)


def _tcl_value(text: str, names: Mapping[str, str]) -> str:
    """Return the first word of a command with its variables and `file join` replaced."""
    plain = _TCL_NAME.sub(lambda name: names.get(name[1] or name[2], ""), text)
    plain = _TCL_JOIN.sub(lambda call: posixpath.join(*(_unquoted(word) for word in call[1].split()), ""), plain)
    return _unquoted((plain.split() or [""])[0])


def _unquoted(word: str) -> str:
    return word.strip('"{}')
