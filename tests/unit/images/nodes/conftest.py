"""A stand-in for package mirrors: signed indexes of packages without files, served over HTTP to the real apt."""

import contextlib
import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.unit.served import served
from workflows.cli import main

FIRMWARE, CONTRIB = "non-free-firmware", "contrib"
TOOLS = {"apt-get": "apt", "gpg": "gnupg", "gpgv": "gpgv"}


@dataclass(frozen=True)
class Deb:
    """A package of an index; `of` is its source package, `of_version` its version where it has another one."""

    name: str
    version: str = "1.0-1"
    depends: str = ""
    essential: bool = False
    of: str = ""
    of_version: str = ""

    @property
    def control(self) -> list[str]:
        """Return the lines of the control file of this package."""
        lines = [f"Package: {self.name}", f"Version: {self.version}", "Architecture: amd64", "Maintainer: nobody <n@example.org>"]
        lines += ["Essential: yes"] if self.essential else []
        lines += [f"Depends: {self.depends}"] if self.depends else []
        lines += [f"Source: {self.of or self.name}" + (f" ({self.of_version})" if self.of_version else "")]
        return [*lines, "Description: stand-in"]

    def stanza(self, folder: str) -> str:
        """Return the stanza of this package in the index of a mirror."""
        placed = [f"Filename: {self.place(folder)}", f"Size: {len(self.content)}", f"SHA256: {self.sha256}"]
        return "\n".join([*self.control, *placed, ""])

    def place(self, folder: str) -> str:
        """Return the path of this package on a mirror: in a pool as Debian has it, without the epoch in the file name, or flat."""
        file = f"{self.name}_{self.version.rpartition(':')[2]}_amd64.deb"
        return f"{folder}{self.of or self.name}/{file}" if folder else f"./{file}"

    @property
    def content(self) -> bytes:
        members = {"debian-binary": b"2.0\n", "control.tar": _tar({"control": self.control}), "data.tar": _tar({})}
        heads = {name: f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() for name, data in members.items()}
        return b"!<arch>\n" + b"".join(heads[name] + data for name, data in members.items())

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def _tar(files: Mapping[str, list[str]]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, lines in files.items():
            data = "\n".join([*lines, ""]).encode()
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files; as an HTTP proxy, those of any host."""

    def log_message(self, *_: Any) -> None:
        return

    def translate_path(self, path: str) -> str:
        return super().translate_path("/" + path.split("/", 3)[3] if path.startswith("http://") else path)


@dataclass
class Mirror:
    """Repositories below one folder, all signed with one key."""

    folder: Path
    key: Path
    home: Path
    url: str = ""
    published: dict[str, tuple[Deb, ...]] = field(default_factory=dict)

    def publish(self, suite: str, debs: Iterable[Deb], archive: str = "debian", **further: Iterable[Deb]) -> None:
        """A suite with components main, contrib and non-free-firmware; `further`: packages of `contrib` and `firmware`."""
        self.published[suite] = tuple(debs)
        place = self.folder / archive / "dists" / suite
        components = {"main": self.published[suite]}
        components |= {name: tuple(further.get(key, ())) for name, key in ((CONTRIB, "contrib"), (FIRMWARE, "firmware"))}
        for component, found in components.items():
            for one in found:
                file = self.folder / archive / one.place(f"pool/{component}/s/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(one.content)
        indexes = {
            f"{component}/binary-amd64/Packages": "\n".join(one.stanza(f"pool/{component}/s/") for one in found)
            for component, found in components.items()
        }
        self._release(place, indexes, suite)

    def publish_flat(self, path: str, debs: Iterable[Deb], more: Iterable[str] = ()) -> None:
        """A flat repository, as NVIDIA's is one; `more`: lines of its release file."""
        index = "\n".join(one.stanza("") for one in debs)
        self._release(self.folder / path, {"Packages": index}, "", more)

    def _release(self, place: Path, indexes: Mapping[str, str], suite: str, more: Iterable[str] = ()) -> None:
        files = {name: index.encode() for name, index in indexes.items()}
        files |= {f"{name}.gz": gzip.compress(data) for name, data in files.items()}
        lines = [f"Suite: {suite}", f"Codename: {suite}"] if suite else []
        lines += more
        lines += ["Date: Sat, 21 Nov 2026 00:00:00 UTC", "Architectures: amd64"]
        lines += [f"Components: main {CONTRIB} {FIRMWARE}", "SHA256:"]
        for path, data in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(data)
            lines.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {path}")
        (place / "InRelease").unlink(missing_ok=True)
        gpg(self.home, "--clearsign", "--output", str(place / "InRelease"), data="\n".join([*lines, ""]))


def gpg(home: Path, *arguments: str, data: str = "") -> None:
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", "", "--pinentry-mode", "loopback", *arguments]
    subprocess.run(command, input=data, text=True, check=True, capture_output=True)


@pytest.fixture(scope="session")
def signing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A key: the folder that gpg signs with, and the public half."""
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this machine: install {package}")
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    gpg(home, "--quick-generate-key", "stand-in mirror <mirror@example.org>", "rsa2048", "sign", "never")
    key = home / "mirror.gpg"
    gpg(home, "--export", "--output", str(key))
    yield home, key
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, capture_output=True)


@pytest.fixture
def mirror(tmp_path: Path, signing: tuple[Path, Path]) -> Iterator[Mirror]:
    """An empty mirror whose three suites are there."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    made = Mirror(folder, key=signing[1], home=signing[0])
    made.publish("bookworm", [])
    made.publish("bookworm-updates", [])
    made.publish("bookworm-security", [], archive="debian-security")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server, served(server):
        made.url = f"http://127.0.0.1:{server.server_port}"
        yield made


RECIPE = """
apiVersion: bringup/v1
kind: ImageRecipe
name: small
description: A stand-in for an image.
foundation: {distribution: debian, release: bookworm, epoch: 1795219200, kernel: linux-image-stand-in}
variables: {greeting: hello}
layers:
  - name: base
    packages: [tool]
    files: [{path: /etc/motd, content: "{{ greeting }} world"}]
    services: {enabled: [tool.service]}
    kernel_arguments: [quiet]
  - name: hpc
    packages: [mpi]
    budget_mib: 10
"""
SMALL = (
    Deb("dash", essential=True, depends="libc"),
    Deb("libc", of="glibc"),
    Deb("linux-image-stand-in", depends="linux-image-1.0-stand-in", of="linux-signed-amd64"),
    Deb("linux-image-1.0-stand-in", of="linux-signed-amd64"),
    Deb("tool", depends="libc"),
    Deb("mpi", depends="libmpi (>= 1), tool"),
    Deb("libmpi", version="1:2.0+b1"),
)
SPEC = """
apiVersion: bringup/v1
kind: Image
name: small
owner: hpc@example.org
revision: "1"
recipe: small.yaml
publish: {{root: /srv/no-images, url: "http://boot.example.org/images"}}
mirror: {url}/debian
mirror_keyring: {key}
"""


@dataclass(frozen=True)
class Done:
    """An ended command."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Site:
    """A folder with a recipe, a spec that takes its packages from the stand-in mirror, and a home of its own."""

    folder: Path
    mirror: Mirror

    @property
    def spec(self) -> Path:
        return self.folder / "image.yaml"

    @property
    def lock(self) -> Path:
        return self.folder / "small.lock.json"

    def bringup(self, *words: str) -> Done:
        """One command line, here: these commands start nothing that outlives them."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main.run([*words])
        return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture
def site(tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Site:
    mirror.publish("bookworm", SMALL)
    folder = tmp_path / "site"
    monkeypatch.setenv("BRINGUP_HOME", str(folder / "home"))
    folder.mkdir()
    (folder / "small.yaml").write_text(RECIPE)
    (folder / "image.yaml").write_text(SPEC.format(url=mirror.url, key=mirror.key))
    return Site(folder, mirror)
