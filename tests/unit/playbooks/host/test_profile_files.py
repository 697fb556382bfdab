"""Files that take the place of others: what was there before is kept once, beside ours."""

import os
from pathlib import Path

import pytest
from ansible.module_utils.nodeprofile import convergence, profile_files
from ansible.module_utils.nodeprofile.item import NodeAccess

from tests.unit.playbooks.machine import Machine, Module

DEBIANS = "# Welcome to the chrony configuration file.\npool 2.debian.pool.ntp.org iburst\nkeyfile /etc/chrony/chrony.keys\n"


def test_a_distributions_file_is_kept_and_ours_never_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "chrony.conf"
    path.write_text(DEBIANS)
    path.chmod(0o644)
    machine = Machine({}, root=tmp_path)
    for server, status in (("10.0.0.1", "changed"), ("10.0.0.1", "ok"), ("10.0.0.2", "changed")):
        (entry,) = convergence.chrony([server], {"chrony": str(path)})
        (row,) = profile_files.files(machine, [entry])
        assert row["status"] == status, row
        assert f"server {server} iburst" in path.read_text()
        assert (tmp_path / "chrony.conf.before-bringup").read_text() == DEBIANS
    assert machine.reloads == ["time"]


def test_check_mode_and_a_file_that_was_not_there_keep_nothing(tmp_path: Path) -> None:
    path = tmp_path / "chrony.conf"
    machine = Machine({}, root=tmp_path)
    profile_files.files(machine, convergence.chrony(["10.0.0.1"], {"chrony": str(path)}))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["chrony.conf"]

    path.write_text(DEBIANS)
    machine.check_mode = True
    profile_files.files(machine, convergence.chrony(["10.0.0.1"], {"chrony": str(path)}))
    assert (path.read_text(), len(list(tmp_path.iterdir()))) == (DEBIANS, 1)


def test_whole_files_of_a_site_are_replaced_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "90-bringup.conf"
    path.write_text("tampered\n")
    path.chmod(0o644)
    profile_files.files(Machine({}, root=tmp_path), [{"path": str(path), "content": "ours\n"}])
    assert [one.name for one in tmp_path.iterdir()] == ["90-bringup.conf"]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away, as root alone can")
def test_what_belongs_to_somebody_else_becomes_roots(tmp_path: Path) -> None:
    path, folder = tmp_path / "90-bringup-ops", tmp_path / "rke2"
    path.write_text("ops ALL=(ALL) NOPASSWD: ALL\n")
    path.chmod(0o440)
    folder.mkdir(mode=0o755)
    for one in (path, folder):
        os.chown(one, 1234, 1234)
    machine = NodeAccess(Module())
    entry = {"path": str(path), "content": path.read_text(), "mode": "0440"}
    for status in ("changed", "ok"):
        rows = profile_files.files(machine, [entry]) + profile_files.directories(machine, {str(folder): "0755"})
        assert [row["status"] for row in rows] == [status] * 2, rows
    assert [os.stat(one).st_uid for one in (path, folder)] == [0, 0]


def test_an_initramfs_of_dracut_gets_the_blacklist_on_any_image() -> None:
    want = {"memlock": "", "modules": {}, "sysctls": {}, "files": []}
    for blacklist, text in ((["nouveau"], 'install_optional_items+=" /etc/modprobe.d/90-bringup.conf "\n'), ([], "")):
        kept = {entry["path"]: entry for entry in profile_files.boot_files({**want, "blacklist": blacklist})}
        entry = kept["/etc/dracut.conf.d/90-bringup.conf"]
        assert (entry["content"].removeprefix("# Made by bringup.\n"), entry["reload"]) == (text, "initramfs")
        assert entry["needs"] == "/etc/dracut.conf.d", "only where there is dracut"
        assert bool(kept["/etc/modprobe.d/90-bringup.conf"]["content"]) is bool(text)


def test_our_sysctls_are_the_last_that_a_boot_reads() -> None:
    """systemd-sysctl takes all files by name in the order of their bytes; hardening writes such ones, with ip_forward off."""
    kept = profile_files.boot_files(
        {"memlock": "", "modules": {}, "blacklist": [], "sysctls": {"net.ipv4.ip_forward": "1"}, "files": []}
    )
    (ours,) = [Path(entry["path"]).name for entry in kept if entry["path"].startswith("/etc/sysctl.d/")]
    theirs = ["60-netipv4_sysctl.conf", "99-sysctl.conf", "99-zz-hardening.conf", "net_ipv4_ip_forward.conf"]
    assert max([ours, *theirs]) == ours
