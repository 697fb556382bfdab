"""Values that are no misspelling of an accepted one: out of scope, another spelling, or a product or release without facts."""

import time

import pytest
import yaml

from workflows import catalog, spec
from workflows.examples import path
from workflows.spec.parsing.known_names import meaning

PRODUCTS = [
    ("MI300X", "out of scope", "remove accelerator"),
    ("AMD Instinct MI250", "out of scope", "remove accelerator"),
    ("Gaudi3", "out of scope", "remove accelerator"),
    ("TPU v5e", "out of scope", "remove accelerator"),
    ("NVIDIA H200 141GB", "in another way", "write H200"),
    ("H100-SXM5-80GB", "in another way", "write H100"),
    ("b200", "in another way", "write B200"),
    ("A100", "variants", "write A100-40GB or A100-80GB"),
    ("L4", "no facts about L4", "choose one of"),
    ("H800", "no facts about H800", "choose one of"),
    ("GB300", "no facts about GB300", "choose one of"),
    ("H200-NVL", "no facts about H200-NVL", "choose one of"),
    ("RTX 6000 Ada", "no facts about RTX 6000 ADA", "choose one of"),
]
RELEASES = [
    ("1.34.2", "write v1.34.2+rke2r1"),
    ("v1.34.2", "write v1.34.2+rke2r1"),
    ("1.33.13+rke2r2", "write v1.33.13+rke2r2"),
    ("v1.35.7-rke2r1", "write v1.35.7+rke2r1"),
    ("1.34", "write v1.34.10+rke2r1"),
    ("1.29", "use one of 1.33, 1.34, 1.35, 1.36"),
    ("v1.33.4+k3s1", "write an RKE2 release, as in v1.35.7+rke2r1"),
]


def errors(text: str) -> tuple[spec.SpecError, ...]:
    with pytest.raises(spec.SpecErrors) as caught:
        spec.load(text)
    return caught.value.errors


def changed(key: str, old: str, new: str) -> str:
    text = path("h200-16").read_text(encoding="utf-8")
    assert f"{key}: {old}\n" in text
    return text.replace(f"{key}: {old}\n", f"{key}: {new}\n")


@pytest.mark.parametrize(("name", "problem", "fix"), PRODUCTS)
def test_a_product_that_is_not_in_the_table_gets_its_own_sentence(name: str, problem: str, fix: str) -> None:
    (error,) = errors(changed("  product", "H200", name))
    assert problem in error.problem
    assert error.fix.startswith(fix)


def test_another_number_is_never_the_fix_of_a_product() -> None:
    (error,) = errors(changed("  product", "H200", "H201"))
    assert error.fix == "choose one of them"
    (error,) = errors(changed("  product", "H200", "H20O"))
    assert error.fix == "write H200"


@pytest.mark.parametrize(("version", "fix"), RELEASES)
def test_a_kubernetes_version_is_turned_into_an_rke2_release(version: str, fix: str) -> None:
    for written in (version, f'"{version}"'):
        (error,) = errors(changed("  version", "v1.35.7+rke2r1", written))
        assert error.fix == fix


def test_a_name_that_nothing_is_known_of_has_no_meaning() -> None:
    assert meaning("accelerator.product", "frobnicator") is None
    assert meaning("rke2.version", "newest") is None
    assert meaning("rke2.cni[0]", "ib") is None


@pytest.mark.parametrize("indent", ["", "rke2:\n  ", "overrides:\n  "])
def test_sixty_thousand_unknown_keys_are_refused_at_once(indent: str) -> None:
    section, _, spaces = indent.rpartition("\n")
    rows = "\n".join(f"{spaces}k{number}: {{}}" for number in range(60_000))
    base = yaml.safe_load(path("h200-16").read_text(encoding="utf-8"))
    base.pop(section.strip(":"), None)
    text = yaml.safe_dump(base) + f"{section}\n{rows}\n"
    start = time.process_time()
    with pytest.raises(spec.SpecErrors) as caught:
        catalog.check(spec.load(text), catalog.load())
    assert time.process_time() - start < 4  # 2 seconds on an idle machine, 1 as measured
    assert len(caught.value.errors) == 51
    assert caught.value.errors[-1].problem == "and 59950 more errors"
