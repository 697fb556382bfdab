"""Decoding of built-in kinds, quantities, schemas and field sets as pure functions."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rehearsal.apiserver.properties import repeatable
from workflows.rehearsal.apiserver import builtin_decoder, managed_fields, representations
from workflows.rehearsal.apiserver.builtin_decoder import ANY, BuiltinDecoder, ListType, NamedTypes, Schema, WrongTypeError
from workflows.rehearsal.apiserver.representations import age
from workflows.rehearsal.apiserver.served_resources import ResourceTable

RESOURCES = ResourceTable()
POD = RESOURCES.core("pods").schema


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("8", "8"),
        (8, "8"),
        (0.5, "500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.1", "100m"),
        ("2048Mi", "2Gi"),
        ("1.5Gi", "1536Mi"),
        ("2113Gi", "2113Gi"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("1000", "1k"),
        ("143771", "143771"),
        ("1e3", "1e3"),
        ("1E6", "1e6"),
        ("0", "0"),
        ("0Gi", "0"),
        ("-5", "-5"),
        ("12345678901234", "12345678901234"),
        ("100k", "100k"),
        ("1u", "1u"),
    ],
)
def test_canonical_quantities(given: Any, wanted: str) -> None:
    assert builtin_decoder.canonical_quantity(given) == wanted


@pytest.mark.parametrize("text", ["", "x", "1.2.3", "1 Gi", "1GiB", "--1", "Gi", "1K"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        builtin_decoder.canonical_quantity(text)


@repeatable
@given(st.integers(0, 10**15), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi", "e3"]))
def test_canonical_form_is_stable(number: int, suffix: str) -> None:
    once = builtin_decoder.canonical_quantity(f"{number}{suffix}")
    assert builtin_decoder.canonical_quantity(once) == once


def decode(body: dict[str, Any]) -> tuple[dict[str, Any], BuiltinDecoder]:
    decoder = BuiltinDecoder()
    return decoder.decode(body, POD, ""), decoder


def test_decoder_drops_unknown_fields_and_nulls() -> None:
    body = {"spec": {"containers": [{"name": "c", "imagePullSecret": 1}], "nodeName": None}, "other": {}}
    decoded, decoder = decode(body)
    assert decoded == {"spec": {"containers": [{"name": "c"}]}}
    assert sorted(decoder.unknown) == ["other", "spec.containers[0].imagePullSecret"]


def test_decoder_fills_what_go_always_writes() -> None:
    decoded, decoder = decode({"spec": {}, "status": {"containerStatuses": [{"name": "c"}]}})
    assert decoded["status"]["containerStatuses"] == [{"name": "c", "image": "", "imageID": "", "ready": False, "restartCount": 0}]
    assert decoder.missing == ["spec.containers"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"metadata": {"labels": {"a": 1}}}, "cannot unmarshal number into Go struct field .metadata.labels.a of type string"),
        ({"spec": {"containers": {}}}, "cannot unmarshal object into Go struct field .spec.containers of type slice"),
        ({"spec": {"hostNetwork": "yes"}}, "cannot unmarshal string"),
        ({"spec": {"priority": 2**31}}, "of type int32"),
        ({"spec": {"priority": True}}, "cannot unmarshal bool"),
        ({"spec": {"overhead": {"cpu": "lots"}}}, "quantities must match"),
        ({"metadata": {"creationTimestamp": "yesterday"}}, "parsing time"),
        ({"spec": []}, "cannot unmarshal array"),
    ],
)
def test_decoder_refuses_wrong_types(body: dict[str, Any], words: str) -> None:
    with pytest.raises(WrongTypeError, match=words):
        decode(body)


def test_merge_rules_come_from_kubernetes_own_types() -> None:
    spec = POD.child("spec")
    assert (spec.child("containers").list_type, spec.child("containers").map_keys) == (ListType.MAP, ("name",))
    assert spec.child("tolerations").list_type is ListType.ATOMIC
    assert spec.child("containers").items.child("ports").map_keys == ("containerPort", "protocol")
    assert spec.child("nodeSelector").atomic_map
    assert POD.child("metadata").child("finalizers").list_type is ListType.SET
    assert RESOURCES.core("nodes").schema.child("status").child("conditions").map_keys == ("type",)
    assert not ANY.child("x").child("y").atomic_map
    assert Schema({}, NamedTypes({})).atomic_map


def test_field_set_has_the_published_form() -> None:
    body = {
        "metadata": {"name": "p", "labels": {"a": "1"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"x": "y"}},
    }
    fields = managed_fields.owned_fields({"apiVersion": "v1", "kind": "Pod"} | body, POD)
    assert managed_fields.encode(fields) == {
        "f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {
            "f:containers": {'k:{"name":"c"}': {".": {}, "f:image": {}, "f:name": {}}},
            "f:nodeSelector": {},
        },
    }
    names = sorted(map(managed_fields.dotted_path, fields))
    assert '.spec.containers[name="c"].image' in names


PATHS = st.lists(st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"']), min_size=1, max_size=4).map(tuple)


@repeatable
@given(st.frozensets(PATHS, max_size=8))
def test_field_set_survives_its_encoding(fields: frozenset[tuple[str, ...]]) -> None:
    assert frozenset(managed_fields.decode(managed_fields.encode(fields))) == fields


CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from("abc")}, optional={"image": st.sampled_from("xy"), "args": st.lists(st.sampled_from("12"))}
)
BODIES = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER, unique_by=lambda row: row["name"])},
    optional={"nodeName": st.just("n"), "hostNetwork": st.booleans()},
).map(lambda spec: {"spec": spec})


@repeatable
@given(BODIES)
def test_every_owned_path_has_its_value(body: dict[str, Any]) -> None:
    for path in managed_fields.owned_fields(body, POD):
        assert managed_fields.get(body, POD, path) is not None


@repeatable
@given(BODIES)
def test_removing_all_owned_paths_leaves_nothing(body: dict[str, Any]) -> None:
    left = copy.deepcopy(body)
    for path in sorted(managed_fields.owned_fields(body, POD), key=len):
        managed_fields.remove(left, POD, path)
    assert left in ({}, {"spec": {}})


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.size", [3]),
        ("{.spec.size}", [3]),
        (".spec.rows[0].name", ["a"]),
        (".spec.rows[*].name", ["a", "b"]),
        ('.spec.rows[?(@.name=="b")].size', [2]),
        (r".metadata.labels.example\.com/x", ["1"]),
        (".metadata.labels['example.com/x']", ["1"]),
        (".spec.none.deeper", []),
    ],
)
def test_json_path(path: str, found: list[Any]) -> None:
    rows = [{"name": "a", "size": 1}, {"name": "b", "size": 2}]
    assert (
        representations.json_path_values({"metadata": {"labels": {"example.com/x": "1"}}, "spec": {"size": 3, "rows": rows}}, path)
        == found
    )


def test_age() -> None:
    assert age("") == "<unknown>"
    assert age("2001-01-01T00:00:00Z").endswith("d")
    assert age("2999-01-01T00:00:00Z") == "0s"
