"""Unpacking of a site's role for one play. Members that are no plain file inside the role's folder are refused."""

import io
import tarfile
from pathlib import Path

from steps.contract.play import RoleArchive
from steps.errors import BadTask
from steps.stages.site_roles.contract import BadArchive, decode


def unpack(archive: RoleArchive, folder: Path) -> None:
    """Write the files of a role below `folder`. Raises BadTask if the archive does not match the task."""
    try:
        tar = decode(Path(archive.file).read_bytes(), archive)
        for name, mode, data in _members(archive, tar):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(mode)
    except BadArchive as bad:
        raise BadTask(str(bad), hint="render and submit the plan again") from bad
    except (OSError, tarfile.TarError) as error:
        raise BadTask(f"role {archive.name}: {error}") from error


def _members(archive: RoleArchive, tar: bytes) -> list[tuple[str, int, bytes]]:
    members = []
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as opened:
        for member in opened:
            parts = Path(member.name).parts
            content = opened.extractfile(member) if member.isfile() else None
            if content is None or not parts or Path(member.name).is_absolute() or ".." in parts:
                raise BadArchive(f"role {archive.name}: {member.name!r} is no file of a role")
            members.append((member.name, 0o755 if member.mode & 0o100 else 0o644, content.read()))
    return members
