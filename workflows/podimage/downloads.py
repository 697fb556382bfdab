"""Cache of packages and built layers by digest, and downloads of missing packages: by apt, wheels by pip, both checked."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from steps.contract.oci import Blob
from workflows.podimage.errors import BuildError, FetchError
from workflows.podimage.pod_recipe import PACKAGES, RELOCK, WHEELS, Deb, PodRecipe, Sources, Wheel


def default_cache_folder() -> Path:
    """Return the default folder: `images` in `$BRINGUP_CACHE`, else in `~/.cache/bringup`."""
    return Path(os.environ.get("BRINGUP_CACHE") or Path.home() / ".cache" / "bringup") / "images"


class Cache:
    """A folder of downloaded packages and built layers; all of it can be made again, so it may be removed at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("packages", "layers", "roots"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the cache's lock in this context, for one build; a second build waits and then finds everything made."""
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def package(self, sha256: str) -> Path:
        """Return the path of the package with this digest, which need not exist."""
        return self.folder / "packages" / sha256

    def read_package(self, sha256: str) -> Path:
        """Return the path of a package, after checking its digest. Raises BuildError if its bytes have changed on disk."""
        path = self.package(sha256)
        if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            raise BuildError(f"{path} no longer has the digest that names it", hint="remove it, and it is fetched again")
        return path

    def add_package(self, path: Path) -> str:
        """Copy a downloaded package into the cache and return its sha256."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        unfinished = self.package(f"{digest}.new")
        shutil.copyfile(path, unfinished)
        unfinished.replace(self.package(digest))
        return digest

    def layer(self, key: str) -> tuple[Blob, Path] | None:
        """Return description and path of the layer that was made from equal inputs (`key`); None if there is none."""
        note, path = self._note(key), self.layer_path(key)
        return (msgspec.json.decode(note.read_bytes(), type=Blob), path) if note.exists() and path.exists() else None

    def layer_path(self, key: str) -> Path:
        """Return the path of a compressed layer, which need not exist."""
        return self.folder / "layers" / f"{key}.tar.gz"

    def add_layer(self, key: str, blob: Blob) -> tuple[Blob, Path]:
        """Record that the layer at `layer_path(key)` is complete; return `blob` and that path."""
        self._note(key).write_bytes(msgspec.json.encode(blob))
        return blob, self.layer_path(key)

    def root(self, key: str) -> Path:
        """Return the folder for an unpacked layer, which need not exist."""
        return self.folder / "roots" / key

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a temporary folder on the cache's disk."""
        with tempfile.TemporaryDirectory(prefix=".work-", dir=self.folder) as folder:
            yield Path(folder)

    def _note(self, key: str) -> Path:
        return self.folder / "layers" / f"{key}.json"


APT_HELPER = "/usr/lib/apt/apt-helper"
SECONDS = 900


def fetch_missing(sources: Sources, cache: Cache) -> None:
    """Download all packages and wheels that the cache lacks. Raises FetchError or BuildError for one that cannot be had."""
    debs = [deb for deb in sources.every if not cache.package(deb.sha256).exists()]
    wheels = [wheel for wheel in sources.every_wheel if not cache.package(wheel.sha256).exists()]
    with cache.scratch() as folder:
        if debs:
            _debs(debs, sources.recipe, folder, cache)
        if wheels:
            _wheels(wheels, sources.recipe, folder, cache)


def _debs(debs: Sequence[Deb], recipe: PodRecipe, folder: Path, cache: Cache) -> None:
    command = [APT_HELPER, "-o", "APT::Sandbox::User=", "download-file"]
    for deb in debs:
        command += [f"{recipe.debian.archive}/{deb.path}", str(folder / f"{deb.sha256}.deb"), f"SHA256:{deb.sha256}"]
    done = run(command, "apt (on Debian and its kin)")
    for deb in debs:
        path = folder / f"{deb.sha256}.deb"
        if not path.exists():
            raise _not_had(f"{deb.name}={deb.version}", recipe.debian.archive, done.stdout + done.stderr, deb.path)
        if cache.add_package(path) != deb.sha256:
            raise BuildError(f"{path.name}: the digest is not the locked one")


def _not_had(what: str, where: str, stderr: str, path: str) -> BuildError:
    if re.search(rf"{re.escape(path)}\s+404 ", stderr):
        return BuildError(f"{PACKAGES}: {where} no longer has {what}, and the cache does not have it", hint=RELOCK)
    return FetchError(
        f"{PACKAGES}: {what} could not be fetched from {where}: {_last(stderr)}", hint="try again, or look at apt's sources"
    )


def _wheels(wheels: Iterable[Wheel], recipe: PodRecipe, folder: Path, cache: Cache) -> None:
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in wheels))
    for path in download_wheels(requirements, recipe, folder / "wheels"):
        cache.add_package(path)
    for wheel in wheels:
        if not cache.package(wheel.sha256).exists():
            raise FetchError(f"{WHEELS}: {wheel.name}=={wheel.version} has another wheel for this platform now", hint=RELOCK)


def download_wheels(requirements: Path, recipe: PodRecipe, folder: Path) -> list[Path]:
    """Download the best wheel of each requirement for the image's interpreter and return the paths; nothing is built or run."""
    version = recipe.wheels.python
    command = ["uv", "tool", "run", "--quiet", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--implementation", "cp", "--python-version", version]
    command += ["--abi", f"cp{version.replace('.', '')}", "--abi", "abi3", "--abi", "none"]
    for platform in recipe.wheels.platforms:
        command += ["--platform", platform]
    done = run([*command, "--dest", str(folder), "--requirement", str(requirements)], "uv")
    if done.returncode != 0:
        raise FetchError(
            f"{WHEELS}: wheels could not be fetched: {_last(done.stderr)}", hint=f"try again; if a version is gone, {RELOCK}"
        )
    return sorted(folder.glob("*.whl"))


def run(command: Sequence[str], bringer: str, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a tool and return its result. Raises BuildError if this machine lacks it, FetchError after SECONDS.

    `more` is added to the environment, and `bringer` is the package that brings the tool.
    """
    environment = {**os.environ, **(more or {})}
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS, env=environment)
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is not on this machine", hint=f"install {bringer}") from error
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{command[0]} took longer than {SECONDS} s", hint="try again") from error


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith(("E:", "ERROR:", "error:"))] or text.splitlines() or ["no word"]
    return lines[0].strip()
