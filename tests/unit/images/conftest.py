"""A stand-in for the inputs of a step image: a source tree with recipe and locks, tiny packages and a tiny wheel in a cache."""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.images.containerfile import Stage, step_stages

ROOT = Path(__file__).parents[3]

RECIPE: dict[str, Any] = {
    "name": "docker.io/library/stand-in",
    "title": "stand-in",
    "architecture": "amd64",
    "epoch": 1000000000,
    "debian": {
        "archive": "http://127.0.0.1:1",
        "repositories": ["debian bookworm main"],
        "keyring": "/nowhere",
        "packages": ["base"],
        "leave_out": ["usr/share/man/*", "usr/share/doc/*/changelog*"],
    },
    "folders": [{"path": "tmp", "mode": "1777"}, {"path": "bringup/out", "owner": 8737}],
    "wheels": {"group": "pod", "python": "3.11", "platforms": ["manylinux_2_28_x86_64"], "folder": "opt/app/lib"},
    "application": {"folder": "opt/app", "copy": ["steps"], "leave_out": ["__pycache__", ".*"]},
    "bytecode": False,
    "config": {"user": "8737:8737", "entrypoint": ["python3", "-m", "steps"], "workdir": "/opt/app", "env": {"LANG": "C.UTF-8"}},
}


@dataclass(frozen=True)
class Image:
    """An archive that was built, and what the command said."""

    path: Path

    def blob(self, digest: str) -> bytes:
        return self.member(f"blobs/{digest.replace(':', '/')}")

    def member(self, name: str) -> bytes:
        with tarfile.open(self.path) as archive:
            found = archive.extractfile(name)
            assert found is not None
            return found.read()

    @property
    def index(self) -> dict[str, Any]:
        return dict(json.loads(self.member("index.json"))["manifests"][0])

    @property
    def manifest(self) -> dict[str, Any]:
        return dict(json.loads(self.blob(self.index["digest"])))

    @property
    def config(self) -> dict[str, Any]:
        return dict(json.loads(self.blob(self.manifest["config"]["digest"])))

    def layers(self) -> list[tarfile.TarFile]:
        blobs = [self.blob(layer["digest"]) for layer in self.manifest["layers"]]
        return [tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob))) for blob in blobs]

    def files(self) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
        """All entries by path, with their content."""
        found = {}
        for layer in self.layers():
            for member in layer:
                content = layer.extractfile(member) if member.isfile() else None
                found[member.name] = (member, content.read() if content else b"")
        return found


@dataclass(frozen=True)
class Bench:
    """A source tree and a cache."""

    tree: Path
    cache: Path

    def edit(self, **changes: Any) -> None:
        """Change the recipe; `debian` is merged."""
        path = self.tree / "images/step/recipe.yaml"
        recipe = yaml.safe_load(path.read_text())
        for key, value in changes.items():
            recipe[key] = {**recipe[key], **value} if isinstance(value, dict) else value
        path.write_text(yaml.safe_dump(recipe))

    def command(self, out: Path, *more: str, umask: int = 0o022, **environment: str) -> subprocess.CompletedProcess[str]:
        """`bringup image step build` in a process of its own; `more` words of it."""
        words = [sys.executable, "-c", "from workflows.cli.main import main; main()", "image", "step", "build"]
        return subprocess.run(
            [*words, "--tree", str(self.tree), "--out", str(out), *more],
            env={**os.environ, "PYTHONPATH": str(ROOT), "BRINGUP_CACHE": str(self.cache), **environment},
            capture_output=True,
            text=True,
            check=False,
            umask=umask,
        )

    def build(self, out: Path, *more: str, umask: int = 0o022, **environment: str) -> Image:
        done = self.command(out, *more, umask=umask, **environment)
        assert done.returncode == 0, done.stderr
        return Image(out)


def deb(folder: Path, name: str, files: dict[str, tuple[int, bytes]], scripts: dict[str, str] | None = None) -> Path:
    """A Debian package with these files."""
    root = folder / name
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 1:1.0-1\nArchitecture: amd64\nMaintainer: nobody <n@example.org>\nDescription: stand-in\n"
    )
    for script, text in (scripts or {}).items():
        (root / "DEBIAN" / script).write_text(text)
        (root / "DEBIAN" / script).chmod(0o755)
    for path, (mode, data) in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
        (root / path).chmod(mode)
    if name == "base":
        os.link(root / "bin/tool", root / "bin/tool2")
        (root / "bin/alias").symlink_to("tool")
    made = folder / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(root), str(made)], check=True, stdout=subprocess.DEVNULL)
    return made


def wheel(folder: Path, name: str = "demo") -> Path:
    """A wheel with a package, a program, a script and a data file."""
    made = folder / f"{name}-1.0-py3-none-any.whl"
    entries = "[console_scripts]\nDemo-run = demo.cli:app.main\n[other]\nx = y:z\n"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('a wheel must not run while it is packed')\n")
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n")
        archive.writestr(f"{name}-1.0.dist-info/entry_points.txt", entries)
        archive.writestr(f"{name}-1.0.data/scripts/{name}-script", "#!python\nprint(1)\n")
        archive.writestr(f"{name}-1.0.data/data/share/{name}.txt", "data\n")
        archive.writestr(f"{name}-1.0.data/headers/{name}.h", "int x;\n")
    return made


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The stand-in packages, made once: their digests are in the locks."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not on this machine: install dpkg")
    folder = tmp_path_factory.mktemp("packages")
    base = {
        "bin/tool": (0o4755, b"\x7fELF tool"),
        "usr/share/doc/base/copyright": (0o644, b"free\n"),
        "usr/share/doc/base/changelog.gz": (0o644, b"x"),
        "usr/share/man/man1/tool.1": (0o644, b"x"),
    }
    ran = folder / "a-script-ran"
    certificates = {f"usr/share/ca-certificates/mozilla/{name}.crt": (0o644, f"{name}\n".encode()) for name in ("b", "a")}
    return {
        "base": deb(folder, "base", base, {"postinst": f"#!/bin/sh\ntouch {ran}\n"}),
        "certs": deb(folder, "certs", certificates),
        "demo": wheel(folder),
        "ran": ran,
    }


def lay_out(folder: Path, packages: dict[str, Path]) -> Bench:
    """A tree and a cache below a folder."""
    tree, cache = folder / "tree", folder / "cache"
    step, kept = tree / "images/step", cache / "images/packages"
    for path in (step / "files/etc", kept, tree / "steps/__pycache__"):
        path.mkdir(parents=True)
    (step / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    (step / "files/etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    pins = [f"{name}=1:1.0-1 {digest(packages[name])} pool/{name}_1.0-1_amd64.deb\n" for name in ("base", "certs")]
    (step / "packages.lock").write_text("# a comment\n" + "".join(pins))
    (step / "wheels.lock").write_text(f"demo==1.0 --hash=sha256:{digest(packages['demo'])}\n")
    (tree / "uv.lock").write_text(digest(packages["demo"]))
    (tree / "steps/__init__.py").write_text("x = 1\n")
    (tree / "steps/tool.sh").write_text("#!/bin/sh\n")
    (tree / "steps/tool.sh").chmod(0o755)
    (tree / "steps/__pycache__/left.pyc").write_text("left behind")
    (tree / "steps/.hidden").write_text("left behind")
    for name in ("base", "certs", "demo"):
        shutil.copy(packages[name], kept / digest(packages[name]))
    return Bench(tree, cache)


@pytest.fixture
def bench(tmp_path: Path, packages: dict[str, Path]) -> Bench:
    return lay_out(tmp_path, packages)


@pytest.fixture
def second_bench(tmp_path: Path, packages: dict[str, Path]) -> Bench:
    return lay_out(tmp_path / "somewhere" / "else" / "with a longer name", packages)


@pytest.fixture(scope="session")
def stages() -> dict[str, Stage]:
    """The stages of the step image's Containerfile."""
    return step_stages()
