"""Read an Ansible inventory as data, by ansible-core in a process of its own, without evaluating any template.

`ansible-inventory --list` merges groups, `group_vars/` and `host_vars/` by Ansible's rules and prints templates as written. Only
the inventory plugins `yaml` and `ini` are enabled, or `script` for an executable that the user named: other plugins, and
executables found in a folder, would run code that nobody asked for.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workflows.inventory import ansible_errors, capped_script
from workflows.inventory.model import BadInventory, Inventory

SECONDS = 120
"""Time limit of a reading in seconds. A script may ask a cloud or a CMDB; a file of 10,000 hosts takes a few seconds."""
LARGEST_FILE = 8 << 20
LARGEST_ANSWER = 64 << 20
MARK = ".says-too-much"
MOST_MEMORY = 1 << 30
"""Memory limit of the reading process in bytes: a range like `gpu[1:999999999]` must end this process, not the machine."""

_BOUNDED = (
    "import resource, runpy; resource.setrlimit(resource.RLIMIT_AS, ({0}, {0})); "
    "resource.setrlimit(resource.RLIMIT_CPU, ({1}, {1})); "
    "runpy.run_module('ansible', run_name='__main__', alter_sys=True)"
)
_OUR_GROUPS = {"all", "ungrouped", "_meta"}


def read(path: Path, vault_password_file: Path | None = None) -> Inventory:
    """Return an inventory: INI, YAML, a folder of them, JSON of a dynamic inventory, or an executable. Raises BadInventory."""
    path = path.absolute()
    if not path.exists():
        raise BadInventory(f"there is no inventory {path}", "give the path of a file, a folder or an executable")
    if not (path.is_file() or path.is_dir()):
        raise BadInventory(f"{path} is neither a file nor a folder", "write the inventory to a file, and name that")
    runs = is_program(path)
    if path.is_file() and path.stat().st_size > LARGEST_FILE and not runs:
        raise BadInventory(f"{path} is larger than {LARGEST_FILE >> 20} MiB", "name the inventory itself")
    with tempfile.TemporaryDirectory(prefix="bringup-inventory-") as folder:
        source = _as_capped(path, Path(folder)) if runs else _as_file(path, Path(folder))
        plugins = "script" if runs else "yaml,ini" if source == path else "yaml"
        return _model(_listed(source, path, Path(folder), plugins, vault_password_file))


def is_program(path: Path) -> bool:
    """Return True if an inventory is a program to run.

    On some file systems every file is executable, so the first bytes must be those of a script or an ELF program too.
    """
    if not (path.is_file() and os.access(path, os.X_OK)):
        return False
    with path.open("rb") as file:
        return file.read(4).startswith((b"#!", b"\x7fELF"))


def _as_file(path: Path, folder: Path) -> Path:
    """Return `path`; for JSON of a dynamic inventory, an equal inventory file in `folder` beside links to its variables."""
    answer = _answer(path)
    if answer is None:
        return path
    _link_variables(path, folder)
    file = folder / "answer.json"
    file.write_text(json.dumps(_as_inventory(answer)))
    return file


def _as_capped(path: Path, folder: Path) -> Path:
    """Return a script in `folder`, with links to group_vars and host_vars, that runs the user's script and limits its output."""
    _link_variables(path, folder)
    script = folder / path.name
    words = [sys.executable, "-IS", capped_script.__file__, str(LARGEST_ANSWER), str(SECONDS), str(folder / MARK), str(path)]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    script.chmod(0o700)
    return script


def _link_variables(path: Path, folder: Path) -> None:
    for name in ("group_vars", "host_vars"):
        if (path.parent / name).is_dir():
            (folder / name).symlink_to(path.parent / name)


def _answer(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None  # INI or YAML
    if not isinstance(data, dict):
        return None
    parts = [part for group in data.values() if isinstance(group, dict) for part in (group.get("hosts"), group.get("children"))]
    has_lists = any(isinstance(members, list) for members in (*data.values(), *parts))
    return data if "_meta" in data or has_lists else None


def _as_inventory(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the output of an inventory script (lists, variables in `_meta`) in the form of an inventory file (mappings)."""
    groups = {name: group if isinstance(group, dict) else {"hosts": group} for name, group in answer.items() if name != "_meta"}
    meta = answer.get("_meta")
    variables = meta.get("hostvars") if isinstance(meta, dict) else None
    inventory: dict[str, Any] = {name: _group(group) for name, group in groups.items()}
    if isinstance(variables, dict):
        known = inventory.setdefault("all", {}).setdefault("hosts", {})
        hosts = {host for group in groups.values() for host in _names(group.get("hosts"))}
        known |= {host: values for host, values in variables.items() if host in hosts or not groups}
    return inventory


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    members = {key: dict.fromkeys(_names(group.get(key))) for key in ("hosts", "children")}
    return {key: value for key, value in (*members.items(), ("vars", group.get("vars"))) if value}


def _names(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list | dict) else []


def _listed(source: Path, named: Path, folder: Path, plugins: str, vault: Path | None) -> Any:
    """Return the parsed output of `ansible-inventory --list`. Raises BadInventory about `named`, the file that the user named."""
    (folder / "ansible.cfg").write_text("[defaults]\n")
    program = ["-m", "ansible"] if plugins == "script" else ["-c", _BOUNDED.format(MOST_MEMORY, SECONDS)]
    command = [sys.executable, "-P", *program, "inventory", "--list", "--inventory", str(source)]
    command += ["--vault-password-file", str(vault.absolute())] if vault else []
    done = _run(command, named, _environment(folder, plugins))
    if (folder / MARK).exists():
        raise BadInventory(f"{named} says more than {LARGEST_ANSWER >> 20} MiB", "does the script end? have it list fewer hosts")
    if done.returncode != 0:
        raise ansible_errors.inventory_error(done.stderr.decode(errors="replace"), named, source)
    if len(done.stdout) > LARGEST_ANSWER:
        raise BadInventory(f"{named} gives more than {LARGEST_ANSWER >> 20} MiB", "read a part of it")
    return json.loads(done.stdout)


def _run(command: list[str], named: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process group of its own and kill the group at the end. Raises BadInventory after SECONDS."""
    cwd = named if named.is_dir() else named.parent
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
    ) as child:
        try:
            stdout, errors = child.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired as late:
            hint = "does the script wait for something?" if is_program(named) else "is it an inventory? YAML may unfold without end"
            raise BadInventory(f"{named} gave no answer within {SECONDS} s", hint) from late
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, child.returncode, stdout, errors)


def _environment(folder: Path, plugins: str) -> dict[str, str]:
    """Return the user's environment, which a script may need, without the user's settings of Ansible."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    return plain | {
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_INVENTORY_ENABLED": plugins,
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
    }


def _model(listed: Mapping[str, Any]) -> Inventory:
    variables = listed.get("_meta", {}).get("hostvars", {})
    groups = {name: _members(name, listed, set()) for name in listed if name not in _OUR_GROUPS}
    free = listed.get("ungrouped", {}).get("hosts", [])
    hosts = dict.fromkeys([*(host for members in groups.values() for host in members), *free, *variables])
    return Inventory(
        hosts={host: variables.get(host, {}) for host in hosts},
        groups={name: members for name, members in groups.items() if members},
        parents=frozenset(name for name in groups if not listed[name].get("hosts")),
    )


def _members(name: str, listed: Mapping[str, Any], seen: set[str]) -> tuple[str, ...]:
    """Return the hosts of a group and its children, each once and in order. Loops of groups are cut; Ansible refuses them."""
    if name in seen:
        return ()
    group = listed.get(name, {})
    below = [host for child in group.get("children", []) for host in _members(child, listed, seen | {name})]
    return tuple(dict.fromkeys([*group.get("hosts", []), *below]))
