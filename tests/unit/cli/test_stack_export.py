"""`bringup stack export`: a published version as an OCI image of the right form, equal bytes, nothing unverified."""

import fcntl
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Machine
from tests.unit.clients.published.published_trees import key_pair
from tests.unit.softwarestack.published_stacks import HPL, ZLIB, assembled, folder_of, publish, published, request

ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\xb7\x00" + bytes(44)
"""Start of a library for 64-bit ARM."""
LARGE = 256 << 20
VIRTUAL_KIB = 250_000
"""Virtual memory of each process of an export: zstd needs most of it, and it is less than the file has."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A published root with two versions of the stack `tools`."""
    made = tmp_path / "stacks"
    made.mkdir()
    published(tmp_path, made, ZLIB)
    published(tmp_path, made, HPL)
    return made


@dataclass(frozen=True)
class Image:
    """An OCI image as its readers see it: files of the layout by path."""

    files: dict[str, bytes]

    @classmethod
    def of(cls, path: Path) -> "Image":
        """Read an archive, or a folder."""
        if path.is_dir():
            return cls({str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()})
        with tarfile.open(path) as archive:
            members = [member for member in archive if member.isreg()]
            return cls({member.name: archive.extractfile(member).read() for member in members})  # type: ignore[union-attr]

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        """Return a blob, which must be what its descriptor says."""
        data = self.files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}") == (descriptor["size"], descriptor["digest"])
        return data

    @property
    def index(self) -> Any:
        return json.loads(self.files["index.json"])

    @property
    def manifest(self) -> Any:
        return json.loads(self.blob(self.index["manifests"][0]))

    @property
    def config(self) -> Any:
        return json.loads(self.blob(self.manifest["config"]))

    @property
    def tar(self) -> bytes:
        """The bytes of the only layer's tar."""
        return subprocess.run(["zstd", "-dcq"], input=self.blob(self.manifest["layers"][0]), capture_output=True, check=True).stdout

    def members(self) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
        """Return the members of the layer by path."""
        with tarfile.open(fileobj=io.BytesIO(self.tar)) as layer:
            members = layer.getmembers()
            assert len({member.name for member in members}) == len(members), "a path comes twice"
            read = ((member, layer.extractfile(member) if member.isreg() else None) for member in members)
            return {member.name: (member, stream.read() if stream else b"") for member, stream in read}


def export(machine: Machine, root: Path, to: str, *words: str) -> Any:
    """Export a version and return what the command prints as JSON."""
    done = machine.call("stack", "export", root, "--to", to, *words, "-o", "json")
    assert done.code == 0, done.text
    return json.loads(done.out)


def test_an_image_has_the_form_that_registries_take(machine: Machine, root: Path) -> None:
    printed = export(machine, root, "image.tar", "--stack", "tools")
    image = Image.of(machine.folder / "image.tar")
    assert json.loads(image.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    assert (image.index["schemaVersion"], image.index["mediaType"]) == (2, "application/vnd.oci.image.index.v1+json")
    (entry,) = image.index["manifests"]
    assert (entry["mediaType"], entry["digest"]) == ("application/vnd.oci.image.manifest.v1+json", printed["digest"])
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == printed["version"]
    assert entry["annotations"]["io.containerd.image.name"] == f"bringup.local/stack/tools:{printed['version']}"
    manifest = image.manifest
    assert (manifest["schemaVersion"], manifest["config"]["mediaType"]) == (2, "application/vnd.oci.image.config.v1+json")
    assert [layer["mediaType"] for layer in manifest["layers"]] == ["application/vnd.oci.image.layer.v1.tar+zstd"]
    config = image.config
    assert (config["architecture"], config["os"], config["created"]) == ("amd64", "linux", "1980-01-02T00:00:00Z")
    assert config["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(image.tar).hexdigest()}"]}
    (docker,) = json.loads(image.files["manifest.json"])
    assert docker["RepoTags"] == [printed["name"]]


def test_the_configuration_names_the_version_and_its_modules(machine: Machine, root: Path) -> None:
    printed = export(machine, root, "image.tar")
    version = (root / "tools/current").readlink().name
    data = (root / "tools/current/manifest.json").read_bytes()
    config = Image.of(machine.folder / "image.tar").config["config"]
    assert config["Env"] == [f"MODULEPATH={root}/tools/current/modules/all/Core"]
    assert config["Labels"] == {
        "io.bringup.stack": "tools",
        "io.bringup.stack.version": version,
        "io.bringup.stack.manifest": f"sha256:{hashlib.sha256(data).hexdigest()}",
        "io.bringup.stack.root": str(root),
        "org.opencontainers.image.title": "tools",
        "org.opencontainers.image.version": version,
    }
    assert printed["manifest"] == config["Labels"]["io.bringup.stack.manifest"]


def test_the_layer_has_the_version_and_its_packages_at_their_published_paths(machine: Machine, root: Path) -> None:
    export(machine, root, "image.tar", "--version", "1")
    members = Image.of(machine.folder / "image.tar").members()
    home = str(root).strip("/")
    version = next((root / "tools/versions").glob("0001-*"))
    kept = [root / "packages" / folder_of(name, release) for name, release in ZLIB.items()]
    expected = {path for folder in (*kept, version) for path in (folder, *folder.rglob("*"))}
    below = {name.removeprefix(f"{home}/") for name in members if name.startswith(f"{home}/")}
    assert below == {str(path.relative_to(root)) for path in expected} | {"packages", "tools", "tools/versions", "tools/current"}
    for path in expected:
        member, data = members[f"{home}/{path.relative_to(root)}"]
        if path.is_symlink():
            assert (member.type, member.linkname) == (tarfile.SYMTYPE, os.readlink(path))
        elif path.is_file():
            assert (data, member.mode) == (path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)
        else:
            assert (member.isdir(), member.mode) == (True, 0o755)
    assert members[f"{home}/tools/current"][0].linkname == f"versions/{version.name}"
    assert {(member.uid, member.gid, member.uname, member.mtime) for member, _ in members.values()} == {(0, 0, "", 315_619_200)}
    names = list(members)
    assert all(str(Path(name).parent) in names[:place] for place, name in enumerate(names) if "/" in name), "parents first"


def test_equal_versions_give_equal_bytes_as_archive_and_as_folder(machine: Machine, root: Path) -> None:
    first = export(machine, root, "first.tar")
    for path in (root / "packages").rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    (machine.folder / "second.tar").write_text("an image from before")
    second = export(machine, root, "second.tar")
    assert (machine.folder / "first.tar").read_bytes() == (machine.folder / "second.tar").read_bytes()
    folder = export(machine, root, "layout")
    assert {**first, "path": ""} == {**second, "path": ""} == {**folder, "path": ""}
    archive, laid = Image.of(machine.folder / "first.tar"), Image.of(machine.folder / "layout")
    assert {name: data for name, data in archive.files.items() if name != "manifest.json"} == laid.files
    assert not [path.name for path in machine.folder.iterdir() if path.name.startswith(".")]


def test_the_architecture_is_that_of_programs_and_libraries(machine: Machine, tmp_path: Path) -> None:
    root = tmp_path / "stacks"
    root.mkdir()
    tree = assembled(tmp_path / "tree", root, ZLIB, finish=lambda place: (place / "lib/liby.so").write_bytes(ELF))
    publish(request(tree, root))
    assert export(machine, root, "image.tar")["architecture"] == "arm64"


def test_a_version_that_does_not_verify_is_refused(machine: Machine, root: Path) -> None:
    package = root / "packages" / folder_of("zlib", "1.3")
    kept = (package / "lib/libx.so.1").read_bytes()
    (package / "lib/libx.so.1").write_bytes(kept[:-2] + b"x\n")
    done = machine.call("stack", "export", root, "--to", "image.tar")
    assert done.code == 65
    assert f"is not whole: packages/{package.name}/lib/libx.so.1 has the digest sha256:" in done.err
    (package / "lib/libx.so.1").write_bytes(kept + b"more")
    done = machine.call("stack", "export", root, "--to", "layout")
    assert done.code == 65
    assert f"lib/libx.so.1 has {len(kept) + 4} bytes instead of {len(kept)}" in done.err
    shutil.rmtree(package)
    assert machine.call("stack", "export", root, "--to", "image.tar").code == 65
    assert sorted(path.name for path in machine.folder.iterdir() if "image" in path.name or "layout" in path.name) == []


def test_a_changed_module_file_is_refused(machine: Machine, root: Path) -> None:
    module = root / "tools/current/modules/all/Core/zlib/1.3.lua"
    module.write_text(module.read_text().replace("PATH", "PATh"))
    done = machine.call("stack", "export", root, "--to", "image.tar")
    assert done.code == 65
    assert "modules/all/Core/zlib/1.3.lua has the digest" in done.err
    assert export(machine, root, "before.tar", "--version", "1")["version"].startswith("0001-")


def test_a_version_must_be_signed_by_a_trusted_key(machine: Machine, tmp_path: Path) -> None:
    root, public = tmp_path / "stacks", key_pair(tmp_path)
    root.mkdir()
    publish(request(assembled(tmp_path / "tree", root, ZLIB), root, key="key", signers=(public,)))
    done = machine.call("stack", "export", root, "--to", "image.tar", "--signer", tmp_path / "key.pub")
    assert done.code == 0, done.text
    assert "not checked" not in done.out
    assert "signatures not checked" in machine.call("stack", "export", root, "--to", "unchecked.tar").out
    assert (machine.folder / "unchecked.tar").read_bytes() == (machine.folder / "image.tar").read_bytes()
    assert any(name.endswith("manifest.json.sig") for name in Image.of(machine.folder / "image.tar").members())
    (tmp_path / "other").mkdir()
    key_pair(tmp_path / "other")
    done = machine.call("stack", "export", root, "--to", "other.tar", "--signer", tmp_path / "other/key.pub")
    assert done.code == 65
    assert "a signature that no trusted key made" in done.err
    assert not (machine.folder / "other.tar").exists()


def test_memory_does_not_grow_with_the_files(machine: Machine, tmp_path: Path) -> None:
    """A package of 256 MiB, nearly all of it a hole, is exported by a process that has not so much memory to spare."""
    root = tmp_path / "stacks"
    root.mkdir()
    tree = assembled(
        tmp_path / "tree", root, {"zlib": "1.3"}, finish=lambda place: os.truncate(place / "lib/deep/data.json", LARGE)
    )
    publish(request(tree, root))
    done = machine.call("stack", "export", root, "--to", "image.tar", ulimit=f"-v {VIRTUAL_KIB}")
    assert done.code == 0, done.text
    assert (machine.folder / "image.tar").stat().st_size < 1 << 20


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--to", "none/image.tar"), "its folder is not there"),
        (("--to", "home"), "it is there already"),
        (("--to", "folder.tar"), "it is a folder"),
        (("--to", "image.tar", "--version", "7"), "'7' is no version of tools"),
        (("--to", "image.tar", "--stack", "none"), "holds tools: say with --stack which is meant"),
        ((), "Missing option '--to'"),
    ],
    ids=["no-folder", "there", "folder", "version", "stack", "to"],
)
def test_unusable_arguments_are_one_sentence(machine: Machine, root: Path, words: tuple[str, ...], sentence: str) -> None:
    (machine.folder / "home").mkdir()
    (machine.folder / "folder.tar").mkdir()
    done = machine.call("stack", "export", root, *words)
    assert (done.code, done.out) == (64, "")
    assert sentence in done.err
    assert not (machine.folder / "image.tar").exists()


def test_what_killed_exports_left_is_removed_and_what_others_write_stays(machine: Machine, root: Path) -> None:
    left, other, busy = (machine.folder / f".{name}" for name in ("a.tar.export-x1", "b.tar.export-x2", "a.tar.export-x3"))
    for folder in (left, other, busy):
        folder.mkdir()
        (folder / "layer").write_bytes(b"a part")
    handle = os.open(busy, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # as an export at work does
        assert machine.call("stack", "export", root, "--to", machine.folder / "a.tar").code == 0
    finally:
        os.close(handle)
    assert [folder.exists() for folder in (left, other, busy)] == [False, True, True]
    assert [path.name for path in machine.folder.iterdir() if path.name.startswith(".a.tar.export")] == [busy.name]
