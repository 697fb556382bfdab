"""Programs reload a changed file even if the run that changed it ended before, or if its reload failed."""

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.nodeprofile import convergence, profile_files, systemd_services
from ansible.module_utils.nodeprofile.item import NodeAccess

from tests.unit.playbooks.machine import Module

TIME = ["chrony.service"]


class Host:
    """A machine with one file that the initramfs is made of, and a tool that makes it, broken or not."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tool, self.made = root / "update-initramfs", root / "made"
        self.works()
        self.system = {"initramfs": [str(self.tool)]}

    def works(self) -> None:
        self.tool.write_text(f"#!/bin/sh\necho made >> {self.made}\n")
        self.tool.chmod(0o755)

    def breaks(self) -> None:
        self.tool.write_text("#!/bin/sh\necho No space left on device >&2\nexit 1\n")

    def write(self, node: NodeAccess) -> list[dict[str, Any]]:
        path = str(self.root / "etc/modprobe.d/90-bringup.conf")
        found: list[dict[str, Any]] = profile_files.files(
            node, [{"path": path, "content": "blacklist nouveau\n", "reload": "initramfs"}]
        )
        return found

    def rows(self, *, check: bool = False) -> list[dict[str, Any]]:
        """The items of one run of the module, as far as files and reloads go."""
        node = NodeAccess(Module(), str(self.root))
        node.check_mode = check
        rows: list[dict[str, Any]] = self.write(node) + systemd_services.reloads(node, self.system, str(self.root))
        return rows

    def run(self, *, check: bool = False) -> dict[str, tuple[str, str]]:
        """Run the module and return status and reason by the kind of item."""
        rows = self.rows(check=check)
        return {row["name"].split("/")[0].strip(): (row["status"], row.get("why", "")) for row in rows}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_reload_that_failed_is_owed_until_it_works(host: Host) -> None:
    host.breaks()
    assert host.run()["reload initramfs"][0] == "failed"
    assert host.run()["reload initramfs"][0] == "failed", "the file is as wanted by now, and the initramfs is not"
    status, why = host.run(check=True)["reload initramfs"]
    assert (status, "No space left on device" in why) == ("failed", True), "a reading after a reboot says so too"

    host.works()
    assert host.run()["reload initramfs"] == ("changed", "")
    assert host.run() == {"file": ("ok", "")}
    assert host.run(check=True) == {"file": ("ok", "")}
    assert host.made.read_text() == "made\n"
    assert not (host.root / "var/lib/bringup-owed").exists()


def test_a_machine_whose_initramfs_failed_is_not_to_be_rebooted(host: Host) -> None:
    host.breaks()
    assert convergence.is_without_initramfs(host.rows())
    assert convergence.is_without_initramfs(host.rows()), "the next run changes no file, and there is no initramfs yet"
    host.works()
    assert not convergence.is_without_initramfs(host.rows())
    assert not convergence.is_without_initramfs(host.rows())


def test_a_run_that_is_cut_off_before_the_reload_leaves_it_to_the_next(host: Host) -> None:
    host.write(NodeAccess(Module(), str(host.root)))
    assert host.run(check=True)["reload initramfs"] == ("failed", "a run was cut off before it")
    assert host.run() == {"file": ("ok", ""), "reload initramfs": ("changed", "")}
    assert host.made.read_text() == "made\n"


def test_a_machine_that_has_no_initramfs_owes_none(host: Host) -> None:
    host.tool.unlink()
    assert host.run() == {"file": ("changed", "")}
    assert host.run() == {"file": ("ok", "")}
    assert not (host.root / "var/lib/bringup-owed").exists()


def test_a_boot_makes_up_for_what_services_read(host: Host) -> None:
    node = NodeAccess(Module(), str(host.root))
    node.reload("time")
    node.reload("initramfs")
    marks = sorted(str(path.relative_to(host.root)) for path in host.root.rglob("bringup-owed/*"))
    assert marks == ["run/bringup-owed/time", "var/lib/bringup-owed/initramfs"]
