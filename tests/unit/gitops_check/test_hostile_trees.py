"""Broken and hostile trees: mutated files, wrong types at every place, bombs. Nothing crashes. Takes 9 s of CPU."""

import copy
import random
import string
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.unit.gitops_check.test_cases import COMPONENTS, FRAGMENTS
from workflows.gitops_check import check_documents, delivery_check, yaml_stream
from workflows.gitops_check.delivery_check import DeliveryCheck

SEED = 20261129
WRONG: tuple[Any, ...] = (None, True, 7, 1.5, "text", "{{ .Values.x }}", [], {}, [None], [[1]], {"a": {"b": None}}, "x" * 500)


def judged(files: dict[str, str], earlier: dict[str, str]) -> DeliveryCheck:
    before, after = (delivery_check.sort_state(tree, (), COMPONENTS) for tree in (earlier, files))
    result = delivery_check.check(after, COMPONENTS, before)
    check_documents.junit(result, strict=True)
    assert list(check_documents.markdown(result, "sum"))
    for entry in result.findings:
        assert entry.line <= files.get(entry.path, "").count("\n") + 1, entry
    return result


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield container and key of every value of a document."""
    for key, value in list(data.items()) if isinstance(data, dict) else list(enumerate(data)) if isinstance(data, list) else []:
        yield data, key
        yield from places(value)


def by_type(rng: random.Random, text: str) -> str:
    try:
        data = copy.deepcopy(yaml.safe_load(text))
    except yaml.YAMLError:
        return text
    if not isinstance(data, dict):
        return text
    container, key = rng.choice(list(places(data)))
    container[key] = rng.choice(WRONG)
    return yaml.safe_dump(data, sort_keys=False)


def by_text(rng: random.Random, text: str) -> str:
    at, kind = rng.randrange(len(text)), rng.randrange(4)
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text[:at] + rng.choice(string.printable + "\0\u2028é") + text[at + 1 :]
    lines = text.splitlines(keepends=True)
    number = rng.randrange(len(lines))
    return "".join(lines[:number] + lines[number + 1 :] if kind == 2 else lines[:number] + lines[number:] * 2)


@pytest.mark.parametrize("mutate", [by_type, by_text])
@pytest.mark.parametrize("fragment", tuple(FRAGMENTS))
def test_no_mutation_crashes_a_check(fragment: str, mutate: Callable[[random.Random, str], str]) -> None:
    print(f"seed {SEED}")
    rng, clean = random.Random(SEED), dict(FRAGMENTS[fragment])
    for _ in range(80):
        files = dict(clean)
        path = rng.choice(sorted(files))
        files[path] = mutate(rng, files[path])
        judged(files, clean)
        judged(clean, files)


def test_bombs_and_depths_are_refused() -> None:
    bomb = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 20)}]\n" for n in range(9))
    deep = "a: " + "[" * 5000
    for text in (bomb, deep, "a: !!binary x", "a: &a [*a]\n", "? [1]\n: 2\n", "*x: 1\n"):
        with pytest.raises(yaml_stream.BadStream):
            yaml_stream.documents(text)


def test_aliases_and_merge_keys_mean_what_yaml_says() -> None:
    text = "base: &b {a: 1, b: 2}\nother:\n  <<: *b\n  b: 3\nlist:\n- <<: [*b, {c: 4}]\n---\nsecond: 1e3\n"
    first, second = yaml_stream.documents(text)
    assert first.data == {"base": {"a": 1, "b": 2}, "other": {"b": 3, "a": 1}, "list": [{"a": 1, "b": 2, "c": 4}]}
    assert (first.line("other", "b"), first.line("list", 0), second.line("second")) == (4, 6, 8)


def test_many_findings_take_little_time() -> None:
    keys = "".join(f"  unknown{n}: CHANGEME\n" for n in range(5_000))
    files = dict(FRAGMENTS["chart"]) | {"tools/values.yaml": f"volcano:\n{keys}"}
    assert len(judged(files, dict(FRAGMENTS["chart"])).findings) >= 5_000


def test_texts_that_are_made_to_take_long_do_not() -> None:
    costly = '{{ .Files.Glob "*a*a*a*a*a*a*a*b" }}' + '.Files.Glob "a' * 10_000
    more = {"x.yaml": "range " * 200_000, "y.yaml": "\n" * 1_000_000 + "kind: ConfigMap .Files.", "z.yaml": costly}
    files = {**FRAGMENTS["chart"], **{f"tools/templates/{name}": text for name, text in more.items()}, f"tools/{'a' * 200}": "x"}
    files["key.txt"] = "-----BEGIN " * 150_000
    files["apps/far.yaml"] = FRAGMENTS["web"]["apps/web.yaml"].replace("path: web", f"path: {'a/' * 30_000}")
    start = time.process_time()
    result = judged(files, dict(FRAGMENTS["chart"]))
    assert time.process_time() - start < 20
    assert "glob-matches-nothing" in {entry.rule for entry in result.findings}


def test_a_tree_of_many_applications_is_checked() -> None:
    files: dict[str, str] = {}
    for number in range(600):
        text = FRAGMENTS["web"]["apps/web.yaml"].replace("name: web", f"name: w{number}").replace("path: web", f"path: w{number}")
        files[f"apps/w{number}.yaml"] = text.replace("namespace: web", f"namespace: w{number}")
        files[f"w{number}/deployment.yaml"] = FRAGMENTS["web"]["web/deployment.yaml"]
    assert judged(files, {}).findings == ()
