"""Golden files of what starts runs without a person: schedule and event of a cluster, schedules of a node image and of a stack.

`BRINGUP_REGENERATE=1` rewrites them.
"""

import os
from pathlib import Path

from tests.unit import small_image, small_stack
from workflows import bringup, examples, image, stack
from workflows.nodeimage.image_plan import compile_image
from workflows.plan.compiler import compile_plan
from workflows.render.bundle import render
from workflows.softwarestack.stack_build_plan import compile_stack
from workflows.spec import load

GOLDEN = Path(__file__).parent / "render"
SECTIONS = """
schedule: {cron: ["0 2 * * 6", "30 3 1 * *"], timezone: Europe/Berlin, starting_deadline: 1h}
events:
  - name: merged
    selector: 'discriminator == "h200-16" && payload.ref == "refs/heads/main"'
"""


SSH = {"host": "boot.example.org", "key": {"secret": {"name": "boot", "key": "key"}}, "known_hosts": "./known_hosts"}
SOURCE = {
    "repository": "git@git.example.org:site.git",
    "path": "images/lab-nodes.yaml",
    "credentials": {"name": "git", "key": "id_ed25519"},
    "known_hosts": {"name": "git", "key": "known_hosts"},
}


def check(folder: str, made: str) -> None:
    golden = GOLDEN / folder / "starts.yaml"
    if os.environ.get("BRINGUP_REGENERATE") and os.environ.get("CI") != "true":
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(made)
    assert golden.read_text() == made, "if the change is meant: BRINGUP_REGENERATE=1 uv run pytest tests/golden"


def test_what_starts_runs_is_as_committed() -> None:
    plan = compile_plan(load(examples.path("h200-16").read_text() + SECTIONS))
    check("h200-16-starts", render(plan, bringup.build).files()["starts.yaml"])


def test_what_starts_builds_of_an_image_is_as_committed(tmp_path: Path) -> None:
    schedule = {"cron": "0 2 * * *", "timezone": "Europe/Berlin", "source": SOURCE}
    spec = small_image.spec(tmp_path, publish={**small_image.SPEC["publish"], "ssh": SSH}, schedule=schedule)
    plan = compile_image(spec, small_image.recipe(), small_image.files())
    check("lab-nodes-starts", render(plan, image.build).files()["starts.yaml"])


def test_what_starts_builds_of_a_stack_is_as_committed(tmp_path: Path) -> None:
    schedule = {"cron": "0 2 * * *", "timezone": "Europe/Berlin", "source": {**SOURCE, "path": "stacks/lab-tools.yaml"}}
    publish = {"root": "/srv/stacks", "claim": "share", "claim_folder": "stacks"}
    spec, resolved = small_stack.resolved(tmp_path, publish=publish, schedule=schedule)
    check("lab-tools-starts", render(compile_stack(spec, resolved, resolved.planned(())), stack.build).files()["starts.yaml"])
