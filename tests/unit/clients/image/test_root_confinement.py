"""Links inside the root of an image never make bringup read or write outside that root."""

from pathlib import Path

import pytest

from steps.errors import BadTask
from steps.nodeimage.contract.root_listing import RootListing
from steps.nodeimage.files import initrds
from steps.nodeimage.sandbox import root_scan
from tests.unit.clients.image import trees


def test_links_within_the_root_are_followed(tmp_path: Path) -> None:
    there = trees.write(tmp_path / "root/usr/kernel", "k")
    (tmp_path / "root/boot").symlink_to("usr")
    assert root_scan.path_in_root(tmp_path / "root", "boot/kernel") == there.resolve()
    assert root_scan.path_in_root(tmp_path / "root", "boot/none").name == "none"


@pytest.mark.parametrize("target", ["../secret", "{outside}"])
def test_a_kernel_that_leads_out_is_refused(tmp_path: Path, target: str) -> None:
    outside = trees.write(tmp_path / "secret", "of this machine")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/vmlinuz-6").symlink_to(target.format(outside=outside))
    with pytest.raises(BadTask, match="the root's /vmlinuz-6 is a link that leads out of the root"):
        root_scan.path_in_root(tmp_path / "root", "vmlinuz-6")


def test_a_folder_of_kernels_that_leads_out_is_refused(tmp_path: Path) -> None:
    trees.write(tmp_path / "outside/vmlinuz-6")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/boot").symlink_to(tmp_path / "outside")
    with pytest.raises(BadTask, match="/boot is a link that leads out"):
        initrds.kernel_of(tmp_path / "root")


def test_a_circle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "boot").symlink_to("boot")
    with pytest.raises(BadTask, match="in a circle"):
        root_scan.path_in_root(tmp_path, "boot")


@pytest.mark.parametrize("name", ["modules", "conf.d", "conf.d/node-image"])
def test_settings_of_the_initrd_are_written_through_no_link(tmp_path: Path, name: str) -> None:
    outside, settings = trees.write(tmp_path / "outside/node-image", "as it was"), tmp_path / "settings"
    (settings / name).parent.mkdir(parents=True)
    (settings / name).symlink_to(outside.parent if name == "conf.d" else outside)
    with pytest.raises(BadTask, match=f"the root's /etc/initramfs-tools/{name} is a link"):
        initrds.settle(settings, "6", RootListing({}))
    assert outside.read_text() == "as it was"
