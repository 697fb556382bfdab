"""Label and field selectors as pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rehearsal.apiserver.properties import repeatable
from workflows.rehearsal.apiserver.errors import StatusError
from workflows.rehearsal.apiserver.selectors import parse_fields, parse_labels
from workflows.rehearsal.apiserver.served_resources import ResourceTable
from workflows.rehearsal.apiserver.stored_object import StoredObject

KEYS = st.sampled_from(["app", "example.com/tier", "rank", "a.b_c-d"])
VALUES = st.sampled_from(["", "x", "y", "1", "22"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=4)
PODS = ResourceTable().core("pods")


def matches(text: str, labels: dict[str, str]) -> bool:
    return all(term.matches(labels) for term in parse_labels(text))


@pytest.mark.parametrize(
    ("text", "labels", "wanted"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a == b", {"a": "b"}, True),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a=", {"a": ""}, True),
        ("a in (b,c), d notin (e)", {"a": "c"}, True),
        ("a in (b, c)", {"a": "d"}, False),
        ("a in ()", {"a": ""}, True),
        ("n>3", {"n": "10"}, True),
        ("n<3", {"n": "x"}, False),
        ("n>3", {}, False),
        ("nvidia.com/gpu.present=true,!nope", {"nvidia.com/gpu.present": "true"}, True),
    ],
)
def test_examples(text: str, labels: dict[str, str], wanted: bool) -> None:
    assert matches(text, labels) is wanted


@pytest.mark.parametrize(
    "text", [",", "a=b,", "=b", "a===b", "a in b", "a in (b", "a=b=c", "-a", "a=-b", "a>x", "a b", "!", "a in (b) c"]
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_labels(text)
    assert caught.value.code == 400


@repeatable
@given(LABELS, KEYS, VALUES)
def test_each_operator_and_its_opposite(labels: dict[str, str], key: str, value: str) -> None:
    assert matches(f"{key}={value}", labels) != matches(f"{key}!={value}", labels)
    assert matches(f"{key} in ({value})", labels) == matches(f"{key}={value}", labels)
    assert matches(f"{key} notin ({value})", labels) == matches(f"{key}!={value}", labels)
    assert matches(key, labels) != matches(f"!{key}", labels)
    assert matches(f"{key}={value}", labels) == (labels.get(key) == value)


@repeatable
@given(LABELS, st.lists(st.tuples(KEYS, VALUES), max_size=4))
def test_terms_are_anded(labels: dict[str, str], pairs: list[tuple[str, str]]) -> None:
    text = ",".join(f"{key}={value}" for key, value in pairs)
    assert matches(text, labels) == all(labels.get(key) == value for key, value in pairs)


def pod(name: str, node: str) -> StoredObject:
    return StoredObject("ns", name, 1, b"{}", {}, tuple(node if field.name == "spec.nodeName" else "" for field in PODS.fields))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("metadata.name=p", True),
        ("metadata.namespace=ns,spec.nodeName==n1", True),
        ("spec.nodeName!=n1", False),
        ("spec.nodeName=", False),
        ("status.phase!=Running", True),
        ("", True),
        (r"metadata.name=p\,q", False),
    ],
)
def test_field_selectors(text: str, wanted: bool) -> None:
    assert all(term.matches(pod("p", "n1")) for term in parse_fields(text, PODS)) is wanted


@pytest.mark.parametrize("text", ["spec.image=x", "metadata.name", "metadata.name>x"])
def test_unknown_fields_are_refused(text: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_fields(text, PODS)
    assert caught.value.code == 400
