"""Set-up of all tests: modules for nodes are importable as on nodes, and started processes behave as if a person had started them.

`playbooks/module_utils` is added to `ansible.module_utils`, where Ansible puts it on the nodes. Started processes keep compiled
modules: tests start hundreds of commands, and with `PYTHONDONTWRITEBYTECODE`, which many images set, each would compile its imports
anew. Ctrl-C ends them: a process that a script starts in the background inherits an ignored SIGINT and passes that on.
"""

import os
import signal
import sys
from pathlib import Path

import ansible.module_utils
import hypothesis
import pytest

from tests import sampling

ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "playbooks" / "module_utils"))
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
signal.signal(signal.SIGINT, signal.default_int_handler)
# how long an example takes says something about the machine's load and nothing about the code
hypothesis.settings.register_profile("bringup", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("bringup")

LONGEST = (
    "unit/rehearsal/faults/test_first_stages.py",
    "unit/rehearsal/faults/test_last_stages.py",
    "unit/rehearsal/test_specs.py",
    "unit/rehearsal/test_large_fleets.py",
    "unit/architecture/test_linters.py",
    "unit/cli/test_image_builds.py",
    "unit/rehearsal/faults/test_healthy_seeds.py",
    "unit/cli/test_operations.py",
    "unit/rehearsal/faults/test_quick.py",
    "unit/rehearsal/faults/test_whole_rehearsals.py",
    "conformance/test_corpus.py",
    "boot/pipeline/test_life.py",
    "hosts/test_factory.py",
    "hosts/test_operations.py",
    "hosts/test_rke2_play.py",
    "hosts/test_kills.py",
    "hosts/test_kills_rke2.py",
    "hosts/test_firewall.py",
    "hosts/test_access.py",
    "hosts/test_os_prep_play.py",
    "hosts/test_run_three_hosts.py",
)
"""Files that begin before all others, so that no test process is left with one of them at the end."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take samples of what `-m` has left, and put the longest files first."""
    sampling.deselect(config, items)
    places = {str(Path(__file__).parent / name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(str(item.path), len(LONGEST)))
