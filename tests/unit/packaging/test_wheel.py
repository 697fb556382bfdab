"""The built wheel works away from the sources: it holds all data and rehearses, and pods need no compile-side package."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from workflows import examples
from workflows.plan.compiler import compile_plan
from workflows.spec import load
from workflows.stages import ORDER

ROOT = Path(__file__).parents[3]
SHIPPED = ("pyproject.toml", "README.md", "uv.lock", "steps", "workflows", "playbooks", "images")
COMPILE_SIDE = ("hera", "pydantic", "pydantic_core", "typer", "click", "rich", "aiohttp", "workflows")

pytestmark = pytest.mark.xdist_group("wheel")  # they share one installation


def uv(arguments: Sequence[str | Path], folder: Path) -> None:
    """Run uv from its cache, and only where that lacks something with the network."""
    command = ["uv", *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    for more in ({"UV_OFFLINE": "1"}, {}):
        done = subprocess.run(command, cwd=folder, env={**environment, **more}, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
    pytest.fail(f"{' '.join(command)}: {done.stderr}")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what is shipped."""
    folder = tmp_path_factory.mktemp("tree")
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, folder / name)
    uv(["build", "--wheel", "--out-dir", folder / "dist", "--python", sys.executable], folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel and the locked versions of its dependencies, nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    tree = wheel.parents[1]
    locked = folder / "locked.txt"
    uv(["export", "--frozen", "--no-dev", "--no-emit-project", "--no-hashes", "--output-file", locked], tree)
    uv(["venv", "--python", sys.executable, folder / "env"], folder)
    python = folder / "env/bin/python"
    uv(["pip", "install", "--link-mode", "symlink", "--python", python, "--requirement", locked, wheel], folder)
    return folder / "env"


def test_all_data_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    tree = wheel.parents[1]
    packages = [
        path
        for name in ("steps", "workflows", "playbooks", "images")
        for path in sorted((tree / name).rglob("*"))
        if path.is_file()
    ]
    missing = {path.relative_to(tree).as_posix() for path in packages} - inside
    assert not missing
    wanted = (
        *(f"workflows/examples/{name}.yaml" for name in examples.names()),
        "workflows/catalog/components.yaml",
        "workflows/rehearsal/simulator/api/crds.yaml",
        "steps/report/report.html.j2",
        "steps/report/checklists.yaml",
        "images/boot/files.yaml",
        "images/recipes/base.yaml",
        "images/recipes/compute.lock.json",
    )
    assert not set(wanted) - inside
    assert any(name.startswith("workflows/rehearsal/apiserver/data/") for name in inside)
    assert any(name.startswith("playbooks/") and name.endswith((".yml", ".yaml")) for name in inside)
    assert not [name for name in inside if name.startswith(("tests/", "."))]


def test_the_installed_command_rehearses_away_from_the_sources(installed: Path, tmp_path: Path) -> None:
    environment = {"PATH": f"{installed / 'bin'}:{os.defpath}", "HOME": str(tmp_path), "BRINGUP_HOME": str(tmp_path / "home")}

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300)

    origin = "import steps, workflows, sys; print(steps.__file__, workflows.__path__, *sys.path)"
    where = command("python", "-c", origin).stdout
    assert str(installed) in where
    assert str(ROOT) not in where.replace(str(installed), "")
    done = command("bringup", "rehearse", "h200-16")  # every stage: each has data of its own
    assert done.returncode == 0, done.stdout + done.stderr
    # sharing and gang have tests of GPU pods that Slurm, which holds all GPUs, rules out
    assert f"{len(ORDER) - 2} of {len(ORDER)} stages proven; one GPU pod more than a node has room for and gangs" in done.stdout
    (run,) = (tmp_path / "home/store/runs").iterdir()
    assert command("bringup", "verify", str(run)).returncode == 0
    assert command("bringup", "report", "-o", "html").stdout.rstrip().endswith("</html>")
    assert command("bringup", "init").returncode == 0
    assert command("bringup", "validate").returncode == 0
    recipes = {row["name"]: row["lock"] for row in json.loads(command("bringup", "image", "recipes", "-o", "json").stdout)}
    assert recipes["compute"] == "fits"


@pytest.fixture
def pod() -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs code in an interpreter that has none of the compile side's packages."""
    blocker = f"""
import importlib.abc, sys
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {COMPILE_SIDE!r}:
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)
sys.meta_path.insert(0, Blocker())
"""

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", blocker + code], cwd=ROOT, capture_output=True, text=True, check=False)

    return run


def test_pods_need_nothing_of_the_compile_side(pod: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    modules = sorted(
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        for path in (ROOT / "steps").rglob("*.py")
        if path.name != "__main__.py"
    )
    assert {f"steps.verbs.{task.verb.value}" for task in compile_plan(load(examples.path("h200-16"))).tasks} <= set(modules)
    done = pod("import importlib\n" + "".join(f"importlib.import_module({name!r})\n" for name in modules) + "print('all of them')")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all of them\n"
    assert "blocked: hera" in pod("import hera").stderr
