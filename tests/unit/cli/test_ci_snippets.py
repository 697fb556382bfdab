"""The CI snippets: both parse, and their shell, as it stands, runs the real command and hands its exit code on."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps import __version__
from steps.contract.exit import ExitCode
from workflows import examples
from workflows.rehearsal.apiserver import serve_in_thread

HERE = Path(examples.__file__).parent / "ci"
COMMAND = 'uv run bringup run "$SPEC" --engine argo --wait --junit report.xml'
Shell = Callable[..., subprocess.CompletedProcess[str]]


def gitlab() -> tuple[str, dict[str, str]]:
    """The script of the job, as one shell text, and its variables."""
    job: dict[str, Any] = yaml.safe_load((HERE / "gitlab-ci.yml").read_text())["bringup"]
    assert job["artifacts"]["reports"] == {"junit": "report.xml"}
    assert job["retry"]["exit_codes"] == ExitCode.TEMPORARY
    return "\n".join(job["script"]), _own(job["variables"])


def github() -> tuple[str, dict[str, str]]:
    """All run steps in order, as one shell text, and their environment."""
    job: dict[str, Any] = yaml.safe_load((HERE / "github-actions.yml").read_text())["jobs"]["bringup"]
    runs = [step for step in job["steps"] if "run" in step]
    assert {step["shell"] for step in runs} == {"bash"}
    return "\n".join(step["run"] for step in runs if "if" not in step), _own(job["env"])


def _own(given: dict[str, str]) -> dict[str, str]:
    """Return the variables whose values do not refer to variables of the CI server (no `$` in them)."""
    return {name: text for name, text in given.items() if "$" not in text}


SNIPPETS = {"gitlab": gitlab, "github": github}


def gitlab_image() -> tuple[str, dict[str, str]]:
    """Return the script, as one shell text, and the variables of the GitLab job that builds a node image."""
    job: dict[str, Any] = yaml.safe_load((HERE / "images/gitlab-ci.yml").read_text())["image"]
    assert job["retry"]["exit_codes"] == ExitCode.TEMPORARY
    assert job["interruptible"], "a newer push ends it"
    return "\n".join(job["script"]), _own(job["variables"])


def github_image() -> tuple[str, dict[str, str]]:
    made: dict[str, Any] = yaml.safe_load((HERE / "images/github-actions.yml").read_text())
    assert made["jobs"]["image"]["concurrency"]["cancel-in-progress"]
    assert made["jobs"]["image"]["if"] == "github.event_name != 'schedule'", "only what stands in Git is built"
    job = made["jobs"]["image"]
    return "\n".join(step["run"] for step in job["steps"] if "run" in step), _own(job["env"])


IMAGES = {"gitlab": gitlab_image, "github": github_image}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs a shell text as both CI servers do: bash, ended by the first command that fails; uv runs what is installed."""
    if shutil.which("uv") is None:
        pytest.skip("uv is not on PATH")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "KUBECONFIG"))}
    environment = {
        **plain,
        "UV_NO_PROJECT": "1",
        "UV_OFFLINE": "1",
        "VIRTUAL_ENV": sys.prefix,
        "BRINGUP_HOME": str(tmp_path / ".bringup"),
        "HOME": str(tmp_path),
        "CONTENT": "apiVersion: v1",
        "KUBECONFIG": str(tmp_path / "home-kubeconfig"),
    }
    environment.pop("BRINGUP_IMAGE", None)

    def run(text: str, **more: str) -> subprocess.CompletedProcess[str]:
        line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", f"{text}\necho went on"]
        return subprocess.run(line, cwd=tmp_path, env={**environment, **more}, capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.parametrize("server", SNIPPETS)
def test_the_snippet_is_the_one_command_and_explains_its_codes(server: str) -> None:
    text, given = SNIPPETS[server]()
    assert COMMAND in text.splitlines()
    assert given == {"SPEC": "cluster.yaml", "BRINGUP_IMAGE": f"registry.example.org/bringup-steps:{__version__}"}
    (file,) = HERE.glob(f"{server}*.yml")
    explained = {int(code) for code in re.findall(r"^# {1,3}(\d+) ", file.read_text(), re.MULTILINE)}
    assert explained == {*map(int, ExitCode), 130}


@pytest.mark.parametrize("server", SNIPPETS)
def test_a_missing_spec_ends_the_job_with_64(server: str, shell: Shell) -> None:
    text, given = SNIPPETS[server]()
    done = shell(text, **given)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert "'cluster.yaml' is neither a file nor an example" in done.stderr
    assert "went on" not in done.stdout


@pytest.mark.parametrize("server", SNIPPETS)
def test_a_good_spec_gets_as_far_as_the_home_cluster(server: str, shell: Shell, tmp_path: Path) -> None:
    text, given = SNIPPETS[server]()
    shutil.copy(examples.path("three-hosts"), tmp_path / given["SPEC"])
    done = shell(text, **given)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert "home-kubeconfig" in done.stderr
    assert "no run has begun: kubeconfig " in (tmp_path / "report.xml").read_text()


@pytest.mark.parametrize("server", SNIPPETS)
def test_the_image_is_the_one_that_the_snippet_names(server: str, shell: Shell, tmp_path: Path) -> None:
    text, given = SNIPPETS[server]()
    shutil.copy(examples.path("three-hosts"), tmp_path / given["SPEC"])
    with serve_in_thread() as home:
        (tmp_path / "home-kubeconfig").write_text(home.kubeconfig)
        here = given | {"CONTENT": home.kubeconfig}
        good = shell(text, **here)
        wrong = shell(text, **(here | {"BRINGUP_IMAGE": "registry.example.org/Steps"}))
    assert "the home cluster does not serve workflows" in good.stderr
    assert wrong.returncode == ExitCode.USAGE
    assert "'BRINGUP_IMAGE=registry.example.org/Steps' is no image reference" in wrong.stderr


@pytest.mark.parametrize("server", IMAGES)
def test_an_image_is_built_where_something_changed_and_newer_builds_win(server: str, shell: Shell) -> None:
    text, given = IMAGES[server]()
    assert text.splitlines()[-1] == 'uv run bringup image build "$SPEC" --supersede --junit report.xml'
    assert given == {"SPEC": "image.yaml"}
    done = shell(text.splitlines()[-1], **given)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert "'image.yaml' is neither a file nor a shipped recipe" in done.stderr
    assert "went on" not in done.stdout
    (file,) = (HERE / "images").glob(f"{server}*.yml")
    explained = {int(code) for code in re.findall(r"^# {1,3}(\d+) ", file.read_text(), re.MULTILINE)}
    assert explained == {*map(int, ExitCode), 130}
