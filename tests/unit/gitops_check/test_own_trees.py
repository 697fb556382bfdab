"""Trees that bringup renders itself are clean, whatever Slurm they deliver. Takes 6 s of CPU."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.golden import test_wrapper
from workflows import catalog, examples
from workflows.gitops.repository_tree import render_tree
from workflows.gitops_check import delivery_check
from workflows.gitops_check.delivery_check import RenderedChart
from workflows.gitops_check.delivery_tree import sort_files
from workflows.spec import load

KNOWN = catalog.load()
ARGO_CD = test_wrapper.ARGO_CD
DIRECT = {key: value for key, value in test_wrapper.SLURM.items() if key != "layout"}
SPECS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "slinky": ("h200-16", {}),
    "no Slurm": ("multi-rack-232", {}),
    "DRA": ("dra", {}),
    "one node": ("single-node", {}),
    "no GPU": ("three-hosts", {}),
    "SUNK": ("h200-16", {"slurm": DIRECT}),
    "SUNK in wrapper charts": ("h200-16", {"slurm": test_wrapper.SLURM}),
    "pinned commit": (
        "h200-16",
        {"delivery": {"mode": "argo_cd", "argo_cd": ARGO_CD | {"revision": "0123456789abcdef" * 2 + "01234567"}}},
    ),
}


def rendered(name: str) -> dict[str, str]:
    example, sections = SPECS[name]
    written = yaml.safe_load(examples.path(example).read_text(encoding="utf-8"))
    spec = load(yaml.safe_dump({**written, "delivery": {"mode": "argo_cd", "argo_cd": ARGO_CD}, **sections}))
    return render_tree(spec, catalog.resolve(spec, KNOWN))


@pytest.mark.parametrize("name", SPECS)
def test_a_tree_of_ours_is_clean(name: str) -> None:
    tree = rendered(name)
    state = delivery_check.sort_state(tree, (), KNOWN.components)
    result = delivery_check.check(state, KNOWN.components)
    assert result.findings == ()
    assert result.counts["applications"] >= 2


def test_the_committed_wrapper_charts_are_clean_in_their_tree() -> None:
    tree, golden = rendered("SUNK in wrapper charts"), Path(test_wrapper.__file__).parent / "wrapper"
    committed = {f"apps/environments/h200-16/{file.relative_to(golden)}": file for file in golden.rglob("*") if file.is_file()}
    assert set(committed) <= set(tree)
    tree |= {path: file.read_bytes().decode() for path, file in committed.items()}
    charts = [RenderedChart(folder, not_rendered="not rendered by this test") for folder in sort_files(tree).charts]
    result = delivery_check.check(delivery_check.sort_state(tree, charts, KNOWN.components), KNOWN.components)
    assert result.findings == ()
    assert len(charts) == 2


def test_one_change_by_hand_is_reported() -> None:
    tree = rendered("SUNK")
    path = "apps/environments/h200-16/stages/slurm/slurm.yaml"
    tree[path] = tree[path].replace("    - RespectIgnoreDifferences=true\n", "")
    result = delivery_check.check(delivery_check.sort_state(tree, (), KNOWN.components), KNOWN.components)
    assert [(entry.rule, entry.path) for entry in result.findings] == [("ignore-not-respected", path)]
