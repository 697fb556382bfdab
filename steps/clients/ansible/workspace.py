"""The private folder of one play: inventory, SSH configuration, keys and variables."""

import io
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

import steps
from steps.clients.ansible import module_packing
from steps.clients.private_folder import private_folder
from steps.clients.ssh import configuration as ssh_configuration
from steps.clients.ssh import proxies
from steps.clients.ssh.first_contact_keys import FirstContactKeys
from steps.contract.host_play import ENDED, HostKeys, HttpProxy, Jump, PlayHost, PlayRequest, RoleArchive
from steps.errors import BadTask
from steps.stages.site_roles.contract import BadArchive, decode


def unpack(archive: RoleArchive, folder: Path) -> None:
    """Write the files of a role below `folder`. Raises BadTask if the archive does not match the task."""
    try:
        tar = decode(Path(archive.file).read_bytes(), archive)
        for name, mode, data in _members(archive, tar):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(mode)
    except BadArchive as bad:
        raise BadTask(str(bad), hint="render and submit the plan again") from bad
    except (OSError, tarfile.TarError) as error:
        raise BadTask(f"role {archive.name}: {error}") from error


def _members(archive: RoleArchive, tar: bytes) -> list[tuple[str, int, bytes]]:
    members = []
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as opened:
        for member in opened:
            parts = Path(member.name).parts
            # no links: a later member could be written through one, out of the folder
            content = opened.extractfile(member) if member.isfile() else None
            if content is None or not parts or Path(member.name).is_absolute() or ".." in parts:
                raise BadArchive(f"role {archive.name}: {member.name!r} is no file of a role")
            members.append((member.name, 0o755 if member.mode & 0o100 else 0o644, content.read()))
    return members


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_ADDRESS = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:_-]{0,252}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_PATH = re.compile(r"/[A-Za-z0-9._/+@-]{0,1000}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_IMPORTED = re.compile(r"^ +ansible\.builtin\.import_playbook: (\w+\.yml)$", re.MULTILINE)
_PLAYBOOK = re.compile(r"[a-z][a-z0-9_]{0,60}")
_CONTROL = re.compile(r"ansible_")
_TEMPLATE = re.compile(r"\{[{%#]")

PLAYED, HELPERS = "played", "helpers"
"""Names of the groups in every inventory: hosts that are played, and hosts that tasks may be delegated to."""


class Workspace(Struct, frozen=True):
    """The private folder of a play and the paths in it, which `workspace` makes and a transport passes to Ansible."""

    folder: Path
    playbooks: Path
    """Folder of playbooks, with roles and modules."""
    playbook: Path
    """A copy of the playbook. Modules beside the original would take precedence over the packed ones."""
    configuration: Path
    inventory: Path
    variables: Path
    sockets: Path
    roles: Path
    """Folder of the site's role; it exists only if the play has one."""
    library: Path
    """Folder of the Ansible modules that are packed for this play."""


def playbook_path(name: str) -> Path:
    """Return the path of a playbook, in the folder `playbooks/` beside package `steps`, in a checkout and in site-packages.

    Raises BadTask if there is none.
    """
    if not _PLAYBOOK.fullmatch(name):
        raise BadTask(f"{name!r} is no name of a playbook")
    path = Path(steps.__file__).resolve().parent.parent / "playbooks" / f"{name}.yml"
    if not path.is_file():
        raise BadTask(f"there is no playbook {name}", hint=f"playbooks lie in {path.parent}")
    return path


def marks_ends(name: str) -> bool:
    """Return True if a playbook, or one that it imports, sets the fact ENDED on each finished host."""
    return any(f"{ENDED}:" in path.read_text() for path in _with_imported(playbook_path(name)))


@contextmanager
def workspace(request: PlayRequest) -> Iterator[Workspace]:
    """Create the private folder (0700) of a play and remove it at the end. Raises BadTask (see `check`)."""
    playbook = playbook_path(request.playbook)
    check(request)
    with private_folder() as folder:
        yield _fill(folder, playbook, request)


def check(request: PlayRequest) -> None:
    """Raise BadTask for a value that would become an SSH option, a template, or a second inventory line."""
    # Ansible would merge two hosts of one name silently
    names = [host.name for host in request.reached]
    if not request.hosts or len(set(names)) != len(names):
        raise BadTask("a play needs hosts, each with a name of its own")
    for host in request.reached:
        _match(_NAME, host.name, "host name")
        _match(_PATH, host.python, f"python of {host.name}")
        _check_access(host.name, host)
        for jump in ssh_configuration.chain(host):
            _check_access(f"{host.name}'s jump host", jump)
        _check_variables(host.variables)
    for name in request.secret_variables:
        _match(_VARIABLE, name, "variable")
    for path in (request.known_hosts, request.met, *request.secret_variables.values()):
        if path:
            _match(_PATH, path, "path")
    _check_variables(request.variables)
    if request.host_keys is HostKeys.STRICT and not Path(request.known_hosts or "/nowhere").is_file():
        raise BadTask(
            f"host keys are to be verified, but there is no file {request.known_hosts or '(none named)'}",
            hint="give a known_hosts file: `bringup host-keys` makes it; or allow a first contact, host_key_policy: accept_new",
        )
    if request.host_keys is HostKeys.ACCEPT_NEW and not (request.met and os.access(request.met, os.W_OK | os.X_OK)):
        raise BadTask(
            f"keys of a first contact have to be kept, and no folder for them can be written{request.met and f': {request.met}'}",
            hint="let the run write its store, or verify host keys: host_key_policy: strict",
        )


def _check_access(what: str, access: PlayHost | Jump) -> None:
    _check_place(what, access)
    _match(_USER, access.user, f"user of {what}")
    if access.key_path:
        _match(_PATH, access.key_path, f"key of {what}")
    if access.proxy is not None:
        _check_place(f"the HTTP proxy before {what}", access.proxy)
        if access.proxy.password_path:
            _match(_PATH, access.proxy.password_path, f"password of the HTTP proxy before {what}")


def _check_place(what: str, access: PlayHost | Jump | HttpProxy) -> None:
    _match(_ADDRESS, access.address, f"address of {what}")
    if not 0 < access.port < 65536:
        raise BadTask(f"port of {what}: {access.port}")


def _check_variables(variables: dict[str, Any]) -> None:
    for name in variables:
        _match(_VARIABLE, name, "variable")
        # variables such as ansible_connection change what Ansible does on this machine
        if _CONTROL.match(name):
            raise BadTask(f"variable {name} would steer Ansible itself", hint="say how hosts are reached in the host's own fields")
    if _TEMPLATE.search(json.dumps(variables)):
        raise BadTask("a variable holds a template: Ansible would run it on the controller", hint="give the value itself")


def _match(pattern: re.Pattern[str], value: str, what: str) -> None:
    if not pattern.fullmatch(value):
        raise BadTask(f"{what}: {value!r} is not usable")


def _fill(folder: Path, playbook: Path, request: PlayRequest) -> Workspace:
    jumps = ssh_configuration.jumps(request.reached)
    key_paths = sorted({*(host.key_path for host in request.reached), *(jump.key_path for jump in jumps)} - {""})
    keys = {path: _copy_key(folder, number, path) for number, path in enumerate(key_paths)}
    space = Workspace(
        folder,
        playbook.parent,
        folder / playbook.name,
        folder / "ssh_config",
        folder / "inventory" / "hosts.json",
        folder / "variables.json",
        folder / "ssh",
        folder / "roles",
        folder / "library",
    )
    for subfolder in (space.sockets, space.inventory.parent, space.library):
        subfolder.mkdir()
    for path in _with_imported(playbook):
        (folder / path.name).write_text(path.read_text())
    for name, script in module_packing.modules(playbook.parent, request.playbook).items():
        (space.library / name).write_text(script)
    space.configuration.write_text(_configuration(request, keys, folder))
    space.inventory.write_text(json.dumps(_inventory(request, space.configuration)))
    if request.role is not None:
        _match(_PLAYBOOK, request.role.name, "role")
        unpack(request.role, space.roles / request.role.name)
    secrets = {name: _read(path).decode().strip() for name, path in request.secret_variables.items()}
    # Ansible evaluates templates in variables on this machine
    if any(_TEMPLATE.search(secret) for secret in secrets.values()):
        raise BadTask("a secret holds {{, {% or {#, which Ansible would read as a template", hint="choose another value")
    _write(space.variables, json.dumps({**request.variables, **secrets}).encode())
    return space


def _with_imported(playbook: Path) -> list[Path]:
    """Return a playbook and the playbooks that it imports, which are beside it."""
    playbooks = [playbook]
    for path in playbooks:
        playbooks += (path.with_name(name) for name in _IMPORTED.findall(path.read_text()))
    return playbooks


def _copy_key(folder: Path, number: int, path: str) -> Path:
    """Copy a private key into the play's folder, readable by this user alone and with a newline at its end; return its path."""
    # SSH refuses a key that its group can read, which is the mode of a mounted Secret
    copy = folder / f"key{number}"
    _write(copy, _read(path).rstrip() + b"\n")
    return copy


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadTask(f"secret {path}: {error.strerror}", hint="name the secret in the spec, and mount it") from error


def _write(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)  # before the content, which others must not read even for a moment
    path.write_bytes(data)


def _configuration(request: PlayRequest, keys: dict[str, Path], folder: Path) -> str:
    """Return the SSH configuration. Host keys are trusted from the spec's file, and from first contacts if the spec allows them."""
    known = str(folder / "known_hosts") if request.host_keys is HostKeys.OFF else request.known_hosts
    exchanges = () if request.post_quantum else ssh_configuration.key_exchanges(_ssh_settings())
    passwords = {
        proxy.password_path: _read(proxy.password_path) for proxy in proxies.distinct_proxies(request.reached) if proxy.user
    }
    return ssh_configuration.configuration(
        request.reached,
        keys,
        known=known or "none",
        check="no" if request.host_keys is HostKeys.OFF else "yes",
        exchanges=exchanges,
        proxies=proxies.commands(folder, request.reached, passwords),
        first_contacts=_first_contacts(request) if request.host_keys is HostKeys.ACCEPT_NEW else None,
    )


def _first_contacts(request: PlayRequest) -> FirstContactKeys:
    path = Path(request.known_hosts or "/nowhere")
    known = path.read_text(errors="replace") if path.is_file() else ""
    return FirstContactKeys(Path(request.met), known, (str(path),) if path.is_file() else ())


def _ssh_settings() -> str:
    """Return SSH's default settings; empty without SSH, in which case the play fails for every host."""
    try:
        return subprocess.run(["ssh", "-F", "none", "-G", "any"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def _inventory(request: PlayRequest, configuration: Path) -> dict[str, Any]:
    """Return the inventory: group `played` for the hosts of the play, and `helpers`, which tasks may only be delegated to."""
    groups = sorted({group for host in request.hosts for group in host.groups if group})
    return {
        "all": {
            "hosts": {host.name: _variables(host) for host in request.reached},
            "vars": {"ansible_ssh_common_args": f"-F {configuration}", "ansible_connection": "ssh"},
            "children": {
                PLAYED: {"hosts": {host.name: None for host in request.hosts}},
                HELPERS: {"hosts": {host.name: None for host in request.helpers}},
            }
            | {
                f"group_{re.sub(r'[^A-Za-z0-9_]', '_', group)}": {
                    "hosts": {host.name: None for host in request.hosts if group in host.groups}
                }
                for group in groups
            },
        }
    }


def _variables(host: PlayHost) -> dict[str, Any]:
    return {
        **host.variables,
        "bringup_address": host.address,
        "bringup_groups": list(host.groups),
        "ansible_user": host.user,
        "ansible_port": host.port,
        "ansible_python_interpreter": host.python,
        "ansible_become": host.user != "root",
    }
