"""The release that another takes the place of is kept with all of its configuration, and comes back with nothing besides."""

import os
import re
import stat
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.rke2 import release_backup

from tests.unit.playbooks.library import PLAYBOOKS

ROLE = PLAYBOOKS / "roles/rke2"
OLD = "v1.35.7+rke2r1"
CONFIG, REGISTRIES, AUDIT, KUBELET, KUBE_VIP, SERVER, AGENT = release_backup.CONFIGURATION
CA, KEY = (f"/etc/rancher/rke2/rke2_registry_1_{part}.pem" for part in ("ca", "key"))
FOREIGN = "/etc/rancher/rke2/own.pem"


def write(root: Path, *paths: str, text: str) -> None:
    for path in paths:
        there = Path(f"{root}{path}")
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text)
        there.chmod(0o600)


def files(root: Path) -> dict[str, str]:
    """Return the texts of the host's files by path, without the store and the mark of a restart that is owed."""
    found = {f"/{path.relative_to(root)}": path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_text() for name, path in found.items() if "/download/" not in name and "restart-owed" not in name}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host whose old release is kept, on which an upgrade has written what it writes."""
    write(tmp_path, release_backup.PROGRAM, CONFIG, KUBELET, SERVER, CA, FOREIGN, text="# Made by bringup.\nold")
    release_backup.back_up([release_backup.PROGRAM], OLD, str(tmp_path))
    release_backup.begin(str(tmp_path))
    write(tmp_path, release_backup.PROGRAM, *release_backup.CONFIGURATION, CA, KEY, text="# Made by bringup.\nnew")
    return tmp_path


def test_an_upgrade_that_is_taken_back_leaves_the_configuration_of_before(host: Path) -> None:
    back = release_backup.restore(OLD, str(host))

    assert files(host) == dict.fromkeys((release_backup.PROGRAM, CONFIG, KUBELET, SERVER, CA, FOREIGN), "# Made by bringup.\nold")
    assert sorted(back) == sorted((release_backup.PROGRAM, CONFIG, KUBELET, SERVER, CA))
    assert not release_backup.is_replacing(str(host))
    assert release_backup.restore(OLD, str(host)) == back, "a run that was killed meanwhile does it again"


def test_folders_are_kept_as_open_as_they_are(tmp_path: Path) -> None:
    """Backed-up folders keep their modes: a rollback by hand (`cp --preserve=mode`) applies them to the host's /etc and /usr."""
    write(tmp_path, release_backup.PROGRAM, CONFIG, text="old")
    for folder in ("usr", "usr/local", "usr/local/bin", "etc", "etc/rancher", "etc/rancher/rke2"):
        (tmp_path / folder).chmod(0o750 if folder == "etc/rancher/rke2" else 0o755)
    before = os.umask(0o077)
    try:
        release_backup.back_up([release_backup.PROGRAM], OLD, str(tmp_path))
    finally:
        os.umask(before)
    place = Path(f"{tmp_path}{release_backup.PLACE}")
    folders = [path for path in place.rglob("*") if path.is_dir()]
    modes = {str(path.relative_to(place)): stat.S_IMODE(path.stat().st_mode) for path in folders}
    assert modes.pop("etc/rancher/rke2") == 0o750
    assert modes == dict.fromkeys(("etc", "etc/rancher", "usr", "usr/local", "usr/local/bin"), 0o755)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700, "tokens of registries lie in it"


def test_a_file_that_is_not_ours_stays(host: Path) -> None:
    write(host, AUDIT, text="of the site")
    release_backup.restore(OLD, str(host))
    assert files(host)[AUDIT] == "of the site"


def test_what_an_older_bringup_has_kept_comes_back_and_nothing_goes(host: Path) -> None:
    Path(f"{host}{release_backup.PLACE}{release_backup.ABSENT_FILES}").unlink()
    release_backup.restore(OLD, str(host))
    seen = files(host)
    assert seen[KUBELET].endswith("old")
    assert {path for path, text in seen.items() if text.endswith("new")} == {REGISTRIES, AUDIT, KUBE_VIP, AGENT, KEY}


def test_a_release_that_is_not_kept_is_not_put_back(host: Path) -> None:
    with pytest.raises(release_backup.WrongBackup):
        release_backup.restore("v1.34.1+rke2r1", str(host))


def test_all_that_the_role_writes_is_kept() -> None:
    entries = yaml.safe_load((ROLE / "vars/main.yml").read_text())["rke2_files"]
    paths = {entry["path"].replace("{{ rke2_service }}", service) for entry in entries for service in ("rke2-server", "rke2-agent")}
    assert paths == set(release_backup.CONFIGURATION)
    (folder,) = re.findall(r'"path": "([^"]+)" ~ one.secrets', (ROLE / "templates/registry-files.json.j2").read_text())
    assert release_backup.REGISTRY_FILES.startswith(folder), "the variables that hold them are rke2_registry_N_PART"
