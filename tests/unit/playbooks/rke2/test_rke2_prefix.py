"""Target paths of a release on hosts whose /usr/local is a file system of its own, and hosts that cannot take a release."""

from pathlib import Path

import pytest
from ansible.module_utils.rke2 import install_prefix, release_backup

from steps.clients.ansible.failures import failure_reason
from steps.contract.host_play import FailureKind

ROOT = "/dev/vda1 / ext4 rw,relatime 0 0\n"
USR = "/dev/vda2 /usr ext4 rw,relatime 0 0\n"
SLES = "/dev/vda1 /usr/local btrfs rw,relatime,subvol=/@/usr/local 0 0\n"
UNIT, ENVIRONMENT = "lib/systemd/system/rke2-agent.service", "lib/systemd/system/rke2-agent.env"


def host(folder: Path, mounts: str) -> str:
    """A root with these mounts."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/mounts").write_text(mounts)
    return str(folder)


@pytest.mark.parametrize(
    ("mounts", "unit"),
    [
        (ROOT, f"/usr/local/{UNIT}"),
        (ROOT + USR, f"/usr/local/{UNIT}"),
        (ROOT + SLES, "/etc/systemd/system/rke2-agent.service"),
        (ROOT + USR + SLES, "/etc/systemd/system/rke2-agent.service"),
    ],
)
def test_units_lie_where_systemd_sees_them_at_boot(tmp_path: Path, mounts: str, unit: str) -> None:
    root = host(tmp_path, mounts)
    assert install_prefix.target_path(UNIT, root) == unit
    assert install_prefix.target_path("bin/rke2", root) == release_backup.PROGRAM
    assert install_prefix.target_path(ENVIRONMENT, root) == f"/usr/local/{ENVIRONMENT}", "the unit names it there"
    assert install_prefix.refusal(root) == ""


@pytest.mark.parametrize(
    ("mounts", "said"),
    [
        (
            ROOT + SLES.replace("rw,", "ro,"),
            "/usr/local cannot be written: /usr/local is mounted read-only, and RKE2's program goes there",
        ),
        (ROOT + USR.replace("rw,", "ro,"), "/usr/local cannot be written: /usr is mounted read-only"),
        (
            ROOT + "nas:/local /usr/local nfs4 ro,relatime 0 0\n",
            "/usr/local is on a share (nfs4, mounted at /usr/local): each host needs an RKE2 of its own",
        ),
    ],
)
def test_a_place_that_cannot_take_a_release_is_named_and_is_no_broken_disk(tmp_path: Path, mounts: str, said: str) -> None:
    found = install_prefix.refusal(host(tmp_path, mounts))
    assert found.startswith(said)
    assert failure_reason(found) is FailureKind.TASK_FAILED


def test_a_root_that_an_error_made_read_only_is_told_by_whoever_writes(tmp_path: Path) -> None:
    assert install_prefix.refusal(host(tmp_path, ROOT.replace("rw,", "ro,"))) == ""
