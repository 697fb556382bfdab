"""Machines whose umask closes what root makes: what others must read is open to them, and what was closed before is mended."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils import host_lock, selinux_labels
from ansible.module_utils.nodeprofile import folder_modes, profile_files
from ansible.module_utils.nodeprofile.item import NodeAccess
from ansible.module_utils.nodeprofile.network_managers import Networkd

from tests.unit.playbooks.machine import Module

WRITER = """
import os
import sys
import ansible.module_utils
ansible.module_utils.__path__.append(sys.argv[1])
from ansible.module_utils import host_lock
host_lock.hold("node_profile", sys.argv[2])
print(oct(os.umask(0)))
"""
OURS = "# Made by bringup.\n[Link]\n"


@pytest.fixture
def hardened() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def modes(*paths: Path) -> list[int]:
    return [path.stat().st_mode & 0o777 for path in paths]


@pytest.mark.usefixtures("hardened")
def test_folders_have_their_mode_whatever_the_umask_is(tmp_path: Path) -> None:
    selinux_labels.make_folders(str(tmp_path / "one/two/three"))
    selinux_labels.make_folders(str(tmp_path / "one/secret"), 0o700)
    one = tmp_path / "one"
    assert modes(one, one / "two", one / "two/three", one / "secret") == [0o755, 0o755, 0o755, 0o700]


def test_who_writes_has_the_usual_umask(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(Path(host_lock.__file__).parent), str(tmp_path / "lock")]
    done = subprocess.run(command, umask=0o077, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0o22"


@pytest.mark.usefixtures("hardened")
def test_a_folder_of_ours_that_is_closed_is_opened_and_one_of_others_is_not(tmp_path: Path) -> None:
    ours, mixed = tmp_path / "etc/ours.d", tmp_path / "etc/mixed.d"
    for folder in (ours, mixed):
        folder.mkdir(parents=True)
        (folder / "90-bringup.conf").write_text(OURS)
        (folder / "90-bringup.conf").chmod(0o644)
    (mixed / "50-site.conf").write_text("[Link]\n")
    node = NodeAccess(Module())
    wanted = [{"path": str(folder / "90-bringup.conf"), "content": OURS} for folder in (ours, mixed)]
    first, second = profile_files.files(node, wanted)
    assert (first["status"], second["status"]) == ("changed", "ok")
    assert "closed to others" in first["before"]
    assert modes(ours, mixed, tmp_path / "etc") == [0o755, 0o700, 0o700]
    assert [row["status"] for row in profile_files.files(node.reader(), wanted)] == ["ok", "ok"]


@pytest.mark.usefixtures("hardened")
def test_what_is_for_root_alone_opens_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "sudoers.d"
    folder.mkdir()
    (folder / "90-bringup").write_text(OURS)
    assert folder_modes.closed_folders(str(folder / "90-bringup"), 0o440) == []
    assert folder_modes.closed_folders(str(folder / "90-bringup"), 0o644)[:1] == [str(folder)]


def test_a_drop_in_that_networkd_may_not_read_does_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "fab.network.d"
    folder.mkdir(mode=0o755)
    (tmp_path / "fab.network").touch()
    path = folder / "90-bringup.conf"
    keeper = Networkd(NodeAccess(Module()), str(tmp_path / "fab.network"))
    keeper._path = str(path)
    keeper.keep(4092)
    assert keeper.has(4092)
    folder.chmod(0o700)
    assert not keeper.has(4092)
    keeper.keep(4092)
    assert (keeper.has(4092), modes(folder)) == (True, [0o755])
