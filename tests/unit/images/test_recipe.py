"""The recipe, its locks, its Containerfile, and what render puts into pods say the same."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from steps import __version__
from steps.contract import paths
from workflows.podimage import deb_unpacking, pod_recipe
from workflows.podimage.pod_recipe import Sources
from workflows.render.steps import USER, Settings

ROOT = Path(__file__).parents[3]
STEP = ROOT / "images/step"


@pytest.fixture(scope="module")
def sources() -> Sources:
    return pod_recipe.read(ROOT)


def test_pods_and_image_agree(sources: Sources) -> None:
    wanted = sources.recipe
    assert wanted.config.user == f"{USER}:{USER}"
    assert f"bringup:x:{USER}:{USER}:" in (STEP / "files/etc/passwd").read_text()
    assert f"{wanted.name}:{__version__}" == f"docker.io/library/{Settings().image}"
    assert {key: value for key, value in wanted.config.env.items() if key.startswith("BRINGUP_")} == paths.ENVIRONMENT
    made = {folder.path: folder.owner for folder in wanted.folders if folder.path.startswith("bringup/")}
    assert made == {f"bringup/{name}": USER if name in ("store", "out") else 0 for name in paths.FOLDERS}


def test_locks_hold_what_the_recipe_asks_for(sources: Sources) -> None:
    locked = {deb.name for deb in sources.debs}
    assert set(sources.recipe.debian.packages) <= locked
    assert not locked & set(sources.recipe.debian.without)
    assert list(sources.debs) == sorted(sources.debs, key=lambda deb: f"{deb.name}={deb.version}")
    assert not {"hera", "typer", "rich"} & {wheel.name for wheel in sources.wheels}
    assert {"ansible-core", "ansible-runner", "kubernetes", "urllib3", "msgspec", "pyyaml", "jinja2", "tenacity"} <= {
        wheel.name for wheel in sources.wheels
    }


def test_wheels_are_exactly_those_of_the_group_in_uv_lock(sources: Sources) -> None:
    command = ["uv", "export", "--frozen", "--quiet", "--only-group", sources.recipe.wheels.group, "--no-emit-project"]
    done = subprocess.run([*command, "--no-annotate", "--no-header"], cwd=ROOT, capture_output=True, text=True, check=True)
    exported = {}
    for name, version, hashes in re.findall(r"^([\w.-]+)==(\S+)([^\n]*(?:\n    [^\n]*)*)", done.stdout, re.MULTILINE):
        exported[name, version] = set(re.findall(r"sha256:([0-9a-f]{64})", hashes))
    assert {(wheel.name, wheel.version) for wheel in sources.wheels} == set(exported)
    assert not [wheel for wheel in sources.wheels if wheel.sha256 not in exported[wheel.name, wheel.version]]


def test_containerfile_unpacks_the_same_packages(sources: Sources, stages: Any) -> None:
    root, wanted = stages["root"], sources.recipe.debian
    assert root.base == f"docker.io/library/debian:{wanted.repositories[0].split()[1]}-slim"
    assert root.all("COPY") == ["images/step/packages.lock /packages.lock", "images/step/files/ /files/"]
    script = " ".join(root.all("RUN"))
    assert f'"{wanted.archive}/$path"' in script
    assert '"SHA256:$sha256"' in script
    assert set(re.findall(r"--exclude='\./([^']+)'", script)) == set(wanted.leave_out)
    assert f"for top in {' '.join(deb_unpacking.MERGED)};" in script
    assert f"sed '1a {deb_unpacking.INSTALLED}'" in script
    assert f"/image/{deb_unpacking.STATUS}" in script
    assert f"/image/{deb_unpacking.BUNDLE}" in script


def test_containerfile_makes_the_same_folders(sources: Sources, stages: Any) -> None:
    made = {}
    for found in re.findall(r"install -d ([^;]+);", " ".join(stages["root"].all("RUN"))):
        words = shlex.split(found)
        owner = int(words[words.index("-o") + 1]) if "-o" in words else 0
        for path in (word for word in words if word.startswith("/image/")):
            made[path.removeprefix("/image/")] = (words[words.index("-m") + 1], owner)
    assert made == {folder.path: (folder.mode, folder.owner) for folder in sources.recipe.folders}


def test_containerfile_installs_the_same_wheels(sources: Sources, stages: Any) -> None:
    wheels = stages["wheels"]
    assert wheels.all("COPY") == ["images/step/wheels.lock /wheels.lock"]
    words = shlex.split(wheels.all("RUN")[-1])
    wanted = {"--no-deps", "--only-binary=:all:", "--require-hashes", f"--target=/image/{sources.recipe.wheels.folder}"}
    assert wanted < set(words)
    assert words[words.index("--requirement") + 1] == "/wheels.lock"


def test_containerfile_copies_the_same_folders_and_starts_the_same(sources: Sources, stages: Any) -> None:
    wanted, content, image = sources.recipe, stages["content"], stages["image"]
    copies = [rest for rest in content.all("COPY") if not rest.startswith("--from=")]
    assert copies == [f"{name} /{wanted.application.folder}/{name}" for name in wanted.application.copy]
    assert content.pairs("ENV") == wanted.config.env
    compiled = {word for word in shlex.split(content.all("RUN")[0]) if word.startswith("/")}
    standard = {"/usr/lib/python3", f"/usr/lib/python{wanted.wheels.python}"}
    ours = {f"/{wanted.application.folder}/{name}" for name in wanted.application.bytecode}
    assert compiled == standard | {f"/{wanted.wheels.folder}"} | ours
    assert (image.base, image.all("WORKDIR"), image.all("USER")) == ("content", [wanted.config.workdir], [wanted.config.user])
    assert json.loads(image.all("ENTRYPOINT")[0]) == list(wanted.config.entrypoint)
    labels = {"org.opencontainers.image.title": wanted.title, "org.opencontainers.image.version": __version__}
    assert image.pairs("LABEL") == labels
    ignored = (STEP / "Containerfile.dockerignore").read_text().split()
    assert {f"**/{name}" for name in wanted.application.leave_out} <= set(ignored)


def test_containerfile_scripts_are_shell(stages: Any) -> None:
    for stage in stages.values():
        for script in stage.all("RUN"):
            subprocess.run(["sh", "-n"], input=script, text=True, check=True)
