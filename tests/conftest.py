"""What all tests share: what runs on the nodes is importable as Ansible makes it importable there, and the processes that they
start behave as a person's do, whatever started the tests.

These keep compiled modules: hundreds of commands, steps and simulated clusters are started, and where `PYTHONDONTWRITEBYTECODE` is
set, as in many images, each would compile all that it imports anew. And Ctrl-C ends them: what a script starts in the background
ignores SIGINT, and hands that on.
"""

import os
import signal
import sys
from pathlib import Path

import ansible.module_utils

ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "playbooks" / "module_utils"))
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
signal.signal(signal.SIGINT, signal.default_int_handler)
