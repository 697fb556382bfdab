"""Commands of the node profile run as those of a service do, whoever has logged in."""

from ansible.module_utils.nodeprofile.item import NodeAccess

from tests.unit.playbooks.machine import Module


def test_a_command_runs_in_the_root_folder_without_a_home() -> None:
    assert NodeAccess(Module()).must("sh", "-c", "pwd; echo $HOME") == "/\n/\n"


def test_a_command_that_is_not_there_is_said_so() -> None:
    assert NodeAccess(Module()).run("no-such-command") == (127, "", "no-such-command: no such command")
