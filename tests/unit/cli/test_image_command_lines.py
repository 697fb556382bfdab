"""Command lines about images that the README and plans tell people to type: the command line itself must take them."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.unit import small_image
from workflows.cli.main import application
from workflows.nodeimage.image_plan import compile_image

ROOT = Path(__file__).parents[3]
GUIDES = [ROOT / "README.md", *sorted(ROOT.glob("*/docs/*.md"))]
"""Pages whose command lines people copy; the command reference is generated, and names no whole lines."""
COMMANDS = typer.main.get_command(application())
SSH = {"host": "boot.example.org", "user": "images", "key": {"file": "./key"}, "known_hosts": "./known"}


def parsed(line: str) -> dict[str, Any]:
    """The options and arguments that a line without `bringup` gives its command. Raises what the command line says against it."""
    command: Any = COMMANDS
    words = list(itertools.takewhile(lambda word: word not in (">", "|"), shlex.split(line, comments=True)))
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    with command.make_context(command.name, words) as context:
        return dict(context.params)


def told(text: str) -> list[str]:
    """Whole command lines of a text: those of its blocks, and those in backquotes, but for what only names commands."""
    blocks = "\n".join(re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    lines = re.findall(r"^(?:sudo )?(?:uv run )?bringup (.*)$", blocks, re.MULTILINE)
    return lines + [one for one in re.findall(r"`bringup (image [^`]+)`", text) if not re.search(r"[A-Z…|]|serve$|from-git$", one)]


def test_lines_of_the_guides_are_taken() -> None:
    lines = [line for page in GUIDES if page.name != "command_reference.md" for line in told(page.read_text())]
    assert {"image lock", "image build", "image nodes", "runs", "status"} <= {line.partition("#")[0].strip() for line in lines}
    for line in lines:
        parsed(line)


def test_without_an_argument_the_spec_of_the_folder_is_meant() -> None:
    assert {parsed(f"image {name}").get("named") for name in ("lock", "update")} == {"image.yaml"}


@pytest.mark.parametrize(
    ("publish", "tree"),
    [({}, "/srv/images"), ({"root": "/srv/our images"}, "/srv/our images"), ({"ssh": SSH}, "image.yaml")],
    ids=["here", "blank", "ssh"],
)
def test_how_a_publication_is_taken_back_is_a_command(tmp_path: Path, publish: dict[str, Any], tree: str) -> None:
    spec = small_image.spec(tmp_path, publish={**small_image.SPEC["publish"], **publish})
    plan = compile_image(spec, small_image.recipe(), small_image.files())
    said = next(stage.rollback for stage in plan.stages if stage.id == "image_publish")
    line, mark, _ = said.removeprefix("bringup ").partition(": ")
    assert mark
    given = parsed(line)
    assert (given["tree"], given["image"], given["version"]) == (tree, small_image.recipe().name, "")
