"""Commands start fast because nothing heavy is imported before it is needed: modules are counted, not seconds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from steps.nodeimage.contract import build_keys
from tests.unit.clients.published.published_trees import RESULTS, image, published
from workflows.app.images import image_specs
from workflows.nodeimage.publish_targets import publish_target

HEAVY = {"hera", "pydantic", "rich", "yaml", "jinja2", "urllib3", "kubernetes", "ansible_runner", "aiohttp"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import sys
from workflows.cli.main import run
assert run({arguments!r}) == 0
print(*sorted({HEAVY!r} & {{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


@pytest.mark.parametrize(
    "command", ["plan", "validate", "status", "watch", "logs", "approve", "cancel", "report", "timeline", "verify"]
)
def test_only_what_renders_imports_hera(command: str) -> None:
    code = f"""
import sys
from workflows.cli.main import run
run([{command!r}, "nowhere"])
print("hera" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"BRINGUP_HOME": "/nonexistent"}
    )
    assert done.stdout.split()[-1] == "False"


@pytest.mark.parametrize("command", ["faults", "stages", "runs", "status"])
def test_light_commands_import_no_models_of_specs(command: str, tmp_path: Path) -> None:
    code = f"""
import sys
from workflows.cli.main import run
run([{command!r}])
print(*sorted({{"workflows.spec", "yaml", "hera"}} & set(sys.modules)), file=sys.stderr)
"""
    home = {"BRINGUP_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=home)
    assert done.stderr.splitlines()[-1] == ""


SPEC = {"apiVersion": "bringup/v1", "kind": "Image", "name": "lab", "owner": "hpc", "revision": "1", "recipe": "base"}
MOST_MODULES = 530
"""Of Python, of ours and of the libraries that read a spec; reports and templates are another hundred."""


def test_a_build_that_finds_nothing_changed_imports_neither_reports_nor_what_renders(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    told = {"root": str(tmp_path / "tree"), "url": "http://boot.example.org/images", "groups": {"default": {}}}
    file = tmp_path / "image.yaml"
    file.write_text(yaml.safe_dump({**SPEC, "boot": {"firmware": ["uefi"]}, "publish": told}))
    loaded = image_specs.load(file)
    recipe = image_specs.check(file, loaded, None).recipe
    packed = image(tmp_path / "packed", "a", name=recipe.name, key=build_keys.image(recipe))
    published(publish_target(loaded), packed, results={**RESULTS, "image_boot.boot_uefi": RESULTS["sandbox"]})
    code = f"""
import sys
from workflows.cli.main import run
assert run(["image", "build"]) == 0
heavy = {HEAVY - {"pydantic", "yaml"}!r} | {{"steps.report", "workflows.app.runs.run_reports", "workflows.render"}}
print(len(sys.modules), *sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    home = {**os.environ, "BRINGUP_HOME": str(tmp_path / "home"), "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=home)
    assert done.stdout.startswith("nothing changed: 0001-")
    count, *heavy = done.stderr.split()
    assert heavy == []
    assert int(count) <= MOST_MODULES
    assert not (tmp_path / "home").exists(), "nothing is written"


def test_files_are_utf8_in_a_locale_of_another_encoding(tmp_path: Path) -> None:
    # the locale C without Python's own remedies stands for one such as de_DE.ISO-8859-1, which machines seldom have
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "BRINGUP_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "workflows", "init", str(tmp_path / "cluster.yaml")]
    done = subprocess.run(command, env=plain, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "…" in (tmp_path / "cluster.schema.json").read_text(encoding="utf-8")
    assert not (tmp_path / "cluster.yaml").read_text(encoding="utf-8").isascii()
