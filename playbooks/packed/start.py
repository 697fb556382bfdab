#!/usr/bin/python
"""Entry point of a packed module: this script contains the module and all that it imports; Ansible writes the arguments into it."""

import base64
import json
import sys
import traceback
import zlib
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any, Optional

PARTS: dict = json.loads(zlib.decompress(base64.b64decode("@PARTS@")).decode())
"""Full module name → Python text of each packed module; a package has its text too."""

# Ansible takes a script with these words for a module that has its arguments in itself: <<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>
ARGUMENTS: Any = "<<INCLUDE_ANSIBLE_MODULE_COMPLEX_ARGS>>"


class Finder:
    """An import hook that finds the packed modules before any module of the same name on the host."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Optional[ModuleSpec]:
        """Return the import spec of a packed module or package, or None for any other module."""
        package = any(part.startswith(name + ".") for part in PARTS)
        return ModuleSpec(name, self, is_package=package) if name in PARTS or package else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, so that Python makes its default module object."""

    def exec_module(self, module: Any) -> None:
        """Run the packed text of a module; a package without a text stays empty."""
        exec(compile(PARTS.get(module.__name__, ""), module.__name__ + ".py", "exec"), module.__dict__)


def main() -> None:
    """Run the packed module as Ansible would; print an uncaught exception as a failed result and exit with 1."""
    if sys.version_info < (3, 9):
        print(json.dumps({"failed": True, "msg": "@NAME@ requires a minimum of Python 3.9; this is %s" % sys.version.split()[0]}))
        sys.exit(1)
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
    # Ansible would pack its own library for a script that names it in an import
    basic: Any = import_module("ansible.module_utils.basic")
    basic.ARGUMENTS = ARGUMENTS
    try:
        exec(compile(PARTS["__main__"], "@NAME@.py", "exec"), {"__name__": "__main__"})
    except Exception as error:
        message = "%s: %s" % (type(error).__name__, error)
        print(json.dumps({"failed": True, "msg": "@NAME@: " + message, "exception": traceback.format_exc()}))
        sys.exit(1)


if __name__ == "__main__":
    main()
