"""A secret is found wherever a layer may hold it, and taken out of what is said."""

import base64
import os
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps.clients.image import canaries
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
    assert canaries.search(tmp_path, KNOWN) == [
        "token in /etc/conf",
        "token in /hunter2-hunter2.log",
        "token in /link",
        "token in /marked",
    ]


def test_across_the_border_of_what_is_read_at_once(tmp_path: Path) -> None:
    for shift in (1, 7, 14):
        trees.write(tmp_path / f"big{shift}").write_bytes(bytes((4 << 20) - shift) + SECRET + b"x")
    assert len(canaries.search(tmp_path, KNOWN)) == 3


WRITTEN = {
    "wrapped in base64": base64.encodebytes(KEY),
    "without its frame": KEY.split(b"\n", 1)[1].rsplit(b"\n", 2)[0],
    "on one line": BODY,
    "wrapped otherwise": "\r\n".join(textwrap.wrap(BODY.decode(), 40)).encode(),
    "with escapes": KEY.replace(b"\n", b"\\n"),
    "one line of it": KEY.splitlines()[3],
    "as od writes it": KEY.hex(" ", 1).encode(),
}


@pytest.mark.parametrize("how", WRITTEN)
@pytest.mark.parametrize("before", [0, (4 << 20) - 40])
def test_a_key_however_it_is_written(tmp_path: Path, how: str, before: int) -> None:
    trees.write(tmp_path / "it").write_bytes(bytes(before) + b"key = " + WRITTEN[how] + b";\n")
    assert canaries.search(tmp_path, {"key": KEY}) == ["key in /it"]
    said = canaries.redact_bytes(b"key = " + WRITTEN[how] + b";\n", {"key": KEY})
    assert canaries.search(trees.write(tmp_path / "other/said", said.decode()).parent, {"key": KEY}) == []
    assert said.endswith(b";\n")


def test_the_frame_of_a_key_is_no_secret(tmp_path: Path) -> None:
    trees.write(tmp_path / "it", "-----BEGIN PRIVATE KEY-----\nanother\n-----END PRIVATE KEY-----\n")
    assert canaries.search(tmp_path, {"key": KEY}) == []


@given(st.binary(min_size=0, max_size=40), st.binary(min_size=0, max_size=40), st.binary(min_size=12, max_size=60))
def test_in_base64_with_something_around_it(before: bytes, after: bytes, secret: bytes) -> None:
    bare = secret.strip()
    if len(canaries.bare(bare)) < 12:
        return
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        coded = encode(before + bare + after)
        assert any(form in coded for form in canaries.forms(secret))


def test_redacts_all_forms() -> None:
    text = f"got hunter2-hunter2, {base64.b64encode(SECRET.strip()).decode()} and {SECRET.strip().hex()}"
    said = canaries.redact(text, KNOWN)
    assert "hunter2" not in said
    assert said.count(canaries.MARK) == 3
