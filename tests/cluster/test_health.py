"""Every health script that argocd-cm gets, evaluated by the real Argo CD, gives what its cases say; each outcome has cases."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from actors.argo_cd_health import Evaluator, variants
from kubelab import product

from workflows.gitops.projects import HEALTH, health_scripts

FOLDER = Path(__file__).with_name("health")
RECORDED = Path(os.environ.get("BRINGUP_TEST_DATA") or product.ROOT.parent / "shared") / "samples"
SCRIPTS: Mapping[str, str] = health_scripts()
Object = dict[str, Any]


def cases(kind: str) -> list[Object]:
    """The cases of a kind; one whose script is another's has that one's."""
    same = [other for other, text in SCRIPTS.items() if text == SCRIPTS[kind]]
    found = [FOLDER / f"{other}.yaml" for other in same if (FOLDER / f"{other}.yaml").exists()]
    assert len(found) == 1, f"tests/cluster/health has no file of cases for {kind}"
    return list(yaml.safe_load(found[0].read_text()))


def manifest(kind: str, case: Object) -> Object:
    """Return the object of a case as the manifest that Argo CD reads."""
    group, _, name = kind.rpartition("_")
    recorded = yaml.safe_load((RECORDED / case["recorded"]).read_text()) if "recorded" in case else {}
    made: Object = recorded | case.get("object", {})
    return made | {"apiVersion": f"{group}/v1", "kind": name, "metadata": {"name": "one"} | made.get("metadata", {})}


@pytest.fixture
def argo_cd(able: None, tmp_path: Path) -> Evaluator:
    return Evaluator(tmp_path)


def test_there_are_cases_for_every_script_and_no_others() -> None:
    files = {path.stem for path in FOLDER.glob("*.yaml")}
    assert files <= SCRIPTS.keys()
    assert {SCRIPTS[kind] for kind in files} == set(SCRIPTS.values())


@pytest.mark.parametrize("kind", SCRIPTS)
def test_argo_cd_takes_the_script_of_each_kind(argo_cd: Evaluator, kind: str) -> None:
    """With all keys as we set them; one case an outcome, the others are asked in one process below."""
    settings = {f"{HEALTH}{one}": text for one, text in SCRIPTS.items()}
    for case in {case["health"]: case for case in cases(kind)}.values():
        found = argo_cd.health(settings, manifest(kind, case))
        assert (case["it"], found.status) == (case["it"], case["health"])


@pytest.mark.parametrize("kind", sorted(path.stem for path in FOLDER.glob("*.yaml")))
def test_health_is_what_the_cases_say_and_nothing_in_a_script_is_without_a_case(argo_cd: Evaluator, kind: str) -> None:
    wrong = dict(variants(SCRIPTS[kind]))
    right, *others = argo_cd.each([SCRIPTS[kind], *wrong.values()], [manifest(kind, case) for case in cases(kind)])
    for case, found in zip(cases(kind), right, strict=True):
        assert (case["it"], found.status) == (case["it"], case["health"])
        assert case.get("says", "") in found.message, case["it"]
    assert [what for what, seen in zip(wrong, others, strict=True) if seen == right] == []
