"""The builder image: the step image with one layer more, which its own recipe and lock say."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps import __version__
from tests.unit.images.conftest import deb, digest, wheel
from workflows.app.requirements import IMAGES, every
from workflows.podimage import pod_recipe
from workflows.podimage.pod_recipe import BUILDER, PACKAGES, RECIPE, WHEELS
from workflows.render.steps import Settings

ROOT = Path(__file__).parents[3]
MORE = {"name": "docker.io/library/stand-in-builder", "title": "stand-in builder", "user": "0:0", "packages": ["packer"]}
OF_DOCTOR = {
    "apt-get": "apt",
    "mksquashfs": "squashfs-tools",
    "bwrap": "bubblewrap",
    "qemu-system-x86_64": "qemu-system-x86",
    "Debian's key, for locks of the shipped recipes": "debian-archive-keyring",
    "UEFI firmware for test machines": "ovmf",
    "iPXE's ROM for test machines": "ipxe-qemu",
}
"""Packages whose programs and files have other names."""


@pytest.fixture
def builder(bench: Any, tmp_path: Path) -> Any:
    """The stand-in with a second recipe of one package."""
    made = deb(tmp_path, "packer", {"bin/pack": (0o755, b"\x7fELF pack")})
    (bench.cache / "images/packages" / digest(made)).write_bytes(made.read_bytes())
    place = bench.tree / BUILDER
    place.mkdir()
    (place / RECIPE).write_text(yaml.safe_dump(MORE))
    (place / PACKAGES).write_text(f"packer=1:1.0-1 {digest(made)} pool/packer_1.0-1_amd64.deb\n")
    return bench


def test_it_shares_all_but_one_layer_and_the_bill_with_the_step_image(builder: Any, tmp_path: Path) -> None:
    step, whole = builder.build(tmp_path / "step.tar"), builder.build(tmp_path / "builder.tar", "--builder")
    below, above = ([layer["digest"] for layer in image.manifest["layers"]] for image in (step, whole))
    assert len(above) == len(below) + 1
    assert above[0] == below[0]
    assert above[2] == below[1]
    ours, theirs = ({path: data for path, (_, data) in image.files().items()} for image in (whole, step))
    changed = {path for path in ours if ours[path] != theirs.get(path)}
    assert changed == {"usr/bin/pack", "var/lib/dpkg/status", "usr/share/bringup/sbom.cdx.json"}
    assert theirs.keys() <= ours.keys()
    assert ours["var/lib/dpkg/status"].count(b"Status: install ok installed") == 3
    assert "packer" in {row["name"] for row in json.loads((tmp_path / "builder.tar.cdx.json").read_bytes())["components"]}


def test_it_is_named_and_started_as_its_own_recipe_says(builder: Any, tmp_path: Path) -> None:
    image = builder.build(tmp_path / "builder.tar", "--builder")
    assert image.index["annotations"]["io.containerd.image.name"] == f"docker.io/library/stand-in-builder:{__version__}"
    started = image.config["config"]
    assert (started["User"], started["Entrypoint"]) == ("0:0", ["python3", "-m", "steps"])
    assert started["Labels"]["org.opencontainers.image.title"] == "stand-in builder"


def test_wheels_and_folders_of_its_own_come_in_layers_above(builder: Any, tmp_path: Path) -> None:
    made = wheel(tmp_path, "other")
    (builder.cache / "images/packages" / digest(made)).write_bytes(made.read_bytes())
    (builder.tree / "uv.lock").write_text((builder.tree / "uv.lock").read_text() + digest(made))
    (builder.tree / "tools").mkdir()
    (builder.tree / "tools/ours.py").write_text("TOOL = 1\n")
    place = builder.tree / BUILDER
    (place / RECIPE).write_text(yaml.safe_dump(MORE | {"group": "command", "copy": ["tools"]}))
    (place / WHEELS).write_text(f"other==1.0 --hash=sha256:{digest(made)}\n")
    step, whole = builder.build(tmp_path / "step.tar"), builder.build(tmp_path / "builder.tar", "--builder")
    below, above = ([layer["digest"] for layer in image.manifest["layers"]] for image in (step, whole))
    assert len(above) == len(below) + 2
    assert (above[0], above[2]) == (below[0], below[1])
    added = {path for path in whole.files() if path not in step.files()}
    assert {"opt/app/lib/other/__init__.py", "opt/app/tools/ours.py"} <= added
    assert not {path for path in added if path.startswith("opt/app/steps")}
    assert "other" in {row["name"] for row in json.loads((tmp_path / "builder.tar.cdx.json").read_bytes())["components"]}
    (place / WHEELS).write_text(f"other==2.0 --hash=sha256:{'0' * 64}\n")
    done = builder.command(tmp_path / "builder.tar", "--builder")
    assert done.returncode == 64
    assert "images/builder/wheels.lock has other==2.0, uv.lock has other versions" in done.stderr


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        (RECIPE, "packages: [x]\nkernel: y\n", "images/builder/recipe.yaml: Object contains unknown field `kernel`"),
        (PACKAGES, "pack\n", "images/builder/packages.lock line 1: 'pack' is no pin"),
        (PACKAGES, f"base=2 {'0' * 64} pool/base.deb\n", "images/builder/packages.lock: the step image has base already"),
    ],
    ids=["unknown field", "no pin", "twice"],
)
def test_what_cannot_be_built_is_refused_with_its_place(builder: Any, file: str, text: str, sentence: str, tmp_path: Path) -> None:
    (builder.tree / BUILDER / file).write_text(text)
    done = builder.command(tmp_path / "builder.tar", "--builder")
    assert done.returncode == 64
    assert sentence in done.stderr
    assert file == RECIPE or "image step lock --builder" in done.stderr


def test_the_shipped_lock_has_what_the_recipe_asks_for() -> None:
    sources, more = pod_recipe.read(ROOT, builder=True), pod_recipe.read_more(ROOT)
    locked = {deb.name for deb in sources.more}
    assert set(more.packages) <= locked
    assert not locked & set(more.without)
    assert {"hera", "typer", "rich"} <= {wheel.name for wheel in sources.more_wheels}
    assert f"{more.name}:{__version__}" == f"docker.io/library/{Settings().builder}"


def test_it_has_the_programs_that_doctor_asks_for() -> None:
    asked = {one.need for one in every({}) if one.use == IMAGES and not one.need.startswith("mounts ")}  # a right, and no program
    locked = {deb.name for deb in pod_recipe.read(ROOT, builder=True).every}
    assert {OF_DOCTOR.get(program, program) for program in asked} <= locked
