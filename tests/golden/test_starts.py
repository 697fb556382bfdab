"""Golden file of what starts runs without a person, a schedule and an event. `BRINGUP_REGENERATE=1` rewrites it."""

import os
from pathlib import Path

from workflows import bringup, examples
from workflows.plan.compiler import compile_plan
from workflows.render.bundle import render
from workflows.spec import load

GOLDEN = Path(__file__).parent / "render/h200-16-starts/starts.yaml"
SECTIONS = """
schedule: {cron: ["0 2 * * 6", "30 3 1 * *"], timezone: Europe/Berlin, starting_deadline: 1h}
events:
  - name: merged
    selector: 'discriminator == "h200-16" && payload.ref == "refs/heads/main"'
"""


def test_what_starts_runs_is_as_committed() -> None:
    made = render(compile_plan(load(examples.path("h200-16").read_text() + SECTIONS)), bringup.build).files()["starts.yaml"]
    if os.environ.get("BRINGUP_REGENERATE") and os.environ.get("CI") != "true":
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(made)
    assert GOLDEN.read_text() == made, "if the change is meant: BRINGUP_REGENERATE=1 uv run pytest tests/golden"
