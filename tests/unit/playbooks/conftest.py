"""What runs on the nodes, importable here as Ansible makes it importable there."""

from pathlib import Path

import ansible.module_utils

ansible.module_utils.__path__.append(str(Path(__file__).parents[3] / "playbooks" / "module_utils"))
