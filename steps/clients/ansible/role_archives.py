"""Unpacks the role of a site for one play; a member that is no plain file inside of its folder is refused."""

import io
import tarfile
from pathlib import Path

from steps.contract.play import RoleArchive
from steps.contract.site_roles import BadArchive, decode
from steps.errors import BadTask


def unpack(archive: RoleArchive, folder: Path) -> None:
    """Write the files of a role below `folder`. Raises BadTask where the file does not hold what its task names."""
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
    found = []
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as opened:
        for member in opened:
            parts = Path(member.name).parts
            content = opened.extractfile(member) if member.isfile() else None
            if content is None or not parts or Path(member.name).is_absolute() or ".." in parts:
                raise BadArchive(f"role {archive.name}: {member.name!r} is no file of a role")
            found.append((member.name, 0o755 if member.mode & 0o100 else 0o644, content.read()))
    return found
