"""The shipped schema of Argo's kinds: made from the published CRDs, with a function for every CEL rule."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance import argo_schema
from tests.conformance.corpus import DATA, cases
from workflows.engines.local import documents
from workflows.render.grammar.lint import lint
from workflows.render.grammar.schema_check import RULES, check_schema

SHIPPED: dict[str, Any] = json.loads(argo_schema.SHIPPED.read_text())


def test_the_shipped_file_is_made_from_the_published_crds() -> None:
    assert argo_schema.SHIPPED.read_text() == argo_schema.reduced(), "write it anew: python -m tests.conformance.argo_schema"


def test_every_rule_of_the_crds_has_a_function() -> None:
    assert {rule for schema in SHIPPED["schemas"] for rule in schema.get("rules", ())} == set(RULES)


def test_it_rejects_exactly_what_a_real_api_server_rejected() -> None:
    rejected = {case.name for case in cases() if any(list(check_schema(read)) for read in documents.read(case / "workflow.yaml"))}
    recorded = {case.name: json.loads((case / "recorded.json").read_text())["phase"] for case in cases()}
    assert rejected == {name for name, phase in recorded.items() if phase == "Rejected"}
    assert rejected, DATA


HEAD = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\n"
SPEC = "spec: {entrypoint: t, arguments: {parameters: [{name: a, value: %s}]}, templates: [{name: t, suspend: {}}]}\n"


@pytest.mark.parametrize("word", ["y", "N", "yes", "Off", "true", "0777", "1e3", "12", ".5", "1_000"])
def test_a_bare_word_that_kubectl_reads_as_another_type_is_refused(tmp_path: Path, word: str) -> None:
    (tmp_path / "w.yaml").write_text(HEAD + SPEC % word)
    (finding,) = lint(documents.read(tmp_path / "w.yaml")[0])
    assert finding.path == "spec.arguments.parameters[0].value"
    assert "quote it" in finding.sentence


@pytest.mark.parametrize("word", ["12:30", "2026-01-02", "1.2.3", "=", "yEs", "'yes'", '"5"', "!!str no", "1e"])
def test_a_bare_word_that_kubectl_reads_as_text_is_accepted(tmp_path: Path, word: str) -> None:
    (tmp_path / "w.yaml").write_text(HEAD + SPEC % word)
    assert lint(documents.read(tmp_path / "w.yaml")[0]) == ()


def test_a_bare_key_is_the_text_that_json_makes_of_it(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("on: 1\n5: x\n")
    assert documents.read(tmp_path / "w.yaml") == [{"true": 1, "5": "x"}]


def test_a_key_that_stands_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(HEAD + "spec:\n  entrypoint: a\n  entrypoint: b\n")
    with pytest.raises(documents.ManifestRefusedError, match="line 6: the key entrypoint stands twice"):
        documents.read(tmp_path / "w.yaml")


def test_null_counts_as_absent_as_it_does_for_an_api_server() -> None:
    manifest = yaml.safe_load(HEAD + "spec: {entrypoint: t, suspend: null, templates: [{name: t, suspend: {duration: null}}]}")
    assert list(check_schema(manifest)) == []
