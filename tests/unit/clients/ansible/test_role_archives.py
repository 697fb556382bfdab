"""The archive of a site's role: unpacked as it was packed, and refused where it is another, hostile, or none."""

import io
import tarfile
from pathlib import Path

import pytest

from steps.clients.ansible.workspace import unpack
from steps.contract.host_play import RoleArchive
from steps.errors import BadTask
from steps.stages.site_roles import contract as site_roles


def tar(**members: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as opened:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            opened.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def archive(folder: Path, data: bytes, digest: str = "") -> RoleArchive:
    path = folder / "archive"
    path.write_bytes(site_roles.encode(data))
    return RoleArchive(name="r", file=str(path), digest=digest or site_roles.digest(data))


def test_files_come_out_as_they_went_in(tmp_path: Path) -> None:
    unpack(archive(tmp_path, tar(**{"tasks/main.yml": b"- name: x\n", "files/a b": b"\0\1"})), tmp_path / "out")

    assert (tmp_path / "out/tasks/main.yml").read_bytes() == b"- name: x\n"
    assert (tmp_path / "out/files/a b").read_bytes() == b"\0\1"
    assert (tmp_path / "out/files/a b").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil"])
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadTask, match="is no file of a role"):
        unpack(archive(tmp_path, tar(**{name: b"x"})), tmp_path / "below/out")
    assert not list(tmp_path.rglob("evil"))


def test_a_link_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as opened:
        entry = tarfile.TarInfo("tasks")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc"
        opened.addfile(entry)
    with pytest.raises(BadTask, match="is no file of a role"):
        unpack(archive(tmp_path, out.getvalue()), tmp_path / "out")


def test_another_content_than_the_plan_names(tmp_path: Path) -> None:
    with pytest.raises(BadTask, match="is not the archive that the plan names"):
        unpack(archive(tmp_path, tar(a=b"x"), digest=f"sha256:{'0' * 64}"), tmp_path / "out")


def test_no_archive_at_all(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"none")
    for file in ("x", "nowhere"):
        with pytest.raises(BadTask, match="role r"):
            unpack(RoleArchive(name="r", file=str(tmp_path / file), digest="sha256:0"), tmp_path / "out")


def test_more_than_a_role_may_have_is_not_unpacked(tmp_path: Path) -> None:
    with pytest.raises(BadTask, match="is not the archive"):
        unpack(archive(tmp_path, tar(a=bytes(site_roles.LARGEST_BYTES + 1))), tmp_path / "out")
