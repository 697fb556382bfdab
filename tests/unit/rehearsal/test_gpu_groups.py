"""Whole bring-ups of specs whose GPU groups differ, without delays: about 15 s each on one idle core."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.rehearsal.gpu_groups import BY_GROUP, TWO_PRODUCTS
from tests.unit.rehearsal.whole_rehearsals import refusals
from workflows.spec import load


@pytest.mark.parametrize("document", [BY_GROUP, TWO_PRODUCTS], ids=lambda document: document["name"])
def test_it_rehearses_to_the_end(document: dict[str, Any], tmp_path: Path) -> None:
    assert not refusals(load(json.dumps(document, indent=1)), tmp_path)
