"""Golden CronWorkflow by which a second place rebuilds a factory. `BRINGUP_REGENERATE=1` rewrites it."""

import os
from pathlib import Path

import pytest
import yaml

from workflows import examples
from workflows.app.factories import rebuild_cron
from workflows.render import unknown_fields
from workflows.spec import load_factory

GOLDEN = Path(__file__).parent / "render/build-factory-rebuild/cronworkflow.yaml"
STARTER = (Path(examples.__file__).parent / "factories/factory.yaml").read_text()
SECTION = """
rebuild:
  second_place:
    schedule: {cron: "0 2 * * 0", timezone: Europe/Berlin}
    image: registry.example.org/bringup:1.4.0
    files: factory-files
    home: factory-home
    claims: {backup: /srv/backup}
"""


def test_the_second_place_is_as_committed() -> None:
    made = rebuild_cron.manifest(load_factory(STARTER + SECTION), "factory.yaml")
    if os.environ.get("BRINGUP_REGENERATE") and os.environ.get("CI") != "true":
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(made)
    assert GOLDEN.read_text() == made, "if the change is meant: BRINGUP_REGENERATE=1 uv run pytest tests/golden"
    assert unknown_fields.unknown_fields(yaml.safe_load(made)) == ()


def test_a_spec_without_a_second_place_has_none() -> None:
    with pytest.raises(rebuild_cron.NoSecondPlace, match=r"no rebuild\.second_place"):
        rebuild_cron.manifest(load_factory(STARTER), "factory.yaml")
