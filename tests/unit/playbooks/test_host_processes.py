"""Processes on a host, read from a folder that stands for /proc: slurmd, users, and processes that are nobody's work."""

from pathlib import Path

import pytest

from tests.unit.playbooks.library import loaded

LOGIN = 1000


def process(proc: Path, pid: int, name: str, uid: int, cgroup: str = "/user.slice") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "comm").write_text(f"{name}\n")
    (folder / "status").write_text(f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "cgroup").write_text(f"0::{cgroup}\n")


def test_users_are_counted_and_slurmd_is_seen(tmp_path: Path) -> None:
    process(tmp_path, 1, "systemd", 0)
    process(tmp_path, 40, "slurmd", 0, "/system.slice/slurmd.service")
    process(tmp_path, 41, "python3", 4000000001)
    process(tmp_path, 42, "mpirun", 4000000001)
    (tmp_path / "self").mkdir()
    (tmp_path / "43").mkdir()  # has ended meanwhile
    assert loaded("host_processes").observe(str(tmp_path), LOGIN) == {"slurmd": True, "users": {"4000000001": 2}}


@pytest.mark.parametrize(
    ("name", "uid", "cgroup"),
    [
        ("bash", LOGIN, "/user.slice"),
        ("node_exporter", 999, "/system.slice"),
        ("nfsd", 65534, "/system.slice"),
        ("worker", 61500, "/system.slice/dynamic.service"),
        ("systemd", 1001, "/user.slice"),
        ("(sd-pam)", 1001, "/user.slice"),
        ("workflow-contro", 8737, "/kubepods.slice/kubepods-burstable.slice/pod"),
    ],
)
def test_nobody_works_in_services_in_pods_and_in_this_login(tmp_path: Path, name: str, uid: int, cgroup: str) -> None:
    process(tmp_path, 7, name, uid, cgroup)
    assert loaded("host_processes").observe(str(tmp_path), LOGIN) == {"slurmd": False, "users": {}}
