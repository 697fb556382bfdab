"""A user without rights assembles and tests the same image, byte for byte, in a user namespace."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from steps.nodeimage.contract.image_manifest import ImageFile
from steps.nodeimage.files import image_assembly
from tests.boot.builder import shipped
from tests.boot.builder.test_users import UID, as_user

SECONDS = 900.0
SCRIPT = """
import sys, json, msgspec
from pathlib import Path
from steps.nodeimage.files import image_assembly
from steps.nodeimage.layer import layer_cache
from steps.nodeimage.sandbox import sandbox_tests
from steps.nodeimage.contract.resolved_recipe import Recipe
images = Path(sys.argv[1])
recipe = msgspec.json.decode((images / "recipe.json").read_bytes(), type=Recipe)
files = msgspec.json.decode((images / "files.json").read_bytes(), type=dict[str, bytes])
for name in recipe.names:
    built = layer_cache.build(images, recipe, files, name, images, lambda said: None)
    assert not built.failed, built
made = image_assembly.assemble(images, recipe, lambda said: None)
tested = sandbox_tests.run(images, recipe, lambda said: None)
print(json.dumps([msgspec.to_builtins(made), msgspec.to_builtins(tested)]))
"""


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that the user may reach and write to, with the packages of base."""
    images, recipe = shipped.store(tmp_path_factory.getbasetemp(), "base")
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o755)
    own = folder / "images"
    shutil.copytree(images / "archive", own / "archive")
    (own / "recipe.json").write_bytes(msgspec.json.encode(recipe))
    (own / "files.json").write_bytes(msgspec.json.encode(dict(shipped.resolved("base").files)))
    for path in (own, *own.rglob("*")):
        shutil.chown(path, UID, UID)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.long
def test_a_user_makes_the_same_image(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    images, recipe = shipped.store(tmp_path_factory.getbasetemp(), "base")
    ours = image_assembly.assemble(images, recipe, shipped.quiet)
    command = [*as_user(home), sys.executable, "-c", SCRIPT, str(home / "images")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    made, tested = json.loads(done.stdout)
    assert msgspec.convert(made["found"], tuple[ImageFile, ...]) == ours.found
    assert made["manifest"] == ours.manifest
    assert {result["name"]: result["outcome"] for result in tested["results"] if result["outcome"] != "pass"} == {}
