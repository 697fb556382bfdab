"""A user's folder: an image spec, a home for runs, a folder to publish to, and the command.

Each site has a home of its own; sites can share one archive of packages. Sites whose images are compared byte by byte are in no Git
repository, because the manifest names the commit.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from steps.nodeimage.contract.image_manifest import PARTS

BRINGUP = Path(sys.executable).with_name("bringup")
SECONDS = 900
NAME = "lab-nodes"
PUBLISH = {"url": "http://10.0.2.2:8099", "keep": 3, "groups": {"default": {}, "compute": {"kernel_arguments": ["quiet"]}}}


LOCK = "site.lock.json"
ELSEWHERE = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "LANG": "de_DE.UTF-8", "SOURCE_DATE_EPOCH": "1", "USER": "somebody"}
"""Of a machine that is set up otherwise."""
ALONE = ("unshare", "--net")
IDENTITY = ("-c", "user.name=site", "-c", "user.email=site@example.org", "-c", "commit.gpgsign=false")
"""Git options that name the committer and switch signing off, whatever the machine's user has configured."""


class Site:
    """Everything of one site below one folder. `archive` is a folder of packages to have from the start.

    A site locks what its mirror has today (`lock`): mirrors drop the versions of a lock that is older.
    """

    def __init__(self, folder: Path, archive: Path | None = None, **more: Any) -> None:
        self.folder, self.home, self.tree = folder, folder / "home", folder / "published"
        self.tree.mkdir(parents=True)
        if archive is not None:
            (self.home / "store/images").mkdir(parents=True)
            (self.home / "store/images/archive").symlink_to(archive)
        self.program = BRINGUP
        self.environment = {**os.environ, "BRINGUP_HOME": str(self.home)}
        self.within: tuple[str, ...] = ()
        """Prefix of all commands, such as `ALONE` for a machine without a network."""
        self.write(**more)

    def write(self, **more: Any) -> None:
        """The spec; `more` replaces its keys."""
        spec = {
            "apiVersion": "bringup/v1",
            "kind": "Image",
            "name": NAME,
            "owner": "hpc@example.org",
            "revision": "1",
            "recipe": "base",
            "lock": LOCK,
            "boot": {"firmware": ["bios", "uefi"], "memory_mib": 1536, "timeout": "10m"},
            "publish": {"root": str(self.tree), **PUBLISH},
        }
        (self.folder / "image.yaml").write_text(yaml.safe_dump(spec | more))

    def lock(self) -> str:
        """Lock the recipe; what the command said."""
        return self.run("image", "lock", "image.yaml")

    def commit(self) -> str:
        """Commit spec, recipes and locks as they stand, in a work tree of their own; the commit. Equal manifests are of one commit,
        so sites whose bytes are compared have none."""
        files = sorted(path.name for path in self.folder.iterdir() if path.suffix in (".yaml", ".json"))
        self._git("init", "--quiet")
        self._git("add", "--", *files)
        self._git("commit", "--quiet", "--message", "as it stands")
        return self._git("rev-parse", "HEAD")

    def _git(self, *words: str) -> str:
        command = ["git", "-C", self.folder, *IDENTITY, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS).stdout.strip()

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command of bringup, which must end with exit code `code`, and return its output."""
        command = [*self.within, self.program, *words]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == code, done.stdout[-6000:] + done.stderr[-3000:]
        return done.stdout

    def start(self, *words: str, log: Path) -> subprocess.Popen[str]:
        """A command in the background; what it prints is added to a file."""
        with log.open("a") as stream:
            return subprocess.Popen(
                [self.program, *words],
                cwd=self.folder,
                env=self.environment,
                stdout=stream,
                stderr=stream,
                text=True,
                start_new_session=True,
            )

    @property
    def images(self) -> Path:
        """Return the folder in which builds keep layers and images."""
        return self.home / "store/images"

    @property
    def runs(self) -> list[str]:
        """Names of runs, the newest last."""
        return sorted(path.name for path in (self.home / "store/runs").iterdir())

    def report(self, run: str) -> tuple[str, dict[str, Any]]:
        """The page of a run's report, and the same as data."""
        folder = self.home / "store/runs" / run / "report"
        return (folder / "report.html").read_text(), json.loads((folder / "report.json").read_text())

    def records(self, stage: str, task: str) -> list[dict[str, Any]]:
        """Records of a task in the newest run, attempt by attempt."""
        newest = max((self.home / "engine").iterdir(), key=lambda path: path.name).name
        found = (self.home / "store/runs" / newest / "evidence" / stage / task).rglob("*.json")
        return [json.loads(path.read_text()) for path in sorted(found)]

    @property
    def current(self) -> str:
        """The version that nodes boot."""
        return os.readlink(self.tree / NAME / "current").rpartition("/")[2]

    @property
    def versions(self) -> list[str]:
        """All published versions, the newest last."""
        return sorted(path.name for path in (self.tree / NAME / "versions").iterdir())

    def published(self, version: str = "") -> dict[str, str]:
        """Digests of the large files of a version."""
        return digests(self.tree / NAME / "versions" / (version or self.current))


def digests(folder: Path) -> dict[str, str]:
    """Digests of the parts of an image in a folder, its manifest too."""
    names = (*PARTS, "manifest.json")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder with its time and size."""
    found = (Path(at) / name for at, folders, files in os.walk(folder) for name in (*folders, *files))
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in found}


def stood(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return inode, modification and change time of a folder and of each path below it, so that no write goes unnoticed."""
    facts = {path: Path(path).lstat() for path in (str(folder), *written(folder))}
    return {path: (at.st_ino, at.st_mtime_ns, at.st_ctime_ns) for path, at in facts.items()}


def same_image(first: Site, folder: Path) -> Site:
    """Another site, where the image of the first run is packed and booted: what is new is where it is published."""
    site = Site(folder, first.images / "archive")
    shutil.copy(first.folder / LOCK, folder)
    for kept in ("layers", "assembled", "initrds", "oci"):
        (site.images / kept).symlink_to(first.images / kept)
    shutil.copytree(first.home / "store/runs" / first.runs[0], site.home / "store/runs" / first.runs[0])
    return site


def by_ssh(site: Site, home: Path, port: int) -> dict[str, Any]:
    """Return section `publish` of a spec: a tree reached by SSH, and signed with another key than the one that logs in."""
    way = {"host": "127.0.0.1", "port": port, "key": {"file": str(home / "key")}, "known_hosts": str(home / "known")}
    signed = {"sign": {"file": str(home / "stranger")}, "signers": [(home / "stranger.pub").read_text().strip()]}
    return {**PUBLISH, "root": str(site.tree), "ssh": way, **signed}
