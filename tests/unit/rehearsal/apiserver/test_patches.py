"""Merge patch, JSON patch and strategic merge patch as pure functions."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rehearsal.apiserver.properties import repeatable
from workflows.rehearsal.apiserver import patching
from workflows.rehearsal.apiserver.errors import StatusError
from workflows.rehearsal.apiserver.patching import json_patched, merge_patched
from workflows.rehearsal.apiserver.served_resources import ResourceTable

SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab~/", max_size=3)
JSON = st.recursive(
    SCALARS, lambda child: st.lists(child, max_size=3) | st.dictionaries(st.text("ab~/0", max_size=2), child, max_size=3)
)
OBJECTS = st.dictionaries(st.text("abc", max_size=1), JSON, max_size=3)


def without_nulls(value: Any) -> Any:
    return {key: without_nulls(child) for key, child in value.items() if child is not None} if isinstance(value, dict) else value


def difference(old: Any, new: Any) -> Any:
    """The merge patch from `old` to `new`, neither of which holds null in an object."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    changed = {key: difference(old[key], value) if key in old else value for key, value in new.items() if old.get(key) != value}
    return changed | {key: None for key in old if key not in new}


@pytest.mark.parametrize(
    ("target", "patch", "result"),  # RFC 7386, appendix A
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_examples(target: Any, patch: Any, result: Any) -> None:
    assert merge_patched(target, patch) == result


@repeatable
@given(OBJECTS, OBJECTS)
def test_merge_patch_is_idempotent_and_leaves_its_arguments(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    once = merge_patched(target, patch)
    assert merge_patched(once, patch) == once
    assert (target, patch) == before


@repeatable
@given(OBJECTS, OBJECTS)
def test_merge_patch_of_a_difference_gives_the_new_object(old: Any, new: Any) -> None:
    old, new = without_nulls(old), without_nulls(new)
    assert merge_patched(old, difference(old, new)) == new


@pytest.mark.parametrize(
    ("document", "operations", "result"),  # RFC 6902, appendix A
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"foo": "bar", "baz": "qux"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["a", "b"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["a"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        ({"a": {"x": 1}, "b": {}}, [{"op": "move", "from": "/a/x", "path": "/b/y"}], {"a": {}, "b": {"y": 1}}),
        (
            {"foo": ["all", "grass", "cows"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/2"}],
            {"foo": ["all", "cows", "grass"]},
        ),
        ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
    ],
)
def test_json_patch_examples(document: Any, operations: Any, result: Any) -> None:
    before = copy.deepcopy(document)
    assert json_patched(document, operations) == result
    assert document == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "add", "path": "/l/2", "value": 1},
        {"op": "add", "path": "/l/01", "value": 1},
        {"op": "add", "path": "/x"},
        {"op": "add", "path": "x", "value": 1},
        {"op": "remove", "path": "/none"},
        {"op": "remove", "path": "/l/-1"},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "test", "path": "/n", "value": True},
        {"op": "test", "path": "/n", "value": 2},
        {"op": "move", "from": "/l", "path": "/l/0"},
        {"op": "other", "path": "/n"},
        "not an operation",
    ],
)
def test_json_patch_errors(operation: Any) -> None:
    with pytest.raises(StatusError):
        json_patched({"a": {}, "l": [1], "n": 1}, [operation])


def pointer(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")


@repeatable
@given(st.dictionaries(st.text("ab~/01", max_size=3), JSON, max_size=3), st.text("ab~/01", max_size=3), JSON)
def test_json_patch_add_then_remove_is_nothing(document: Any, key: str, value: Any) -> None:
    added = json_patched(
        document, [{"op": "add", "path": pointer(key), "value": value}, {"op": "test", "path": pointer(key), "value": value}]
    )
    assert added[key] == value
    back = [
        {"op": "replace", "path": pointer(key), "value": document[key]}
        if key in document
        else {"op": "remove", "path": pointer(key)}
    ]
    assert json_patched(added, back) == document


POD = ResourceTable().core("pods").schema


def strategic(target: Any, patch: Any) -> Any:
    before = copy.deepcopy(target)
    result = patching.strategic_merge(target, patch, POD)
    assert target == before
    return result


def containers(*names: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "image": f"{name}:1"} for name in names]}}


def test_strategic_merges_lists_by_key() -> None:
    result = strategic(containers("a", "b"), {"spec": {"containers": [{"name": "b", "image": "b:2"}, {"name": "c"}]}})
    assert [(row["name"], row.get("image")) for row in result["spec"]["containers"]] == [("a", "a:1"), ("b", "b:2"), ("c", None)]


def test_strategic_replaces_lists_without_key() -> None:
    held = {"spec": {"tolerations": [{"key": "a"}], "containers": [{"name": "c", "args": ["1", "2"]}]}}
    result = strategic(held, {"spec": {"tolerations": [{"key": "b"}], "containers": [{"name": "c", "args": ["3"]}]}})
    assert result["spec"] == {"tolerations": [{"key": "b"}], "containers": [{"name": "c", "args": ["3"]}]}


def test_strategic_directives() -> None:
    assert strategic(containers("a", "b"), {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}) == containers("b")
    replaced = {"spec": {"containers": [{"$patch": "replace"}, {"name": "c", "image": "c:1"}]}}
    assert strategic(containers("a", "b"), replaced) == containers("c")
    assert strategic({"spec": {"nodeSelector": {"a": "1"}}}, {"spec": {"nodeSelector": {"$patch": "replace", "b": "2"}}}) == {
        "spec": {"nodeSelector": {"b": "2"}}
    }
    finalizers = {"metadata": {"finalizers": ["a", "b"]}}
    assert strategic(finalizers, {"metadata": {"finalizers": ["c"]}})["metadata"]["finalizers"] == ["a", "b", "c"]
    removed = strategic(finalizers, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}})
    assert removed["metadata"]["finalizers"] == ["b"]
    ordered = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert strategic(containers("a", "b"), ordered) == containers("b", "a")
    volume = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    changed = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}
    assert strategic(volume, changed)["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


@pytest.mark.parametrize("patch", [{"$patch": "other"}, {"spec": {"containers": [{"image": "x"}]}}])
def test_strategic_errors(patch: Any) -> None:
    with pytest.raises(patching.StrategicPatchError):
        strategic(containers("a"), patch)


@repeatable
@given(st.lists(st.sampled_from("abcd"), unique=True), st.lists(st.sampled_from("abcd"), unique=True))
def test_strategic_merge_keeps_the_union_of_elements(held: list[str], sent: list[str]) -> None:
    result = strategic(containers(*held), containers(*sent))
    names = [row["name"] for row in result["spec"]["containers"]]
    assert names == held + [name for name in sent if name not in held]
    assert strategic(result, containers(*sent)) == result
