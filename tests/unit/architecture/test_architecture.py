"""The house rules of design §3 that no linter keeps: sizes, names, one basename a stage, README per folder."""

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import steps
import workflows
from workflows.stages import IMAGE_ORDER, OPERATIONS, ORDER

ROOT = Path(__file__).parents[3]
CODE = [path for room in ("steps", "workflows", "playbooks") for path in sorted((ROOT / room).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONGEST_MODULE, LONGEST_FUNCTION, MEDIAN_FUNCTION = 300, 50, 10


def _functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            yield node.name, (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_packages_come_from_this_tree() -> None:
    assert Path(steps.__file__ or "").parent == ROOT / "steps"
    assert Path(workflows.__file__ or "").parent == ROOT / "workflows"


def test_modules_are_short_and_say_what_they_are() -> None:
    long = [f"{_relative(path)}: {count} lines" for path in CODE if (count := len(path.read_text().splitlines())) > LONGEST_MODULE]
    silent = [_relative(path) for path in CODE if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not long
    assert not silent


def test_functions_are_short() -> None:
    sizes = [(f"{_relative(path)}:{name}", size) for path in CODE for name, size in _functions(ast.parse(path.read_text()))]
    assert not [f"{name}: {size} lines" for name, size in sizes if size > LONGEST_FUNCTION]
    assert statistics.median(size for _, size in sizes) <= MEDIAN_FUNCTION


def test_one_adapter_knows_the_package_manager_of_an_image() -> None:
    adapter = {
        "steps/contract/image/debian.py",
        "steps/clients/image/layer/apt.py",
        "steps/clients/image/layer/apt_settings.py",
        "workflows/images/nodes/keyrings.py",
        "workflows/images/nodes/packages.py",
        "workflows/images/nodes/versions.py",
    }
    rooms = ("steps/clients/image", "steps/contract/image", "steps/contract/stages/image", "steps/verbs/image", "steps/gates/image")
    rooms += ("workflows/images/nodes", "workflows/cli/images", "workflows/image.py", "workflows/stages/image")
    code = {path: (ROOT / path).read_text() for path in map(_relative, CODE) if path.startswith(rooms) and path not in adapter}
    assert len(code) > 80
    assert not [path for path, text in code.items() if re.search(r"dpkg|apt-get|apt-cache|apt-helper|var/lib/apt|\.deb\b", text)]
    assert all((ROOT / path).is_file() for path in adapter)


def test_no_drawer_for_everything() -> None:
    assert not [_relative(path) for path in (*CODE, *TESTS) if path.stem in ("utils", "util", "helpers", "common", "misc")]


def test_tests_patch_nothing_of_ours_and_never_sleep() -> None:
    forbidden = re.compile(r"mock\.patch|monkeypatch\.setattr|\btime\.sleep\(|asyncio\.sleep\([^0]")
    tests = [path for path in TESTS if path.name.startswith("test_") and path != Path(__file__)]
    assert not [f"{_relative(path)}: {match}" for path in tests for match in forbidden.findall(path.read_text())]


@pytest.mark.parametrize("stage", [*ORDER, *OPERATIONS])
def test_a_stage_has_one_basename_everywhere(stage: str) -> None:
    places = [
        f"workflows/stages/{stage}.py",
        f"steps/contract/stages/{stage}.py",
        f"steps/gates/{stage}.py",
        f"steps/probes/{stage}.py",
        f"workflows/rehearsal/simulator/{stage}.py",
        f"workflows/rehearsal/faults/{stage}.py",
        f"tests/gates/{stage}",
    ]
    assert not [place for place in places if not (ROOT / place).exists()]


@pytest.mark.parametrize("stage", IMAGE_ORDER)
def test_a_stage_of_an_image_has_one_basename_everywhere(stage: str) -> None:
    """Nothing of an image is simulated, and no cluster is read: verbs ask clients."""
    places = [
        f"workflows/stages/{stage}.py",
        f"steps/contract/stages/{stage}.py",
        f"steps/gates/{stage}.py",
        f"tests/gates/{stage}",
    ]
    assert not [place for place in places if not (ROOT / place).exists()]


def test_each_room_has_a_readme() -> None:
    rooms = {path.parent for path in CODE if "roles" not in path.parts} | {ROOT / "playbooks/roles"}
    tiers = {path for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    lacking = [_relative(room) for room in sorted(rooms | tiers) if not (room / "README.md").exists()]
    assert not lacking


def test_layers_hold() -> None:
    script = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([script, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
