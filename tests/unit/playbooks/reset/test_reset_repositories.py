"""A site's repository files survive a reset, although RKE2's own script removes them, and even if the reset is killed."""

import json
from pathlib import Path

import pytest
from ansible.module_utils.rke2 import site_paths

TEXT = "[rancher-rke2-common-stable]\r\nname=R\xfcdi\npassword=canary\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Repositories of a host; one of them is RKE2's, with a password."""
    made = tmp_path / "yum.repos.d"
    made.mkdir()
    (made / "rancher-rke2-common.repo").write_bytes(TEXT.encode("latin-1"))
    (made / "rancher-rke2-common.repo").chmod(0o600)
    (made / "site.repo").write_text("[site]\n")
    return made


def uninstalled(folder: Path) -> None:
    """Remove the repository files of RKE2, as its own uninstall script does."""
    for path in folder.glob("rancher-rke2*.repo"):
        path.unlink()


def test_the_repository_of_the_policy_is_there_after_a_reset(folder: Path, tmp_path: Path) -> None:
    mark, repositories = str(tmp_path / "begun"), f"{folder}/rancher-rke2*.repo"
    site_paths.begin_reset(mark, repositories)
    uninstalled(folder)
    site_paths.begin_reset(mark, repositories)  # the reset that was killed is run again
    site_paths.restore(mark)
    found = folder / "rancher-rke2-common.repo"
    assert (found.read_bytes(), found.stat().st_mode & 0o777) == (TEXT.encode("latin-1"), 0o600)
    assert Path(mark).stat().st_mode & 0o777 == 0o600
    assert "site.repo" not in Path(mark).read_text()


def test_what_somebody_has_put_there_since_stays(folder: Path, tmp_path: Path) -> None:
    mark = str(tmp_path / "begun")
    site_paths.begin_reset(mark, f"{folder}/rancher-rke2*.repo")
    (folder / "rancher-rke2-common.repo").write_text("[another]\n")
    site_paths.restore(mark)
    assert (folder / "rancher-rke2-common.repo").read_text() == "[another]\n"


def test_a_reset_that_an_older_version_began_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "begun").write_text(json.dumps({str(tmp_path / "data/rke2"): "/disk"}))
    site_paths.restore(str(tmp_path / "begun"))
    assert str((tmp_path / "data/rke2").readlink()) == "/disk"
