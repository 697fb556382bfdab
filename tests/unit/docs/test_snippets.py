"""Snippets of the guides: specs and parts of specs are valid, and commands have the options that the guides name."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from workflows import examples
from workflows.app import spec_findings
from workflows.app.images import recipes
from workflows.cli.main import application

ROOT = Path(__file__).parents[3]
GENERATED = ("command_reference.md", "spec_reference.md", "CHANGELOG.md")
GUIDES = [ROOT / "README.md", *(page for page in sorted(ROOT.glob("*/docs/*.md")) if page.name not in GENERATED)]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"^(?:\$ )?(?:sudo )?(?:uv run )?bringup ([^#\n]+)", re.MULTILINE)
BASES = {
    "# part of cluster.yaml": ROOT / "workflows/spec/starter.yaml",
    "# part of image.yaml": Path(examples.__file__).parent / "images/image.yaml",
    "# part of factory.yaml": Path(examples.__file__).parent / "factories/factory.yaml",
    "# part of stack.yaml": Path(examples.__file__).parent / "stacks/stack.yaml",
}
"""First line of a snippet → the whole spec that it is laid over."""
RELEASED = "apiVersion: argoproj.io/v1alpha1\nkind: WorkflowTemplate\nmetadata: {name: a}\nspec: {entrypoint: a, templates: []}\n"
"""Content of the pipeline files that a factory's snippet names."""
NOT_HERE = "locked"
"""A finding about the lock file, which lies beside an image spec and is in no guide."""


def _fences(page: Path, *languages: str) -> Iterator[str]:
    return (body for language, body in FENCE.findall(page.read_text(encoding="utf-8")) if language in languages)


SPECS = [(page, body) for page in GUIDES for body in _fences(page, "yaml")]


def _laid_over(base: Any, part: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(part, dict)):
        return part
    return {**base, **{key: _laid_over(base.get(key), value) for key, value in part.items()}}


@pytest.mark.parametrize(("page", "body"), [pytest.param(*spec, id=f"{spec[0].name}-{at}") for at, spec in enumerate(SPECS)])
def test_a_spec_of_a_guide_is_valid(page: Path, body: str, tmp_path: Path) -> None:
    """By the functions of `bringup validate`. A part of a spec is laid over what `bringup init` writes, or over an example."""
    document, first = yaml.safe_load(body), body.partition("\n")[0]
    if first in BASES:
        document = _laid_over(yaml.safe_load(BASES[first].read_text(encoding="utf-8")), document)
    assert document.get("apiVersion") == "bringup/v1", f"a yaml snippet is a spec, or begins with one of {list(BASES)}"
    for role in document.get("roles", ()):
        (tmp_path / role["path"] / "tasks").mkdir(parents=True)
        (tmp_path / role["path"] / "tasks/main.yml").write_text("[]\n")
    for pipeline in document.get("pipelines", ()):
        (tmp_path / pipeline["file"]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / pipeline["file"]).write_text(RELEASED)
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(document))
    checked = spec_findings.check(str(file), recipes.image_issues)
    errors = [issue.block() for issue in checked.issues if issue.severity == "error" and issue.rule != NOT_HERE]
    assert (checked.unreadable, errors) == (None, [])


@pytest.fixture(scope="module")
def bringup() -> Any:
    """The command `bringup` with all commands below it, as typer makes it with its own copy of click."""
    return typer.main.get_command(application())


def _unknown_words(bringup: Any, words: list[str]) -> Iterator[str]:
    """Yield the words of a command line after `bringup` that name no command and no option of it."""
    command, rest = bringup, list(words)
    while commands := getattr(command, "commands", None):
        name = rest.pop(0).partition("|")[0] if rest else ""
        if name not in commands:
            if not name.startswith("-"):
                yield f"{name}: no command"
            return
        command = commands[name]
    options = {"--help", *(name for parameter in command.params for name in parameter.opts)}
    yield from (f"{word}: no option" for word in rest if word.startswith("-") and word not in options)


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_commands_of_a_guide_exist(page: Path, bringup: Any) -> None:
    text = page.read_text(encoding="utf-8")
    code = [*_fences(page, "sh", ""), *INLINE.findall(FENCE.sub("", text))]
    lines = [line.strip() for piece in code for line in COMMAND.findall(piece)]
    words = [(line, re.sub(r"[\[\]()\\]", "", line).split()) for line in lines]
    wrong = [f"bringup {line}: {word}" for line, split in words for word in _unknown_words(bringup, split)]
    assert wrong == []
