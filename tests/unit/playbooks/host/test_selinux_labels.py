"""Labels by a policy of the test's own, which the real libselinux reads."""

import ctypes
import ctypes.util
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils import selinux_labels

RULES = """/.*  system_u:object_r:default_t:s0
/home/[^/]+/\\.ssh(/.*)?  system_u:object_r:ssh_home_t:s0
/srv/[^/]+  -d  system_u:object_r:folder_t:s0
/srv/[^/]+  --  system_u:object_r:file_t:s0
/run/.*  <<none>>
"""


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[Path]:
    """A policy's rules, and the file that shows that the kernel has one."""
    if ctypes.util.find_library("selinux") is None:
        pytest.skip("no libselinux here")
    library = ctypes.CDLL(selinux_labels.LIBRARY)
    (tmp_path / "policy/contexts/files").mkdir(parents=True)
    (tmp_path / "policy/contexts/files/file_contexts").write_text(RULES)
    (tmp_path / "enforce").write_text("1")
    assert library.selinux_set_policy_root(os.fsencode(tmp_path / "policy")) == 0
    yield tmp_path
    library.matchpathcon_fini()


@pytest.mark.parametrize(
    ("path", "kind", "label"),
    [
        ("/home/ops/.ssh", stat.S_IFDIR, b"system_u:object_r:ssh_home_t:s0\0"),
        ("/srv/one", stat.S_IFDIR, b"system_u:object_r:folder_t:s0\0"),
        ("/srv/one", stat.S_IFREG, b"system_u:object_r:file_t:s0\0"),
        ("/etc/hostname", stat.S_IFREG, b"system_u:object_r:default_t:s0\0"),
        ("/run/lock", stat.S_IFREG, b""),
    ],
)
def test_the_policy_says_it_by_path_and_kind(policy: Path, path: str, kind: int, label: bytes) -> None:
    assert selinux_labels.policy_label(path, kind, str(policy / "enforce")) == label
    assert selinux_labels.policy_label(path, kind, str(policy / "gone")) == b"", "SELinux is off"


def test_folders_are_made_with_those_above(tmp_path: Path) -> None:
    selinux_labels.make_folders(str(tmp_path / "one/two"), 0o700)
    selinux_labels.make_folders(str(tmp_path / "one/two"), 0o711)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("one", "one/two")] == [0o755, 0o700]


@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_folders_are_as_open_as_asked_under_a_hardened_login(tmp_path: Path, umask: int) -> None:
    (tmp_path / "there").mkdir(mode=0o711)
    before = os.umask(umask)
    try:
        selinux_labels.make_folders(str(tmp_path / "there/one/two"))
        selinux_labels.make_folders(str(tmp_path / "there/shut/own"), 0o700)
    finally:
        os.umask(before)
    modes = {str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {
        "there": 0o711,
        "there/one": 0o755,
        "there/one/two": 0o755,
        "there/shut": 0o755,
        "there/shut/own": 0o700,
    }


def test_a_label_that_cannot_be_set_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    selinux_labels.set_label(str(tmp_path / "absent"), b"system_u:object_r:etc_t:s0\0")
    selinux_labels.set_label(str(tmp_path / "there"), b"")
    assert selinux_labels.NAME not in os.listxattr(tmp_path / "there")
