"""A lock from outside is checked field by field before its names become paths, URLs and arguments."""

from pathlib import Path

import msgspec
import pytest

from workflows.nodeimage import lockfile, recipe_files
from workflows.podimage.errors import BuildError

SHIPPED = recipe_files.RECIPES / "base.lock.json"


@pytest.mark.parametrize(
    ("where", "value", "sentence"),
    [
        ("package.path", "../../etc/passwd", "no relative path"),
        ("package.path", "/etc/passwd", "no relative path"),
        ("package.path", "pool//x", "no relative path"),
        ("package.path", "pool/x?token=1", "no relative path"),
        ("package.path", "pool/./x", "no relative path"),
        ("package.name", "--option", "no name that a package can have"),
        ("package.name", "a/b", "no name that a package can have"),
        ("package.version", "1.0\nx", "is no version"),
        ("package.version", "-o=x", "is no version"),
        ("package.architecture", "amd64 x", "is no name"),
        ("package.sha256", "0" * 63, "is no digest"),
        ("package.sha256", "sha256:" + "0" * 64, "is no digest"),
        ("package.sha256", "A" * 64, "is no digest"),
        ("package.size", 0, "is not between 1 byte"),
        ("package.size", -1, "is not between 1 byte"),
        ("package.size", 1 << 50, "is not between 1 byte"),
        ("package.source", 99, "is none of the"),
        ("package.source", -1, "is none of the"),
        ("layer.name", "../base", "is no name"),
        ("lock.architecture", "amd64/..", "is no name"),
        ("lock.sources", ["http://user:secret@[host"], "is no name of a repository"),
    ],
)
def test_an_impossible_value_is_refused_by_name(tmp_path: Path, where: str, value: object, sentence: str) -> None:
    document = msgspec.json.decode(SHIPPED.read_bytes())
    owner, _, field = where.partition(".")
    layer = document["layers"][0]
    {"lock": document, "layer": layer, "package": layer["packages"][3]}[owner][field] = value
    (tmp_path / "x.lock.json").write_bytes(msgspec.json.encode(document))
    with pytest.raises(BuildError, match=sentence):
        lockfile.read(tmp_path / "x.lock.json", "make it")


def test_a_package_or_layer_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    document = msgspec.json.decode(SHIPPED.read_bytes())
    document["layers"][0]["packages"].append(document["layers"][0]["packages"][0])
    (tmp_path / "x.lock.json").write_bytes(msgspec.json.encode(document))
    with pytest.raises(BuildError, match="is twice in layer"):
        lockfile.read(tmp_path / "x.lock.json", "make it")


@pytest.mark.parametrize("text", [b"[" * 100_000, b"\xff", b"{}", b'{"schema": 1}', b""])
def test_what_is_no_lock_at_all_is_one_sentence(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "x.lock.json").write_bytes(text)
    with pytest.raises(BuildError, match="is no lock"):
        lockfile.read(tmp_path / "x.lock.json", "make it")
