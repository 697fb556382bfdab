"""YAML that no spec needs is refused before anything is made of it, and nothing but SpecErrors ever comes out."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflows import spec
from workflows.spec.parsing.document import BadDocument, parse
from workflows.spec.starter import starter


def test_scalars_follow_yaml_1_2() -> None:
    data = parse("a: no\nb: 012\nc: 1:30\nd: 7\ne: 1.5\nf: ~\ng: 'true'\nh: true\ni: 2026-11-21\nj:\nk: 0x1F\nl: 1e3\n").data
    expected = {"a": "no", "b": "012", "c": "1:30", "d": 7, "e": 1.5, "f": None, "g": "true", "h": True}
    assert data == expected | {"i": "2026-11-21", "j": None, "k": "0x1F", "l": "1e3"}


def test_lines_are_those_of_the_keys() -> None:
    lines = parse("a:\n  b:\n    - x\n    - c: 1\n").lines
    assert lines == {"a": 1, "a.b": 2, "a.b[0]": 3, "a.b[1]": 4, "a.b[1].c": 4}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: &x 1\nb: *x\n", "anchors"),
        ("a: &x [1]\n", "anchors"),
        ("a: !!str 1\n", "tags"),
        ("a: !!python/object/apply:os.system [id]\n", "tags"),
        ("a: !secret x\n", "tags"),
        ("a: 1\na: 2\n", "twice"),
        ("? [a, b]\n: 1\n", "key must be text"),
        ("? {a: b}\n: 1\n", "key must be text"),
        ("*x : 1\n", "aliases"),
        ("<<: {a: 1}\nb: *c\n", "aliases"),
        ("a: 1\n---\nb: 2\n", "more than one document"),
        ("a: [" * 40 + "]" * 40, "nested deeper"),
        ("a: {" * 5000, "nested deeper"),
        ("a: [1\n", "not YAML"),
        ("a: \x00\n", "not YAML"),
        ("a: 'x\n", "not YAML"),
        ("\ta: 1\n", "not YAML"),
        ("a: " + "x" * (1 << 20) + "\n", "larger than 1 MiB"),
    ],
)
def test_what_a_spec_has_no_use_for_is_refused(text: str, word: str) -> None:
    with pytest.raises(BadDocument) as caught:
        parse(text)
    assert any(word in error.problem for error in caught.value.errors)


def test_an_expansion_bomb_costs_nothing() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    start = time.process_time()
    with pytest.raises(BadDocument):
        parse(bomb)
    assert time.process_time() - start < 0.5


HOSTILE = {
    "one value of 60 kB that looks like tokens": "name: " + "eyJaaaaaaaaaaa-" * 4000,
    "many such values": "".join(f"k{n}: {'eyJaaaaaaaaaaa-' * 4000}\n" for n in range(16)),
    "a million hosts in one bracket": "hosts: {a: {role: agent, ranges: 'n[" + ",".join(["1-19999"] * 400) + "]'}}",
    "a million hosts in a list": "hosts: {a: {role: agent, ranges: [" + ", ".join(["'n[1-19999]'"] * 200) + "]}}",
    "a million hosts in groups": "hosts:\n" + "".join(f"  g{n}: {{role: agent, ranges: 'n[1-19999]'}}\n" for n in range(100)),
    "a product": "hosts: {a: {role: agent, ranges: '" + "n[1-9999]-" * 30 + "x'}}",
    "ten thousand unknown keys": "".join(f"k{n}: 1\n" for n in range(10_000)),
    "deep keys": "".join(f"{' ' * n}k:\n" for n in range(31)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_in_little_time(name: str) -> None:
    start = time.process_time()
    with pytest.raises(spec.SpecErrors) as caught:
        spec.load(HOSTILE[name] + "\n")
    assert time.process_time() - start < 5  # below 1 where nothing else runs; what grows with the square takes minutes
    assert len(str(caught.value)) < 60_000


def test_a_merge_key_is_only_a_key() -> None:
    with pytest.raises(spec.SpecErrors, match="<< is not a key"):
        spec.load("<<: {kind: Cluster}\napiVersion: bringup/v1\n")


def test_a_file_that_cannot_be_read_is_an_error_of_the_spec(tmp_path: Path) -> None:
    with pytest.raises(spec.SpecErrors, match="cannot read"):
        spec.load(tmp_path / "missing.yaml")
    with pytest.raises(spec.SpecErrors, match="cannot read"):
        spec.load(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(spec.SpecErrors, match="not UTF-8"):
        spec.load(binary)
    large = tmp_path / "large.yaml"
    large.write_text("# " + "x" * (1 << 20) + "\n", encoding="utf-8")
    with pytest.raises(spec.SpecErrors, match="larger than 1 MiB"):
        spec.load(large)


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "bom.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + starter().encode())
    assert spec.load(file).name == "my-cluster"


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=200).map(lambda text: f"{text}\n"))
def test_any_text_is_a_spec_or_spec_errors(text: str) -> None:
    with pytest.raises(spec.SpecErrors) as caught:
        spec.load(text)
    assert caught.value.errors
    assert str(caught.value)
