"""Commands about published images in this process, and a tree of three versions for them."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.unit.clients.published.published_trees import image, place, published
from workflows.cli.images import tree_commands as image_tree_commands

COMMIT = "0123456789abcdef0123456789abcdef01234567"
UNREAD = "--unread-ok"
"""The roots of these trees are a few bytes, and no squashfs."""


def made(folder: Path) -> Path:
    """A tree below a folder."""
    root = folder / "tree"
    root.mkdir()
    for text in "abc":
        published(place(root), image(folder / text, text), origin=f"{COMMIT} with changes, on bringup 1 ({text})")
    return root


def call(*words: object) -> int:
    app = typer.Typer()
    image_tree_commands.register(app)
    return int(app(args=[str(word) for word in words], standalone_mode=False) or 0)


def said(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    assert call(*words, "-o", "json") == code
    return json.loads(capsys.readouterr().out)
