"""The nightly job of the CI snippets for images: its lines, as they stand, bring newer packages as a request with the new lock."""

import base64
import fnmatch
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.unit.images.nodes.conftest import SMALL, Deb, Site
from workflows import examples
from workflows.nodeimage import recipe_files
from workflows.nodeimage.image_spec import load_image

HERE = Path(examples.__file__).parent / "ci/images"
TOKEN = "glpat-the-token"
EXAMPLE = Path(examples.__file__).parent / "images/image.yaml"
NEWER = [*(one for one in SMALL if one.name != "libmpi"), Deb("libmpi", "1:2.1")]
Nightly = Callable[[str], subprocess.CompletedProcess[str]]


def gitlab() -> tuple[str, list[str]]:
    """The lines of the nightly job, and what starts a build."""
    jobs: dict[str, Any] = yaml.safe_load((HERE / "gitlab-ci.yml").read_text())
    never, push = jobs["image"]["rules"]
    assert (never["when"], "schedule" in never["if"]) == ("never", True), "only what stands in Git is built"
    return "\n".join(jobs["packages"]["script"]), [one.replace("**/", "*") for one in push["changes"]]


def github() -> tuple[str, list[str]]:
    made: dict[Any, Any] = yaml.safe_load((HERE / "github-actions.yml").read_text())
    steps = [step for step in made["jobs"]["packages"]["steps"] if "run" in step]
    assert {step["shell"] for step in steps} == {"bash"}
    # YAML reads `on` as true
    return "\n".join(step["run"] for step in steps), [one.replace("**", "*") for one in made[True]["push"]["paths"]]


SERVERS = {"gitlab": gitlab, "github": github}
GH = '#!/bin/sh\necho "$@" >> "$HOME/gh.txt"\ntest "$2" != view || test ! -e "$HOME/open" || echo OPEN\n'


def git(folder: Path, *words: str) -> str:
    told = ["git", "-c", "user.name=ada", "-c", "user.email=ada@example.org", *words]
    return subprocess.run(told, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def origin(site: Site) -> Path:
    """The repository of a site whose lock is that of yesterday; the mirror has a newer package."""
    site.spec.write_text(site.spec.read_text() + "lock: small.packages.json\n")
    assert site.bringup("image", "lock", "image.yaml", "--no-keep").returncode == 0
    site.mirror.publish("bookworm", NEWER)
    git(site.folder, "init", "--quiet", "--initial-branch=main")
    git(site.folder, "add", "image.yaml", "small.yaml", "small.packages.json")
    git(site.folder, "commit", "--quiet", "-m", "as yesterday")
    bare = site.folder.parent / "origin.git"
    git(site.folder, "clone", "--quiet", "--bare", ".", str(bare))
    git(bare, "config", "receive.advertisePushOptions", "true")
    return bare


@pytest.fixture
def nightly(origin: Path, tmp_path: Path) -> Nightly:
    """Runs the nightly job of a server in a fresh checkout of main, as both servers do: by bash, to the first line that fails."""
    if shutil.which("uv") is None:
        pytest.skip("uv is not on PATH")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "gh").write_text(GH)
    (tools / "gh").chmod(0o755)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "GIT_"))}
    told = {"UV_NO_PROJECT": "1", "UV_OFFLINE": "1", "VIRTUAL_ENV": sys.prefix, "HOME": str(tmp_path), "SPEC": "image.yaml"}
    told |= {"BRANCH": "bringup/packages", "ORIGIN": str(origin), "CI_DEFAULT_BRANCH": "main"}
    environment = plain | told | {"PATH": f"{tools}:{plain['PATH']}", "BRINGUP_HOME": str(tmp_path / "home")}

    def run(server: str) -> subprocess.CompletedProcess[str]:
        shutil.rmtree(tmp_path / "checkout", ignore_errors=True)
        git(tmp_path, "clone", "--quiet", "--branch=main", str(origin), "checkout")
        line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", SERVERS[server]()[0]]
        return subprocess.run(line, cwd=tmp_path / "checkout", env=environment, capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.parametrize("server", SERVERS)
def test_newer_packages_come_as_a_request_and_git_stays_what_is_built(
    server: str, nightly: Nightly, origin: Path, tmp_path: Path
) -> None:
    before = git(origin, "rev-parse", "main")
    done = nightly(server)
    assert done.returncode == 0, done.stderr
    assert git(origin, "rev-parse", "main") == before
    assert git(origin, "diff", "--name-only", "main", "bringup/packages").split() == ["small.packages.json"]
    assert '"version":"1:2.1"' in git(origin, "show", "bringup/packages:small.packages.json")
    assert nightly(server).returncode == 0, "another night before anybody has merged it"
    git(origin, "update-ref", "refs/heads/main", "bringup/packages")
    merged = nightly(server)
    assert (merged.returncode, merged.stdout.splitlines()[-1]) == (0, "nothing newer")
    if server == "github":
        asked = [line.split()[1] for line in (tmp_path / "gh.txt").read_text().splitlines()]
        assert asked == ["view", "create", "view", "create"]


def test_an_open_request_is_not_made_twice(nightly: Nightly, tmp_path: Path) -> None:
    (tmp_path / "open").touch()
    assert nightly("github").returncode == 0
    assert "create" not in (tmp_path / "gh.txt").read_text()


@pytest.mark.parametrize("server", SERVERS)
def test_a_lock_that_comes_in_starts_a_build(server: str) -> None:
    lock = load_image(EXAMPLE).lock
    assert lock is not None, "the nightly job could not write the lock of a shipped recipe"
    changes = SERVERS[server]()[1]
    for path in (lock, f"images/{lock}", "image.yaml", "recipes/ours.yaml"):
        assert any(fnmatch.fnmatch(path, one) for one in changes), path


@pytest.mark.parametrize("server", SERVERS)
def test_another_bringup_starts_a_build_since_it_brings_the_shipped_recipes(server: str) -> None:
    assert load_image(EXAMPLE).recipe in recipe_files.shipped_names(), "the example builds a shipped recipe"
    changes = SERVERS[server]()[1]
    for path in ("pyproject.toml", "uv.lock", *(f"images/recipes/{name}.yaml" for name in recipe_files.shipped_names())):
        assert any(fnmatch.fnmatch(path, one) for one in changes), path


class Asking(BaseHTTPRequestHandler):
    """A Git server that asks for a login, and then takes nothing."""

    def do_GET(self) -> None:
        said = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        cast("Server", self.server).said.append(said)
        self.send_response(401 if not said.partition(":")[2] else 403)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    said: list[str]


@pytest.fixture
def asking() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Asking) as server:
        server.said = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_token_reaches_the_server_and_no_command_line(origin: Path, asking: Server, tmp_path: Path) -> None:
    job: dict[str, Any] = yaml.safe_load((HERE / "gitlab-ci.yml").read_text())["packages"]
    (line,) = [line for line in job["script"] if "LOCK_PUSH_TOKEN" in line]
    assert not [text for text in job["variables"].values() if "TOKEN" in text]
    shown = job["variables"]["ORIGIN"].replace("$CI_PROJECT_URL", f"http://127.0.0.1:{asking.server_port}/gitlab/a/b")
    git(tmp_path, "clone", "--quiet", str(origin), "checkout")
    told = {"BRANCH": "b", "ORIGIN": shown, "CI_DEFAULT_BRANCH": "main", "HOME": str(tmp_path)}
    environment = {**os.environ, **told, "LOCK_PUSH_TOKEN": TOKEN, "GIT_TRACE": "1", "GIT_TERMINAL_PROMPT": "0", "no_proxy": "*"}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", line]
    done = subprocess.run(command, cwd=tmp_path / "checkout", env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert asking.said[-1] == f"bringup:{TOKEN}", done.stderr
    assert "git-remote-http" in done.stderr, "the trace has all command lines"
    assert TOKEN not in done.stderr
