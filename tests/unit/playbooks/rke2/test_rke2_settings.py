"""The reader of RKE2's settings sees every key that a YAML parser sees, or says that it cannot read the text."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.rke2 import rke2_settings
from hypothesis import given
from hypothesis import strategies as st

KEYS = ("server", "cni", "node-name", "kubelet-arg", "tls-san+", "token")
TEXTS = st.text(alphabet="ab:/.,'\"#[]{}|>-&*!?%@` =\\\n", max_size=12)
PLAIN = st.one_of(TEXTS, st.booleans(), st.integers(0, 99))
ANY = st.one_of(
    PLAIN, st.lists(st.one_of(PLAIN, st.lists(PLAIN, max_size=2)), max_size=3), st.dictionaries(TEXTS, PLAIN, max_size=2)
)
KEYED = ("server: ", '"cni": ', "'node-name' : ", "tls-san+: ", "token: ")
HEADS = ("", "", "- ", "- - ", "- a: ", "? ", "x y: ", "--- ", "... ", "# ", '"', "'", "]", "}", ", ", *KEYED)
TAILS = (
    "",
    "a",
    "a b",
    '"a"',
    '"a',
    "'a'",
    "'a",
    'a"',
    "[a]",
    "[a",
    "]",
    '["a", b]',
    '[a"b, "c]',
    "{}",
    "{a: b",
    "{a: b}",
    "}",
    "|",
    ">-",
)
TAILS += ("# a", "a # b", "'it''s'", '"a\\"', "&x a", "*x", "!!str a", '"a" b', "a: b", "[a, 'b]", "[]# a", '"a"# b', "a'", '\\"')
TAILS += (
    "[",
    "{",
    "[a,",
    "a]",
    "b: c}",
    "[a # b",
    "[{a: b}, c]",
    '{"a":b}',
    "[fd00::1, a:b]",
    "[a, #",
    "a, ]",
    "{a: [",
    "]}",
    "---",
    "...",
)
TAILS += (
    "|2",
    ">1-",
    "|- # a",
    "&x {a: b}",
    "<<: a",
    '"a\\',
    'a\\n"',
    "[a?b]",
    "[it's]",
    "[- a]",
    '{a:"b',
    "- a",
    "~",
    '"\\x41"',
    ":",
    "-",
)
BELOW = st.tuples(st.sampled_from(("", "", " ", "  ", "    ", "\t")), st.sampled_from(HEADS), st.sampled_from(TAILS)).map("".join)
BLOCK = st.tuples(st.sampled_from(KEYED), st.sampled_from(TAILS), st.lists(BELOW.map("\n{}".format), max_size=3)).map(
    lambda parts: parts[0] + parts[1] + "".join(parts[2])
)
"""A key with anything beside and below it, such as texts and lists that go on over the next key."""


FIRST = st.sampled_from(("", "", "", "\ufeff", "---\n", "--- # site\n", "# a\n", "\n", "--- |\n", "%YAML 1.1\n---\n"))
LAST = st.sampled_from(("", "", "\n", "\n...", "\n... # a\n", "\n...\n# a\n", "\n---\n", "\n...\nserver: a\n"))
PARSERS = (yaml, None)
"""A node's Python has one, or none."""


class Dumper(yaml.SafeDumper):
    """Writes as PyYAML does by itself: Hera changes its SafeDumper for whoever is in the same process."""


Dumper.add_representer(str, yaml.SafeDumper.represent_str)


def seen(text: str, parser: Any = None) -> dict[str, str] | None:
    """Return the settings that the reader finds in a text, or None if it says that it cannot read the text."""
    try:
        return dict(rke2_settings.parse(text, parser))
    except rke2_settings.SettingsUnreadable:
        return None


def known(text: str) -> dict[Any, Any] | None:
    """Return the mapping that a YAML parser finds in a text, or None if the text is not YAML or not a mapping."""
    try:
        found = yaml.load(text.removeprefix("\ufeff"), yaml.BaseLoader)
    except (yaml.YAMLError, TypeError, ValueError):  # a key that is a list
        return None
    return found if isinstance(found, dict) else None if found else {}


@given(FIRST, st.lists(BLOCK, max_size=3), LAST)
def test_no_key_is_overlooked_whatever_stands_around_it(first: str, blocks: list[str], last: str) -> None:
    text = first + "\n".join(blocks) + last
    there, found, parsed = known(text), seen(text), seen(text, yaml)
    if there is not None and found is not None:
        assert set(found) == set(there)
        assert found == parsed, "the same on every node"
    if there is not None and parsed is not None:
        assert set(parsed) == set(there)


@given(
    st.dictionaries(st.sampled_from(KEYS), ANY, max_size=4),
    st.sampled_from((None, False, True)),
    st.sampled_from((None, '"', "'", "|", ">")),
    st.sampled_from((30, 4096)),
)
def test_what_a_program_writes_is_read_or_refused(config: dict[str, Any], flow: bool | None, style: Any, width: int) -> None:
    text = yaml.dump(config, default_flow_style=flow, default_style=style, width=width, Dumper=Dumper)
    found, parsed = seen(text), seen(text, yaml)
    assert found is None or set(found) == set(config)
    assert found is None or found == parsed, "the same on every node"
    assert set(parsed or ()) == set(config)
    for parser in PARSERS:
        assert set(seen(json.dumps(config, indent=2), parser) or ()) == set(config), "JSON is always read"


@given(
    st.dictionaries(st.sampled_from(KEYS), st.from_regex(r"\A[a-z0-9][a-z0-9.:/-]{0,30}[a-z0-9]\Z"), min_size=1), st.integers(0, 4)
)
def test_plain_values_are_always_read(config: dict[str, str], indent: int) -> None:
    plain = yaml.dump(config, width=4096, Dumper=Dumper)
    moved = "\n".join(" " * indent + line for line in plain.splitlines())
    quoted = yaml.dump(config, default_style='"', width=4096, Dumper=Dumper)
    folded = yaml.dump(config, default_style='"', width=10, indent=4, Dumper=Dumper)
    for parser in PARSERS:
        assert [seen(text, parser) for text in (plain, moved, quoted, folded, json.dumps(config))] == [config] * 5


@given(st.dictionaries(st.sampled_from(KEYS), st.from_regex(r"\A[a-z]([a-z ]{0,9}[a-z'\"\n:#]){0,9}\Z"), min_size=1))
def test_long_texts_are_read_as_a_program_folds_them(config: dict[str, str]) -> None:
    for style in ("'", '"', None):
        text = yaml.dump(config, default_style=style, width=20, Dumper=Dumper)
        if style or "? " not in text:
            assert [seen(text, parser) for parser in PARSERS] == [config] * 2, text


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("server: https://192.0.2.1:9345 # the first\r\ncni: none\r\n", "https://192.0.2.1:9345"),
        ("# of the site\n---\n'server': 'https://192.0.2.1:9345'\ntls-san:\n- a\n- b\n", "https://192.0.2.1:9345"),
        ('  "server" : "https://192.0.2.1:9345"\n  kubelet-arg: ["a=b", c] # two\n', "https://192.0.2.1:9345"),
        ('\n{\n  "server": "https://192.0.2.1:9345",\n  "debug": true\n}\n', "https://192.0.2.1:9345"),
        ("tls-san:\n  - it's\n  - |\n    server: x\nserver: a\n", "a"),
        ("kubelet-arg:\n- a=b\n", None),
        ("", None),
        ("--- # site\nserver: a\n...\n", "a"),
        ("---\nserver: a\n... # the end\n\n# of it\n", "a"),
        ("\ufeffserver: a\n", "a"),
        ('\ufeff{"server": "a"}', "a"),
        ("tls-san: [\n  a, # one\n  fd00::1,\n  'b\n  c',\n]\nserver: a\n", "a"),
        ("tls-san: [\nserver: x,\n{server: x}\n]\nserver: a\n", "a"),
        ("kubelet-arg:\n- [a,\nb]\n- c\nserver: a\n", "a"),
        ("x: {server: x,\n  y: [z]} # two\nserver: a\n", "a"),
        ("x: {server: x}\n", None),
        ("server: [\n]\n", ""),
        ("server: {a: b}\n", ""),
        ("server: |\n  a\n", ""),
        ("server: ~\n", ""),
        ("server: '~'\n", "~"),
        ('tls-san: ["a\nserver: x"]\n', None),
        ('tls-san:\n- "a\nserver: x"\n', None),
        ("server: 'a\n  b\n\n  it''s'\n", "a b\nit's"),
        ('server: "a\\\n  \\ b\\x41\n  c"\ntoken: x\n', "a bA c"),
        ('server: a\n  b\n\n  "c\ntoken: x\n', 'a b\n"c'),
        ("server:\n  a\ntoken: x\n", "a"),
        ('kubelet-arg:\n- a\n  "b\nserver: a\ntoken: "c"\n', "a"),
        ("x: |\n  \"a\n  'b [\n\n # c\nserver: a\n", "a"),
        ("x: |\n  \"a\n  'b [\n\n# c\nserver: a\n", "a"),
        ("x: >2-\n   {a\n  b\nserver: a\n", "a"),
        ("x:\n  - y: |\n      'a\n    z: b\nserver: a\n", "a"),
        ("server: x\nserver: a\n", "a"),
        ("server: a\t# one\ntoken:\tb\n", "a"),
    ],
)
def test_what_people_and_tools_write_is_read(text: str, value: str | None, parser: Any) -> None:
    assert rke2_settings.parse(text, parser).get("server") == value


@pytest.mark.parametrize(
    "text", ["{server: a}", "x: &x b\nserver: a\n", "? server\n: a\n", "%YAML 1.1\n---\nserver: a\n", "server: !!str a\n"]
)
def test_a_parser_reads_what_few_people_write(text: str) -> None:
    assert rke2_settings.parse(text, yaml).get("server") == "a"
    with pytest.raises(rke2_settings.SettingsUnreadable):
        rke2_settings.parse(text, None)


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('tls-san: ["a\nserver: x\n', "line 1, which has no end there"),
        ("a: b\ntls-san: [a,\n  b\nserver: x\n", "line 2, which has no end there|line 4"),
        ('tls-san:\n- "a\n---\nserver: x"\n', "line 3"),
        ("a: [b}\n", "line 1"),
        ("a: [b] c\n", "line 1"),
        ("a: {b: *x\n", "line 1"),
        ("{server: x", "it is no JSON"),
        ("a: *x\n", "line 1"),
        ("<<: *x\n", "line 1"),
        ("x: b\n<<: {server: x}\n", "line 2"),
        ("- server: x\n", "line 1"),
        ("a: b\n...\nserver: x\n", "line 2"),
        ("a: b\n---\nserver: x\n", "line 2"),
        ("a: b\u2028server: x\n", "a character"),
        ("\ttoken: x\n", "line 1"),
        ("just words\n", "line 1"),
    ],
)
def test_what_is_not_understood_is_said(text: str, where: str, parser: Any) -> None:
    with pytest.raises(rke2_settings.SettingsUnreadable, match=where):
        rke2_settings.parse(text, parser)


def test_the_files_that_rke2_reads_are_read_in_its_order(tmp_path: Path) -> None:
    config, folder = tmp_path / "config.yaml", tmp_path / "config.yaml.d"
    assert rke2_settings.effective_value("server", str(config)) == ""
    (folder / "sub.yaml").mkdir(parents=True)
    (folder / "50-rancher.yaml").write_text(json.dumps({"server": "https://192.0.2.1:9345", "node-label": ["a=b"]}))
    assert rke2_settings.effective_value("server", str(config)) == "https://192.0.2.1:9345", "there is no config.yaml"
    config.write_text("server: https://192.0.2.9:9345\nnode-name: n1\n")
    (folder / "60-site.YML").write_text("s: https://192.0.2.2:9345\n")
    (folder / ".70-hidden.yaml").write_text("node-name+: n2\n")
    (folder / "80-odd.txt").write_text("server: x\n")
    assert [Path(path).name for path in rke2_settings.drop_ins(str(folder))] == [
        ".70-hidden.yaml",
        "50-rancher.yaml",
        "60-site.YML",
    ]
    assert rke2_settings.effective_value("server", str(config)) == "https://192.0.2.2:9345"
    assert rke2_settings.effective_value("node-name", str(config)) == "n2"
    (folder / "90-flow.yaml").write_text("{server: 'https://192.0.2.3:9345', debug: true\n")
    (folder / "99-lost.yaml").symlink_to("nowhere")
    assert rke2_settings.effective_value("server", str(config)) == "https://192.0.2.3:9345", "what is not understood is searched"
