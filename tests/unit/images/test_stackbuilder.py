"""The image of pods that build stacks: its pins are those of uv.lock, its variables and programs those that steps need."""

import re
import tomllib

from steps import __version__
from steps.clients import easybuild_python
from steps.contract import paths
from tests.stack import stack as stack_tier
from tests.unit.images.containerfile import ROOT, containerfile, step_stages
from workflows.engines.local.run_settings import BUILD_TOOLS

FOLDER = ROOT / "images/stackbuilder"
_PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def test_pins_are_those_of_the_lock_and_hold_what_builds_stacks() -> None:
    locked = {package["name"]: package for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    text = (FOLDER / "requirements.txt").read_text()
    pins = dict(_PIN.findall(text))
    assert {"easybuild-framework", "easybuild-easyblocks", "reframe-hpc"} <= pins.keys()
    assert {name: locked[name]["version"] for name in pins} == pins
    files = [file for name in pins for file in (*locked[name].get("wheels", ()), locked[name].get("sdist", {})) if file]
    assert set(re.findall(r"sha256:[0-9a-f]{64}", text)) == {file["hash"] for file in files}


def test_it_has_the_lines_of_the_step_image_and_variables_that_find_build_tools() -> None:
    builder, image = containerfile(FOLDER / "Containerfile")[-2:]
    assert (builder.name, image.all("USER")) == ("builder", ["0:0"])
    variables, step = image.pairs("ENV"), step_stages()["content"].pairs("ENV")
    assert step.items() <= variables.items()
    own = variables.keys() - step.keys()
    assert {easybuild_python.INTERPRETER, "LMOD_CMD"} <= own <= {*BUILD_TOOLS, "RFM_PYTHON"}
    assert image.pairs("LABEL")["org.opencontainers.image.version"] == __version__
    last = step_stages()["image"]
    assert [(word, image.all(word)) for word in ("WORKDIR", "ENTRYPOINT")] == [(w, last.all(w)) for w in ("WORKDIR", "ENTRYPOINT")]
    folders = " ".join(f"/bringup/{name}" for name in paths.FOLDERS)
    assert f"install -d -m 755 {folders}" in " ".join(image.all("RUN"))


def test_it_installs_every_program_that_the_tests_of_real_stacks_need() -> None:
    (installs,) = (line for line in containerfile(FOLDER / "Containerfile")[-1].all("RUN") if "apt-get install" in line)
    packages = set(installs.replace(";", " ").split())
    assert set(stack_tier.PACKAGES.values()) | set(stack_tier.FILES.values()) <= packages
