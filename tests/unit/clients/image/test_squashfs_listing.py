"""Listings of a squashfs by other versions of unsquashfs than the installed one: recorded, and printed by a stand-in program."""

import hashlib
from pathlib import Path

import pytest

from steps.nodeimage.files import squashfs_listing

OF_4_6 = r"""/ D 1795663380 755 0 0
a\ b R 1795663380 644 0 0 2 0 0
a\ b x security.capability=0t\001\000\000\002\000 \000\000\000\000\000\000\000\000\000\000\000\000\000\000
x R 1795663380 644 0 0 3 2 0
#
# START OF DATA - DO NOT MODIFY
#
a
bb
"""
"""Of unsquashfs 4.6.1, with a capability; 4.5 tells none."""


def test_lines_of_attributes_are_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "said").write_text(OF_4_6)
    stand_in = tmp_path / "unsquashfs"
    stand_in.write_text(f"#!/bin/sh\nexec /bin/cat '{tmp_path}/said'\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = squashfs_listing.read(tmp_path / "root.squashfs").files
    assert {path: (one.kind, one.size, one.digest) for path, one in found.items() if path != "/"} == {
        "a b": ("file", 2, hashlib.sha256(b"a\n").hexdigest()),
        "x": ("file", 3, hashlib.sha256(b"bb\n").hexdigest()),
    }
