"""A release that was unpacked is labelled where SELinux is on, and allowed where fapolicyd runs; elsewhere nobody is asked."""

from pathlib import Path

import pytest
from ansible.module_utils.rke2 import security_rules

PROGRAM = "/usr/local/bin/rke2"
LOADED = [["fagenrules", "--load"], ["systemctl", "restart", "fapolicyd"]]
ASKED = ["systemctl", "is-active", "fapolicyd"]


class Commands:
    """A stand-in that records commands; those that contain a word of `failing` end with an error."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.ran: list[list[str]] = []

    def __call__(self, command: list[str]) -> tuple[int, str, str]:
        self.ran.append(command)
        return (1, "", "no such rule") if command[0] in self.failing or command[-2] in self.failing else (0, "", "")


def host(folder: Path, *, selinux: bool = False, fapolicyd: bool = False) -> str:
    """A root with the guards."""
    if selinux:
        (folder / "sys/fs/selinux").mkdir(parents=True)
        (folder / "sys/fs/selinux/enforce").touch()
    if fapolicyd:
        (folder / "etc/fapolicyd/rules.d").mkdir(parents=True)
    return str(folder)


def test_a_host_without_guards_is_asked_nothing(tmp_path: Path) -> None:
    run = Commands()
    security_rules.register_files([PROGRAM], run, host(tmp_path))
    assert run.ran == []


def test_files_get_the_labels_of_the_policy(tmp_path: Path) -> None:
    run = Commands()
    security_rules.register_files([PROGRAM], run, host(tmp_path, selinux=True))
    assert run.ran == [["restorecon", PROGRAM]]
    with pytest.raises(security_rules.GuardRefusal, match="restorecon /usr/local/bin/rke2 ended with 1: no such rule"):
        security_rules.register_files([PROGRAM], Commands("restorecon"), str(tmp_path))


def test_fapolicyd_is_told_once_where_programs_lie(tmp_path: Path) -> None:
    run, root = Commands(), host(tmp_path, fapolicyd=True)
    security_rules.register_files([PROGRAM], run, root)
    assert run.ran == [ASKED, *LOADED]
    assert "allow perm=any all : dir=/var/lib/rancher/\n" in Path(root + security_rules.RULES).read_text()
    run.ran.clear()
    security_rules.register_files([PROGRAM], run, root)
    assert run.ran == [ASKED]


def test_a_rule_that_was_not_taken_is_told_again(tmp_path: Path) -> None:
    run, root = Commands(), host(tmp_path, fapolicyd=True)
    with pytest.raises(security_rules.GuardRefusal, match="fagenrules --load ended with 1"):
        security_rules.register_files([PROGRAM], Commands("fagenrules"), root)
    security_rules.register_files([PROGRAM], run, root)
    assert run.ran == [ASKED, *LOADED]


def test_one_that_does_not_run_is_left_alone(tmp_path: Path) -> None:
    run, root = Commands("is-active"), host(tmp_path, fapolicyd=True)
    security_rules.register_files([PROGRAM], run, root)
    assert run.ran == [ASKED]
    assert not Path(root + security_rules.RULES).exists()
