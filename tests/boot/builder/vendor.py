"""A vendor's package repository: real packages from `nvidia.yaml`, an index signed with a key of its own, served over HTTP."""

import hashlib
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

from tests.unit.images.nodes.conftest import Quiet, gpg
from tests.unit.served import served

FILE = Path(__file__).with_name("nvidia.yaml")
ARCHITECTURE = "amd64"


class Stand(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One package of the file."""

    name: str
    version: str
    depends: str = ""
    files: dict[str, str] = {}
    modes: dict[str, str] = {}
    links: dict[str, str] = {}
    configure: str = ""

    @property
    def control(self) -> str:
        told = {"Package": self.name, "Version": self.version, "Architecture": ARCHITECTURE, "Depends": self.depends}
        told |= {"Maintainer": "nobody <nobody@example.org>", "Description": "stand-in, for tests of node images"}
        return "".join(f"{key}: {value}\n" for key, value in told.items() if value)


class Repository(Struct, frozen=True):
    """Package repository of a vendor: URL, public key, folder of its packages, and the GnuPG home that signs its index."""

    url: str
    key: Path
    place: Path
    home: Path

    def publish(self, packages: Iterable[Stand]) -> None:
        """Have these packages, in place of those before."""
        made = (_packed(one, self.home.with_name("trees") / one.name / one.version, self.place) for one in packages)
        _signed(self.place, self.home, "\n".join(made))


def stands() -> tuple[Stand, ...]:
    """All packages of the file."""
    return msgspec.convert(yaml.safe_load(FILE.read_text()), tuple[Stand, ...])


@contextmanager
def repository(folder: Path, packages: Iterable[Stand] | None = None) -> Iterator[Repository]:
    """A flat repository below a folder, until the end of the block; without `packages` with those of the file."""
    home, place = folder / "gpg", folder / "served/cuda"
    home.mkdir(mode=0o700, parents=True)
    place.mkdir(parents=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(place.parent)))
    made = Repository(f"http://127.0.0.1:{server.server_port}/cuda", folder / "vendor.gpg", place, home)
    try:
        gpg(home, "--quick-generate-key", "stand-in vendor <vendor@example.org>", "rsa2048", "sign", "never")
        gpg(home, "--export", "--output", str(made.key))
        made.publish(stands() if packages is None else packages)
        with server, served(server):
            yield made
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, capture_output=True)


def _packed(one: Stand, tree: Path, place: Path) -> str:
    """Make a package in the repository's folder; its part of the index."""
    for path, text in {**one.files, "/DEBIAN/control": one.control}.items():
        _at(tree, path).write_text(text)
    for path, mode in one.modes.items():
        _at(tree, path).chmod(int(mode, 8))
    for path, target in one.links.items():
        _at(tree, path).symlink_to(target)
    if one.configure:
        script = _at(tree, "/DEBIAN/postinst")
        script.write_text(f'#!/bin/sh -e\ntest "$1" != configure || {one.configure}\n')
        script.chmod(0o755)
    file = place / f"{one.name}_{one.version.rpartition(':')[2]}_{ARCHITECTURE}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, file], check=True, capture_output=True)
    data = file.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return f"{one.control}Filename: ./{file.name}\nSize: {len(data)}\nSHA256: {digest}\n"


def _at(tree: Path, path: str) -> Path:
    place = tree / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _signed(place: Path, home: Path, index: str) -> None:
    (place / "Packages").write_text(index)
    digest = hashlib.sha256(index.encode()).hexdigest()
    (place / "InRelease").unlink(missing_ok=True)
    release = f"Date: Sat, 21 Nov 2026 00:00:00 UTC\nSHA256:\n {digest} {len(index.encode())} Packages\n"
    gpg(home, "--clearsign", "--output", str(place / "InRelease"), data=release)
