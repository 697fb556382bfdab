"""Reading the installed packages from dpkg's database: completely installed ones, and no others."""

from pathlib import Path

from steps.nodeimage.layer import package_installation
from tests.unit.clients.image import trees

STATUS = """Package: dash
Status: install ok installed
Version: 0.5.12-2
Description: shell
 Package: not this

Package: half
Status: install ok half-configured
Version: 1

Package: gone
Status: deinstall ok config-files
Version: 2

Package: libc6
Status: hold ok installed
Version: 2:2.36-9+deb12u10
"""


def test_reads_versions_of_what_is_whole(tmp_path: Path) -> None:
    trees.write(tmp_path / "var/lib/dpkg/status", STATUS)
    assert package_installation.installed_packages(tmp_path) == ["dash=0.5.12-2", "libc6=2:2.36-9+deb12u10"]


def test_a_root_without_dpkg_has_none(tmp_path: Path) -> None:
    assert package_installation.installed_packages(tmp_path) == []
