"""Playbooks played by `ansible-playbook`, forked from a process that has imported Ansible, which takes as long as a short play."""

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.unit.playbooks.library import PLAYBOOKS
from tests.unit.warm_commands import Commands

PROGRAM = Path(sys.executable).with_name("ansible-playbook")
SECONDS = 120.0


def play(playbook: Path, inventory: Path, variables: Mapping[str, object], *options: str) -> subprocess.CompletedProcess[str]:
    """Play a playbook with the settings of this repository, in the folder of the inventory; return exit code and output."""
    words = [str(playbook), *options, "--inventory", str(inventory), "--extra-vars", json.dumps(variables)]
    code, out, err = _warm().call(words, _environment(str(inventory.parent)), inventory.parent, SECONDS)
    return subprocess.CompletedProcess(words, code, out, err)


@functools.cache
def _warm() -> Commands:
    """Return the process that all tests of this process share. Ansible reads its settings once, and so their folder is its own."""
    home = tempfile.TemporaryDirectory()
    commands = Commands(PROGRAM, _environment(home.name))
    atexit.register(home.cleanup)
    atexit.register(commands.close)
    return commands


def _environment(home: str) -> dict[str, str]:
    return {**os.environ, "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_HOME": home}
