"""A secret is found wherever a layer may hold it, and taken out of what is said."""

import base64
import bz2
import gzip
import hashlib
import io
import lzma
import os
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps.nodeimage.layer import packed_streams, secret_scan
from tests.unit.clients.image import trees

SECRET = b"hunter2-hunter2\n"
KNOWN = {"token": SECRET}
BODY = base64.b64encode(bytes(range(256)) * 5)
KEY = (
    b"-----BEGIN PRIVATE KEY-----\n"
    + b"\n".join(textwrap.wrap(BODY.decode(), 64)[n].encode() for n in range(27))
    + b"\n-----END PRIVATE KEY-----\n"
)


def test_in_files_names_links_and_attributes(tmp_path: Path) -> None:
    trees.write(tmp_path / "etc/conf", f"password = {SECRET.decode().strip()}; more")
    trees.write(tmp_path / "hunter2-hunter2.log")
    (tmp_path / "link").symlink_to("https://me:hunter2-hunter2@host")
    trees.write(tmp_path / "marked")
    os.setxattr(tmp_path / "marked", "user.note", SECRET)
    trees.write(tmp_path / "clean", "hunter2")
    assert secret_scan.search(tmp_path, KNOWN) == [
        "token in /etc/conf",
        "token in /hunter2-hunter2.log",
        "token in /link",
        "token in /marked",
    ]


def test_across_the_border_of_what_is_read_at_once(tmp_path: Path) -> None:
    for shift in (1, 7, 14):
        trees.write(tmp_path / f"big{shift}").write_bytes(bytes((4 << 20) - shift) + SECRET + b"x")
    assert len(secret_scan.search(tmp_path, KNOWN)) == 3


WRITTEN = {
    "wrapped in base64": base64.encodebytes(KEY),
    "without its frame": KEY.split(b"\n", 1)[1].rsplit(b"\n", 2)[0],
    "on one line": BODY,
    "wrapped otherwise": "\r\n".join(textwrap.wrap(BODY.decode(), 40)).encode(),
    "with escapes": KEY.replace(b"\n", b"\\n"),
    "one line of it": KEY.splitlines()[3],
    "as od writes it": KEY.hex(" ", 1).encode(),
}


def tarred(data: bytes, name: str = "opt/token") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def zipped(data: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("opt/token", data)
    return made.getvalue()


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-q"], input=data, capture_output=True, check=True).stdout


FILLER = bytes(range(256)) * 4096
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd,
    "zip": zipped,
    "tar and gzip": lambda data: gzip.compress(tarred(data)),
    "a packed file in an archive": lambda data: tarred(gzip.compress(data)),
    "an archive in an archive": lambda data: gzip.compress(tarred(lzma.compress(tarred(data)))),
    "zip in an archive": lambda data: gzip.compress(tarred(zipped(data))),
    "zip in zip": lambda data: zipped(zipped(data)),
    "zip in gzip": lambda data: gzip.compress(zipped(data)),
    "what only begins like zip, in gzip": lambda data: gzip.compress(b"PK\x03\x04" + data),
    "zstd in zstd": lambda data: zstd(zstd(data)),
    "two streams": lambda data: gzip.compress(FILLER) + gzip.compress(data),
    "cut off behind it": lambda data: gzip.compress(data + os.urandom(1 << 20))[: 1 << 19],
    "behind much else": lambda data: gzip.compress(FILLER * 6 + data),
    "in base64": lambda data: gzip.compress(base64.encodebytes(data)),
    "as a name in an archive": lambda data: gzip.compress(tarred(b"", data.decode().strip())),
}


@pytest.mark.parametrize("how", PACKED)
def test_packed(tmp_path: Path, how: str) -> None:
    trees.write(tmp_path / "opt/x").write_bytes(PACKED[how](SECRET))
    trees.write(tmp_path / "opt/y").write_bytes(PACKED[how](b"hunter3-hunter3\n"))
    assert secret_scan.search(tmp_path, KNOWN) == ["token in /opt/x"]


HEADS = [b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", bytes(257) + b"ustar"]


@pytest.mark.parametrize("head", HEADS)
def test_what_only_begins_as_if_packed_is_no_error(tmp_path: Path, head: bytes) -> None:
    trees.write(tmp_path / "x").write_bytes(head + b"and something else" * 100)
    assert secret_scan.search(tmp_path, KNOWN) == []
    trees.write(tmp_path / "x").write_bytes(head + b"and something else" * 100 + SECRET)
    assert secret_scan.search(tmp_path, KNOWN) == ["token in /x"]


def test_too_deep_or_too_much_to_be_searched_does_not_pass(tmp_path: Path) -> None:
    deep = SECRET
    for _ in range(packed_streams.DEEPEST + 1):
        deep = gzip.compress(deep)
    trees.write(tmp_path / "deep").write_bytes(deep)
    said = "perhaps one (it packs too much to be searched)"
    assert secret_scan.search(tmp_path, KNOWN) == [f"{said} in /deep"]
    (tmp_path / "deep").unlink()
    trees.write(tmp_path / "much").write_bytes(gzip.compress(bytes(1 << 20)))
    with (tmp_path / "much").open("rb") as file, pytest.raises(packed_streams.TooMuch):
        [stream.read() for stream in packed_streams.inside(file, most=1 << 19)]
    assert secret_scan.search(tmp_path, KNOWN) == []


SMALL_DISK = """
import resource, sys
from pathlib import Path
from steps.nodeimage.layer import secret_scan
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
print(secret_scan.search(Path(sys.argv[1]), {"token": b"hunter2-hunter2"}))
"""


def test_an_archive_that_there_is_no_room_to_put_aside_does_not_pass(tmp_path: Path) -> None:
    inner = zipped(os.urandom(packed_streams.IN_MEMORY + (1 << 20)) + SECRET)
    trees.write(tmp_path / "opt/x").write_bytes(gzip.compress(tarred(inner), compresslevel=1))
    done = subprocess.run([sys.executable, "-c", SMALL_DISK, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "['perhaps one (it packs too much to be searched) in /opt/x']\n"


def test_what_a_package_brought_is_not_unpacked(tmp_path: Path) -> None:
    """Nothing of a site is in it; what was changed since is opened."""
    for name in ("usr/share/doc/x/changelog.gz", "usr/lib/modules/x.ko.xz", "usr/share/doc/x/changed.gz"):
        trees.write(tmp_path / name).write_bytes(gzip.compress(SECRET, mtime=0))
    sums = hashlib.md5(gzip.compress(SECRET, mtime=0)).hexdigest()
    noted = "".join(f"{sums}  {name}\n" for name in ("usr/share/doc/x/changelog.gz", "lib/modules/x.ko.xz"))
    trees.write(tmp_path / "var/lib/dpkg/info/x.md5sums", f"{noted}{'0' * 32}  usr/share/doc/x/changed.gz\n")
    assert secret_scan.search(tmp_path, KNOWN) == ["token in /usr/share/doc/x/changed.gz"]


@pytest.mark.parametrize("how", WRITTEN)
@pytest.mark.parametrize("before", [0, (4 << 20) - 40])
def test_a_key_however_it_is_written(tmp_path: Path, how: str, before: int) -> None:
    trees.write(tmp_path / "it").write_bytes(bytes(before) + b"key = " + WRITTEN[how] + b";\n")
    assert secret_scan.search(tmp_path, {"key": KEY}) == ["key in /it"]
    said = secret_scan.redact_bytes(b"key = " + WRITTEN[how] + b";\n", {"key": KEY})
    assert secret_scan.search(trees.write(tmp_path / "other/said", said.decode()).parent, {"key": KEY}) == []
    assert said.endswith(b";\n")


def test_the_frame_of_a_key_is_no_secret(tmp_path: Path) -> None:
    trees.write(tmp_path / "it", "-----BEGIN PRIVATE KEY-----\nanother\n-----END PRIVATE KEY-----\n")
    assert secret_scan.search(tmp_path, {"key": KEY}) == []


@given(st.binary(min_size=0, max_size=40), st.binary(min_size=0, max_size=40), st.binary(min_size=12, max_size=60))
def test_in_base64_with_something_around_it(before: bytes, after: bytes, secret: bytes) -> None:
    bare = secret.strip()
    if len(secret_scan.strip_space(bare)) < 12:
        return
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        coded = encode(before + bare + after)
        assert any(form in coded for form in secret_scan.forms(secret))


def test_redacts_all_forms() -> None:
    text = f"got hunter2-hunter2, {base64.b64encode(SECRET.strip()).decode()} and {SECRET.strip().hex()}"
    said = secret_scan.redact(text, KNOWN)
    assert "hunter2" not in said
    assert said.count(secret_scan.MARK) == 3
