"""Convert connection variables of an inventory: address, user, port, key, jump hosts and known_hosts of each host."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workflows.spec.sections import hosts

_NAMES = {
    "address": ("ansible_host", "ansible_ssh_host"),
    "user": ("ansible_user", "ansible_ssh_user"),
    "port": ("ansible_port", "ansible_ssh_port"),
    "key": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
    "python": ("ansible_python_interpreter",),
}
_ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
"""Variables with SSH arguments, in the order in which Ansible passes them. SSH uses the first of repeated options."""
_HOPS = {"proxyjump", "proxycommand"}
"""SSH options that name what stands before a host. They exclude each other: the first one counts."""
_THROUGH = {"jump", "proxy"}
"""Fields of `HostAccess` that the options of `_HOPS` set."""
_SSH = re.compile(r"((ansible\.builtin\.)?(ssh|smart|paramiko|paramiko_ssh)|ansible\.netcommon\.libssh)?")
_SILENT = {"ansible_become", "ansible_become_method", "ansible_become_user", "ansible_group_priority", "inventory_hostname"}
"""Variables that need no note, since a spec implies them: any user but root becomes root by sudo."""
_FORMS = {
    "address": re.compile(r"[A-Za-z0-9:]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?"),
    "user": re.compile(r"[a-z_][a-z0-9_-]{0,31}"),
    "key": re.compile(r"[^\x00\n]{1,1000}"),
    "python": re.compile(hosts.PYTHON),
}
_JUMP = re.compile(hosts.JUMP_HOSTS)
SSH_PROXY = "bringup_ssh_proxy"
"""Inventory variable with the HTTP proxy that SSH goes through, also before a jump host; `inventory_export` writes it."""
_PROXY_OPTIONS = {"nc": "-x", "ncat": "--proxy", "connect": "-H", "connect-proxy": "-H"}
"""Programs that connect through an HTTP proxy → their option for its address."""
_PROXY_HTTP = {"-X": "connect", "--proxy-type": "http"}
_VALUED = "BbcDEeFIiJLlmOopQRSWw"
"""Letters of SSH options that take a value."""
_FLAGS = re.compile(r"-[46ACaknqTtvXx]+")
_HARMLESS = re.compile(r"(control|serveralive|connect|batch|forwardagent|log|compression)\w*")
_VAULT = "__ansible_vault"
_ENCRYPTED = "it is encrypted (--vault-password-file FILE)"
_TEMPLATE = "it is a template, which is never evaluated: write the value itself"
_LOGIN = "ssh: {http_proxy_user: NAME, http_proxy_password: {env: PROXY_PASSWORD}}"


@dataclass(frozen=True, kw_only=True)
class HostAccess:
    """Access to a host: how SSH reaches it. A field is empty or 0 if the inventory leaves the setting to SSH.

    `lost` are variables that were not converted, each with the reason. `own` are the names of all variables that are not Ansible's.
    """

    address: str = ""
    user: str = ""
    port: int = 0
    key: str = ""
    python: str = ""
    jump: str = ""
    proxy: str = ""
    known_hosts: str = ""
    is_local: bool = False
    lost: tuple[tuple[str, str], ...] = ()
    own: tuple[str, ...] = ()


def host_access(variables: Mapping[str, Any]) -> HostAccess:
    """Return how a host is reached, from its variables, into which Ansible has merged those of its groups."""
    fields: dict[str, Any] = {}
    lost: list[tuple[str, str]] = []
    for field, names in _NAMES.items():
        for name in names:
            if name in variables and field not in fields:
                value, why = _value(field, variables[name])
                fields |= {field: value} if not why else {}
                lost += [(name, why)] if why else []
    for name in _ARGUMENTS:
        if name in variables:
            options, refused = _options(variables[name])
            taken = fields.keys() | (_THROUGH if fields.keys() & _THROUGH else set())
            fields |= {key: value for key, value in options.items() if key not in taken}
            lost += [(name, why) for why in refused]
    if hosts.SSH_PROXY.fullmatch(str(variables.get(SSH_PROXY, ""))):
        fields["proxy"] = variables[SSH_PROXY]
    known = {*_ARGUMENTS, *(name for names in _NAMES.values() for name in names)}
    lost += [(name, _why(name)) for name in sorted(variables) if _is_ansibles(name) and name not in known | _SILENT and _why(name)]
    own = tuple(sorted(name for name in variables if not _is_ansibles(name) and not name.startswith("bringup_")))
    local = not _SSH.fullmatch(str(variables.get("ansible_connection") or ""))
    return HostAccess(**fields, is_local=local, lost=tuple(lost), own=own)


def _is_ansibles(name: str) -> bool:
    return name.startswith("ansible_") or name in _SILENT


def _value(field: str, raw: Any) -> tuple[Any, str]:
    """Return a variable's value and an empty text, or an empty value and the reason why it cannot be used."""
    if isinstance(raw, Mapping) and _VAULT in raw:
        return "", _ENCRYPTED
    if isinstance(raw, str) and ("{{" in raw or "{%" in raw):
        return "", _TEMPLATE
    text = str(raw)
    if field == "port":
        fits = text.isdecimal() and 0 < int(text[:6]) < 65536
        return (int(text), "") if fits else (0, "it is no port")
    if field == "python" and text.startswith("auto"):
        return "", ""  # a search for one
    return (text, "") if _FORMS[field].fullmatch(text) else ("", f"a spec has no {field} of this form")


def _why(name: str) -> str:
    if name in ("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass"):
        return "secrets are given by reference: ssh: {sudo_password: {env: SUDO_PASSWORD}}"
    if name in ("ansible_password", "ansible_ssh_pass"):
        return "bringup logs in by key: ssh: {key: {file: PATH}}"
    if name == "ansible_host_key_checking":
        return "host keys are verified: `bringup host-keys` enrols them"
    return "" if name == "ansible_connection" else "a spec has no place for it"


def _options(raw: Any) -> tuple[dict[str, str], list[str]]:
    """Return the fields of `HostAccess` that SSH arguments set, and notes about all other arguments.

    Notes repeat no value, which may be a password.
    """
    if why := _unread(raw):
        return {}, [why]
    fields: dict[str, str] = {}
    refused: list[str] = []
    for option, value in _pairs(str(raw or "")):
        if option in _HOPS:
            hop, lost = _hop(option, value) if not fields.keys() & _THROUGH else ({}, [])
            fields |= hop
            refused += lost
        elif option == "userknownhostsfile" and value != "/dev/null" and "{{" not in value:
            fields.setdefault("known_hosts", _first(value))
        elif option in ("stricthostkeychecking", "userknownhostsfile"):
            if value.lower() in ("yes", "ask"):
                continue
            refused.append("host keys are verified: `bringup host-keys` enrols them")
        elif option == "identityfile":
            key, why = _value("key", value)
            fields |= {"key": key} if not why and "key" not in fields else {}
            refused += [why] if why else []
        elif not _HARMLESS.fullmatch(option):
            refused.append(f"a spec has no place for {option if ' ' in option else f'the SSH option {option}'}")
    return fields, list(dict.fromkeys(refused))


def _unread(raw: Any) -> str:
    """Return the reason why SSH arguments cannot be read, or an empty text."""
    if isinstance(raw, Mapping) and _VAULT in raw:
        return _ENCRYPTED
    if isinstance(raw, str):
        return _TEMPLATE if raw.lstrip().startswith(("{{", "{%")) else ""
    return "" if raw is None else "it is no text"


def _hop(option: str, value: str) -> tuple[dict[str, str], list[str]]:
    """Return the jump host or proxy of an SSH option as a field of `HostAccess`, and notes about what was left out.

    The value `none` gives an empty jump host, which overrides one that the group would set.
    """
    if value.lower() == "none":
        return {"jump": ""}, []
    jump = value if option == "proxyjump" and _JUMP.fullmatch(value) else _jump(value) if option == "proxycommand" else ""
    if jump:
        return {"jump": jump}, []
    proxy, user = _proxy(value) if option == "proxycommand" else ("", "")
    if proxy:
        return {"proxy": proxy}, [f"its user {user}: a login is given as {_LOGIN}"] if user else []
    return {}, [f"a spec has no place for the SSH option {option}"]


def _first(files: str) -> str:
    """Return the first path of a list of files; a path with spaces is in double quotes."""
    match = re.match(r'"([^"]+)"|(\S+)', files)
    return (match[1] or match[2]) if match else ""


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield option (in lower case) and value of each SSH argument. Words that are no option are described instead of repeated."""
    try:
        words = shlex.split(text)
    except ValueError:
        yield "an SSH option with an open quote", ""
        return
    named = {"-J": "proxyjump", "-i": "identityfile"}
    while words:
        word = words.pop(0)
        name, value = word[:2], word[2:]
        if not word.startswith("-") or word == "-":
            yield "words that belong to no SSH option: does a value need quotes?", ""
        elif word.startswith("--"):
            yield f"the SSH option {word.partition('=')[0]}", ""
        elif name[1] in _VALUED:
            value = value or (words.pop(0) if words else "")
            yield _assigned(value) if name == "-o" else (named.get(name, f"the SSH option {name}"), value)
        elif not _FLAGS.fullmatch(word):
            yield f"the SSH option {name}", ""


def _assigned(text: str) -> tuple[str, str]:
    """Return option (in lower case) and value of `-o OPTION=VALUE` or `-o "OPTION VALUE"`."""
    option, _, value = text.partition("=") if "=" in text else text.partition(" ")
    name = option.strip().lower()
    return (name if name.isalnum() else "an SSH option that is none"), value.strip()


def _proxy(command: str) -> tuple[str, str]:
    """Return URL and user of the HTTP proxy in a command of a usual proxy program; empty texts for any other command."""
    program, *words = command.split() or [""]
    name = program.rpartition("/")[2].removesuffix(".openbsd")
    if name == "corkscrew" and len(words) == 4:
        name, words = "connect", ["-H", ":".join(words[:2]), *words[2:]]
    options = dict(zip(words[:-2:2], words[1:-2:2], strict=False))
    url = f"http://{options.pop(_PROXY_OPTIONS.get(name, ''), '')}"
    user = options.pop("-P", "") if name == "nc" else ""
    plain = len(words) % 2 == 0 and words[-2:] == ["%h", "%p"] and options.items() <= _PROXY_HTTP.items()
    return (url, user) if plain and hosts.SSH_PROXY.fullmatch(url) and (name != "nc" or "-X" in options) else ("", "")


def _jump(command: str) -> str:
    """Return the jump host in `ssh -W %h:%p [-q] [-p PORT] user@bastion`; empty for any other command."""
    words = command.split()
    if not words or words[0].rpartition("/")[2] != "ssh" or "%h:%p" not in command:
        return ""
    target, port, rest = "", "", words[1:]
    while rest:
        word = rest.pop(0)
        if word == "-W" and rest:
            rest.pop(0)
        elif word == "-p" and rest:
            port = rest.pop(0)
        elif word in ("-q", "-W%h:%p", "-A"):
            continue
        elif not word.startswith("-") and not target:
            target = word
        else:
            return ""
    jump = f"{target}:{port}" if port else target
    return jump if _JUMP.fullmatch(jump) and "," not in jump else ""
