"""Files of keys and secrets that a spec names: each one that is missing gets a warning with its key in the spec."""

from pathlib import Path

import pytest

from workflows import spec
from workflows.examples import path
from workflows.spec.key_files import missing_files


def loaded(folder: Path, *, key: str = "./id_ed25519") -> spec.ClusterSpec:
    text = path("h200-16").read_text(encoding="utf-8").replace("./id_ed25519", key)
    (folder / "cluster.yaml").write_text(text + "secrets: {registry: {file: ./token}, other: {env: OTHER}}\n", encoding="utf-8")
    return spec.load(folder / "cluster.yaml")


def test_each_missing_file_is_named_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_text("h ssh-ed25519 AAAA\n", encoding="utf-8")
    (tmp_path / "token").write_text("", encoding="utf-8")
    found = {issue.path: issue.problem for issue in missing_files(loaded(tmp_path), tmp_path)}
    assert found == {
        "ssh.key.file": f"there is no file {tmp_path / 'id_ed25519'}",
        "secrets.registry.file": f"there is nothing in the file {tmp_path / 'token'}",
    }


@pytest.mark.parametrize("name", [".", "folder"])
def test_a_folder_is_no_key(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    found = {issue.path: issue.problem for issue in missing_files(loaded(tmp_path, key=name), tmp_path)}
    assert found["ssh.key.file"].startswith("a file is expected, and this is none")


def test_a_public_key_is_no_private_one(tmp_path: Path) -> None:
    (tmp_path / "id.pub").write_text("ssh-ed25519 AAAA ops@example.org\n", encoding="utf-8")
    found = {issue.path: issue.problem for issue in missing_files(loaded(tmp_path, key="./id.pub"), tmp_path)}
    assert found["ssh.key.file"] == f"a private key is expected, and this is a public one: {tmp_path / 'id.pub'}"
