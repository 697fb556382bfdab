"""Whatever one value of a good spec is turned into, loading gives a spec or SpecErrors, and the errors can be printed."""

import copy
import random
from typing import Any

import pytest
import yaml

from workflows import catalog, spec
from workflows.examples import names, path

SEED = 20261121
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**30,
    1.5,
    "",
    "x",
    "no such",
    "a[1-",
    "a" * 600,
    [],
    [[]],
    [None],
    {},
    {"x": 1},
    {"file": 1},
    "${name}",
    "%s",
)


def _places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [here] if here else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += _places(inner, (*here, key))
    return found


def _mutated(data: Any, place: tuple[Any, ...], junk: Any) -> str:
    changed = copy.deepcopy(data)
    here = changed
    for key in place[:-1]:
        here = here[key]
    here[place[-1]] = junk
    return yaml.safe_dump(changed, sort_keys=False)


@pytest.mark.parametrize("name", names())
def test_one_bad_value_never_breaks_loading(name: str) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    data = yaml.safe_load(path(name).read_text(encoding="utf-8"))
    known = catalog.load()
    loaded, texts = 0, []
    for place in _places(data):
        text = _mutated(data, place, chance.choice(JUNK))
        try:
            cluster = spec.load(text)
            loaded += 1
            catalog.check(cluster, known)
        except spec.SpecErrors as errors:
            texts.append(str(errors))
    assert all(texts)
    assert loaded < len(_places(data)) / 2
