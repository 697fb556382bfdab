"""The jobs that bringup ships for CI servers, run as the servers do: the lines of their scripts, by bash, in a user's folder."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.boot.pipeline.site import SECONDS, Site
from workflows import examples

HERE = Path(examples.__file__).parent / "ci/images"
INSTALLED = {"UV_NO_PROJECT": "1", "UV_OFFLINE": "1", "VIRTUAL_ENV": sys.prefix}
"""Has `uv run` take what is installed here."""


def gitlab() -> tuple[str, dict[str, str]]:
    """The script of the job that builds an image, and its variables."""
    job: dict[str, Any] = yaml.safe_load((HERE / "gitlab-ci.yml").read_text())["image"]
    return "\n".join(job["script"]), job["variables"]


def github() -> tuple[str, dict[str, str]]:
    """Return script and variables of the GitHub Actions job that builds an image."""
    job: dict[str, Any] = yaml.safe_load((HERE / "github-actions.yml").read_text())["jobs"]["image"]
    return "\n".join(step["run"] for step in job["steps"] if "run" in step), job["env"]


SERVERS = {"gitlab": gitlab, "github": github}


def start(server: str, site: Site, log: Path) -> subprocess.Popen[str]:
    """Begin the job of a server; a variable that is the server's own to set is the site's."""
    script, variables = SERVERS[server]()
    own = {name: text for name, text in variables.items() if "$" not in text}
    plain = {name: text for name, text in site.environment.items() if not name.startswith("UV_")}
    line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    with log.open("w") as stream:
        return subprocess.Popen(line, cwd=site.folder, env={**plain, **INSTALLED, **own}, stdout=stream, stderr=stream, text=True)


def run(server: str, site: Site, log: Path) -> tuple[int, str]:
    """Run the job as a CI server does; return its exit code and the text of its log."""
    with start(server, site, log) as job:
        return job.wait(SECONDS), log.read_text()
