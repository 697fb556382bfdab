"""Modules that write bytes of an image: whoever changes one says by a number whether caches of images still hold."""

import ast
import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.nodeimage.contract import build_keys

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
WRITERS: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "writers.yaml").read_text())
RAISE = """{names} changed.
Where images of the same recipe now have other bytes, raise {name} in steps/nodeimage/contract/build_keys.py, and its number in
tests/golden/image/writers.yaml: what was built before is built anew then. Where they have not, leave both.
Then write there: digest: {digest}"""


def code(text: str) -> str:
    """The lines of a module that do something: no comments, no empty ones, no docstrings."""
    left = dict(enumerate(text.splitlines(), start=1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                left.pop(number, None)
    return "\n".join(line for line in left.values() if line.strip() and not line.lstrip().startswith("#"))


def digest(names: list[str]) -> str:
    found = hashlib.sha256()
    for name in names:
        text = (ROOT / name).read_text()
        found.update(f"{name}\n{code(text) if name.endswith('.py') else text}\n".encode())
    return found.hexdigest()


@pytest.mark.parametrize("name", WRITERS)
def test_who_changes_what_writes_bytes_decides_over_the_number(name: str) -> None:
    told, number = WRITERS[name], getattr(build_keys, name)
    assert number == told["number"], f"{name} is {number}: write it into tests/golden/image/writers.yaml"
    now = digest(told["modules"])
    assert now == told["digest"], RAISE.format(names=", ".join(told["modules"]), name=name, digest=now)


def test_words_about_code_decide_nothing() -> None:
    assert code('"""One."""\n# two\nx = "three"  # four\n\n\ndef f():\n    """Five."""\n    return x\n') == (
        'x = "three"  # four\ndef f():\n    return x'
    )
