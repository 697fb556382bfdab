"""Every rule of `bringup gitops check`: its trap gives exactly its findings, a tree without it none. Takes 2 s of CPU."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from workflows import catalog
from workflows.gitops_check import delivery_check
from workflows.gitops_check.delivery_check import CLASSES, DeliveryCheck, RenderedChart
from workflows.gitops_check.gitops_findings import RULES

HERE = Path(__file__).parent
CASES = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((HERE / "cases").glob("*.yaml"))}
FRAGMENTS: Mapping[str, Mapping[str, str]] = yaml.safe_load((HERE / "fragments.yaml").read_text(encoding="utf-8"))
COMPONENTS = catalog.load().components
OF_READING = {"file-refused"}
"""Rules about files on a disk, which `test_reading.py` tests."""


def tree(case: Mapping[str, Any]) -> dict[str, str]:
    files = {path: text for name in case.get("with", ()) for path, text in FRAGMENTS[name].items()}
    for path, changes in case.get("replace", {}).items():
        for old, new in changes.items():
            assert old in files[path], f"{path} has no {old!r}"
            files[path] = files[path].replace(old, new)
    return {path: text for path, text in {**files, **case.get("files", {})}.items() if text is not None}


def checked(case: Mapping[str, Any]) -> DeliveryCheck:
    rendered = [RenderedChart(**chart) for chart in case.get("rendered", ())]
    state = delivery_check.sort_state(tree(case), rendered, COMPONENTS)
    return delivery_check.check(state, COMPONENTS)


def each(kind: str) -> Iterator[Any]:
    for name, content in CASES.items():
        for number, case in enumerate(content[kind]):
            yield pytest.param(name, case, id=f"{name}-{number}")


@pytest.mark.parametrize(("name", "case"), tuple(each("traps")))
def test_a_trap_gives_exactly_its_findings(name: str, case: Mapping[str, Any]) -> None:
    result = checked(case)
    shown = sorted(f"{f.severity} {f.rule} {f.place} {f.value}".rstrip() for f in result.findings)
    assert shown == sorted(case["findings"])
    assert any(f.rule == name for f in result.findings)
    assert all(f.failure_class in CLASSES and f.fix and f.problem for f in result.findings)
    for words in case.get("unchecked", ()):
        assert any(words in str(part) for part in result.unchecked)


@pytest.mark.parametrize(("name", "case"), tuple(each("silent")))
def test_a_tree_without_the_trap_is_silent(name: str, case: Mapping[str, Any]) -> None:
    assert name in CASES
    assert checked(case).findings == ()


@pytest.mark.parametrize("name", tuple(FRAGMENTS))
def test_fragments_are_clean(name: str) -> None:
    assert checked({"with": [name]}).findings == ()


def test_every_rule_has_a_trap_and_a_silent_tree() -> None:
    assert set(CASES) == set(RULES) - OF_READING
    assert all(content["traps"] and content["silent"] for content in CASES.values())
    # the seven classes of a delivery, each with a rule
    assert {rule.failure_class.value for rule in RULES.values()} == set(CLASSES)
