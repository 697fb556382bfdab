"""The search for secrets finds one wherever an image could hold it; a search that finds nothing would prove nothing."""

import base64
import gzip
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.boot.pipeline.canary import Search

SECRET = b"canary-0f3c77aa51"


def squashfs(folder: Path, file: Path) -> Path:
    made = folder.with_name("root.squashfs")
    subprocess.run(["mksquashfs", folder, made, "-comp", "zstd", "-no-progress", "-quiet"], check=True, capture_output=True)
    return made


def oci(folder: Path, file: Path) -> Path:
    inner, outer = folder.with_name("layer.tar"), folder.with_name("oci.tar")
    with tarfile.open(inner, "w") as archive:
        archive.add(file, "opt/x")
    subprocess.run(["zstd", "-q", "--rm", inner], check=True)
    with tarfile.open(outer, "w") as archive:
        archive.add(f"{inner}.zst", "blobs/sha256/0")
    Path(f"{inner}.zst").unlink()
    return outer


def initrd(folder: Path, file: Path) -> Path:
    """An archive as it is, as those with microcode are, and a packed one behind it."""
    made, words = folder.with_name("initrd.img"), ["cpio", "--quiet", "-o", "-H", "newc"]
    early = subprocess.run(words, cwd=folder, input=b".", capture_output=True, check=True).stdout
    packed = subprocess.run(words, cwd=folder, input=file.name.encode(), capture_output=True, check=True).stdout
    made.write_bytes(early + subprocess.run(["zstd", "-q"], input=packed, capture_output=True, check=True).stdout)
    return made


def log(folder: Path, file: Path) -> Path:
    made = folder.with_name("log.gz")
    made.write_bytes(gzip.compress(b"token: " + base64.b64encode(file.read_bytes()) + b"\n"))
    return made


@pytest.mark.parametrize("pack", [squashfs, oci, initrd, log], ids=lambda pack: pack.__name__)
def test_it_is_found(pack: Callable[[Path, Path], Path], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "file").write_bytes(b"a line before\n" + SECRET + b"\n")
    made = pack(folder, folder / "file")
    (folder / "file").unlink()
    found = list(Search([SECRET]).below(tmp_path))
    assert found
    assert all(str(made) in one for one in found), found
    assert list(Search([b"another-secret"]).below(tmp_path)) == []


def test_names_and_links_are_searched(tmp_path: Path) -> None:
    (tmp_path / SECRET.decode()).write_text("")
    (tmp_path / "link").symlink_to(SECRET.decode())
    assert len(list(Search([SECRET]).below(tmp_path))) == 2
