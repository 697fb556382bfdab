"""Replacement for `ansible.module_utils.basic` in a packed module: it has only arguments, commands and results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import syslog
from typing import Any, Dict, Iterator, NoReturn, Optional

ARGUMENTS: Any = b"{}"
"""The module's arguments as JSON. Keys that begin with `_ansible_` are Ansible's own."""

HIDDEN = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
"""Text that stands for a result which is a secret as a whole, as Ansible writes it; within a text eight stars do."""

TRUE, FALSE = ("y", "yes", "on", "1", "true", "t", "1.0"), ("n", "no", "off", "0", "false", "f", "0.0")


class AnsibleModule:
    """The part of Ansible's class of this name that bringup's modules use, with equal names and results."""

    def __init__(self, argument_spec: Dict[str, Any], supports_check_mode: bool = False) -> None:
        arguments = json.loads(ARGUMENTS)
        self.check_mode = bool(arguments.get("_ansible_check_mode"))
        self._diff = bool(arguments.get("_ansible_diff"))
        self._secrets: list = []
        if not arguments.get("_ansible_no_log"):
            _log(arguments, "Invoked%s" % (" in check mode" if self.check_mode else ""))
        if self.check_mode and not supports_check_mode:
            self.exit_json(skipped=True, msg="remote module does not support check mode")
        try:
            self.params = _settled(
                "", argument_spec, {key: value for key, value in arguments.items() if not key.startswith("_ansible_")}
            )
        except ValueError as error:
            self.fail_json(msg=str(error))
        self._secrets = sorted(_secrets(argument_spec, self.params), key=len, reverse=True)

    def run_command(
        self,
        args: list,
        cwd: Optional[str] = None,
        environ_update: Optional[Dict[str, str]] = None,
        handle_exceptions: bool = True,
    ) -> tuple:
        """Return exit code, standard output and standard error of a command.

        If it cannot be started the module fails, or with `handle_exceptions` off OSError is raised.
        """
        try:
            done = subprocess.run(
                args,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(os.environ, **(environ_update or {})),
                check=False,
            )
        except OSError as error:
            if not handle_exceptions:
                raise
            self.fail_json(msg="Error executing command: %s" % error, rc=error.errno, cmd=" ".join(args))
        return done.returncode, *(text.decode(errors="surrogateescape") for text in (done.stdout, done.stderr))

    def exit_json(self, **result: Any) -> NoReturn:
        """Print the result as JSON, without the values of secret arguments, and exit with 0."""
        print(json.dumps(_masked({"changed": False, **result}, self._secrets)))
        sys.exit(0)

    def fail_json(self, msg: str, **result: Any) -> NoReturn:
        """Print a failed result with the reason `msg` as JSON and exit with 1."""
        print(json.dumps(_masked({"failed": True, "msg": msg, **result}, self._secrets)))
        sys.exit(1)


def _secrets(spec: Dict[str, Any], values: Dict[str, Any]) -> Iterator[str]:
    """Yield the texts of arguments that are marked `no_log`, also of those in lists of options."""
    for name, rule in spec.items():
        value = values.get(name)
        if rule.get("no_log") and value:
            yield str(value)
        elif "options" in rule and value:
            for each in value if isinstance(value, list) else [value]:
                yield from _secrets(rule["options"], each)


def _masked(value: Any, secrets: list) -> Any:
    """Return a result with Ansible's own placeholder in place of each secret text that occurs in it."""
    if isinstance(value, dict):
        return {key: _masked(item, secrets) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(item, secrets) for item in value]
    if isinstance(value, str):
        for secret in secrets:
            value = HIDDEN if value == secret else value.replace(secret, "*" * 8)
    return value


def _log(arguments: Dict[str, Any], text: str) -> None:
    """Write a line to the machine's syslog, under the name and facility that Ansible passes to the module."""
    name = str(arguments.get("_ansible_module_name", "module"))
    facility = getattr(syslog, str(arguments.get("_ansible_syslog_facility")), syslog.LOG_USER)
    syslog.openlog("ansible-" + name.rpartition(".")[2], 0, facility)
    syslog.syslog(syslog.LOG_INFO, " ".join([*filter(None, [arguments.get("_ansible_target_log_info")]), text]))


def _settled(where: str, spec: Dict[str, Any], arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Return the module's arguments with defaults and types applied.

    Raises ValueError for an unknown, missing or wrong argument.
    """
    unknown = sorted(set(arguments) - set(spec))
    if unknown:
        raise ValueError(
            "Unsupported parameters: %s. Supported parameters include: %s." % (_named(where, unknown), ", ".join(sorted(spec)))
        )
    missing = sorted(name for name, rule in spec.items() if rule.get("required") and arguments.get(name) is None)
    if missing:
        raise ValueError("missing required arguments: %s" % _named(where, missing))
    return {name: _argument(where + name, rule, arguments.get(name)) for name, rule in spec.items()}


def _named(where: str, names: list) -> str:
    return ", ".join(where + name for name in names)


def _argument(where: str, rule: Dict[str, Any], value: Any) -> Any:
    if value is None:
        value = {} if rule.get("apply_defaults") else rule.get("default")
        if value is None:
            return None
    value = _typed(where, rule.get("type", "str"), value)
    if "choices" in rule and value not in rule["choices"]:
        raise ValueError("value of %s must be one of: %s, got: %s" % (where, ", ".join(map(str, rule["choices"])), value))
    if "options" in rule and "elements" in rule:
        return [_settled(where + ".", rule["options"], _typed(where, rule["elements"], element)) for element in value]
    if "options" in rule:
        return _settled(where + ".", rule["options"], value)
    if "elements" in rule:
        return [_typed(where, rule["elements"], element) for element in value]
    return value


def _typed(where: str, kind: str, value: Any) -> Any:
    """Return the value converted to an argument type, as Ansible itself converts. Raises ValueError if it cannot be converted."""
    text = str(value).lower()
    if kind == "str" and not isinstance(value, (dict, list)):
        return value if isinstance(value, str) else str(value)
    if kind == "path" and isinstance(value, str):
        return os.path.expanduser(os.path.expandvars(value))
    if kind == "bool" and text in TRUE + FALSE:
        return text in TRUE
    if kind == "int" and not isinstance(value, bool) and text.lstrip("-").isdigit():
        return int(text)
    if kind == "list" and isinstance(value, (list, str, int, float)):
        return value if isinstance(value, list) else str(value).split(",")
    if kind == "dict" and isinstance(value, dict):
        return value
    raise ValueError("argument '%s' is of type %s and we were unable to convert to %s" % (where, type(value).__name__, kind))
