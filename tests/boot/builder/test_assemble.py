"""Real images of the shipped base recipe: bit for bit the same wherever and whenever they are assembled, and read back."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from steps.clients.image.contained import namespace
from steps.clients.image.files import assemble, comparing, packing, readback, squashed
from steps.clients.image.layer import layers
from steps.contract.image import difference, keys, manifest
from steps.contract.image.manifest import INITRD, MANIFEST, OCI, PARTS, ROOT
from steps.contract.image.recipe import Recipe
from steps.contract.stages.image_assemble import Assembled, Wanted
from steps.errors import BadTask, StoreBusy
from steps.gates import image_assemble
from tests.boot.builder import shipped

START_SECONDS = 60.0
Base = tuple[Path, Recipe, Assembled]


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    images, recipe = shipped.store(tmp_path_factory.getbasetemp(), "base")
    return images, recipe, assemble.assemble(images, recipe, shipped.quiet)


@pytest.fixture(scope="session")
def site(base: Base) -> Base:
    """One small package more: the initrd is that of base."""
    images, recipe = base[0], shipped.with_example(base[0], base[1])
    shipped.build(images, recipe)
    said: list[str] = []
    seen = assemble.assemble(images, recipe, said.append)
    assert any("initrd as before" in line for line in said), said
    return images, recipe, seen


def folder(made: Base) -> Path:
    return made[0] / assemble.FOLDER / made[2].key


def digests(place: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(place.iterdir())}


def everything(place: Path) -> dict[str, tuple[int, int]]:
    found = [path for path in place.rglob("*") if not path.is_symlink() and "layers" not in path.parts]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


def test_the_gate_passes_a_new_image(base: Base) -> None:
    images, recipe, seen = base
    assert not seen.cached
    verdict = image_assemble.outputs(seen, Wanted(key=keys.image(recipe), budget_mib=recipe.budget_mib))
    assert verdict.is_pass, verdict.reason
    assert {path.name for path in folder(base).iterdir()} == {MANIFEST, *PARTS}
    assert not list((images / assemble.FOLDER).glob(".*.part*"))


def test_another_folder_and_time_give_the_same_bytes(site: Base, tmp_path: Path) -> None:
    """Also the initrd: the first store kept it from the image without the package, the second makes it anew."""
    images, recipe, _ = site
    other = shipped.beside(images, tmp_path, "layers")
    said: list[str] = []
    again = assemble.assemble(other, recipe, said.append)
    assert not any("initrd as before" in line for line in said), said
    assert digests(other / assemble.FOLDER / again.key) == digests(folder(site))


def test_nothing_changed_writes_nothing(base: Base) -> None:
    images, recipe, first = base
    before = everything(images)
    seen = assemble.assemble(images, recipe, shipped.quiet)
    assert seen.cached
    assert msgspec.structs.replace(seen, cached=False, seconds=first.seconds) == first
    assert everything(images) == before


def test_another_test_changes_no_byte_of_the_root(base: Base) -> None:
    images, recipe, first = base
    other = msgspec.structs.replace(recipe, tests=recipe.tests[1:])
    said: list[str] = []
    seen = assemble.assemble(images, other, said.append)
    assert said == [f"base: root, kernel and initrd are those of image {first.key[:12]}"]
    assert not seen.cached
    assert seen.found == first.found
    assert seen.manifest != first.manifest


def test_the_manifest_names_what_brought_each_package(site: Base) -> None:
    _, recipe, seen = site
    found = manifest.decode((folder(site) / MANIFEST).read_bytes())
    assert {layer.name for layer in found.layers} == {"base", "site"}
    assert next(one.layer for one in found.packages if one.name == shipped.EXAMPLE) == "site"
    assert next(one.layer for one in found.packages if one.name == "systemd-sysv") == "base"
    assert found.kernel == seen.kernel == seen.root_modules == seen.initrd_modules
    assert found.tools["mksquashfs"][0].isdigit()
    assert found.tests == tuple(test.name for test in recipe.tests)
    assert keys.image(msgspec.structs.replace(recipe, origin="elsewhere")) == found.key


def test_the_archive_has_the_same_root(site: Base, tmp_path: Path) -> None:
    root = squashed.read(folder(site) / ROOT).files
    with tarfile.open(folder(site) / OCI) as archive:
        index = json.load(read(archive, "index.json"))
        chosen = json.load(read(archive, "blobs/" + index["manifests"][0]["digest"].replace(":", "/")))
        found: dict[str, str] = {}
        for layer in chosen["layers"]:
            data = read(archive, "blobs/" + layer["digest"].replace(":", "/")).read()
            assert layer["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
            lay(found, subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=True).stdout, tmp_path)
    wanted = {path: of(entry.kind, entry.mode, entry.owner, entry.link) for path, entry in root.items() if path != "/"}
    assert {path: what for path, what in found.items() if root.get(path) and root[path].kind != "same"} == {
        path: what for path, what in wanted.items() if root[path].kind != "same"
    }
    assert set(found) == set(wanted)


def read(archive: tarfile.TarFile, name: str) -> "tarfile.ExFileObject":  # type: ignore[name-defined]
    member = archive.extractfile(name)
    assert member is not None
    return member


def of(kind: str, mode: int, owner: str, link: str) -> str:
    return f"link {link} {owner}" if kind == "link" else f"{kind} {mode:o} {owner}"


def lay(found: dict[str, str], layer: bytes, scratch: Path) -> None:
    """Put a layer's tar over what is there, as a container runtime does."""
    file = scratch / "layer.tar"
    file.write_bytes(layer)
    kinds = {tarfile.SYMTYPE: "link", tarfile.DIRTYPE: "folder", tarfile.REGTYPE: "file", tarfile.LNKTYPE: "file"}
    with tarfile.open(file) as members:
        for member in members:
            above, _, name = member.name.rpartition("/")
            if name.startswith(".wh."):
                gone = f"{above}/" if name == ".wh..wh..opq" else "/".join(filter(None, (above, name.removeprefix(".wh."))))
                for path in [path for path in found if path == gone or path.startswith(f"{gone.rstrip('/')}/")]:
                    del found[path]
            else:
                kind = kinds.get(member.type, "device")
                found[member.name] = of(kind, member.mode, f"{member.uid}:{member.gid}", member.linkname)


def test_a_killed_assembly_leaves_nothing_that_is_used(base: Base, tmp_path: Path) -> None:
    images, recipe, first = base
    other = shipped.beside(images, tmp_path, "layers", "initrds", "oci")
    (tmp_path / "recipe.json").write_bytes(msgspec.json.encode(recipe))
    code = "import sys, msgspec; from pathlib import Path; from steps.clients.image.files import assemble; "
    code += "from steps.contract.image.recipe import Recipe; "
    code += "assemble.assemble(Path(sys.argv[1]), msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=Recipe), print)"
    child = subprocess.Popen([sys.executable, "-c", code, str(other), str(tmp_path / "recipe.json")])
    begun = threading.Event()
    for _ in range(int(START_SECONDS * 100)):
        if list((other / assemble.FOLDER).glob(f".*.part*/{ROOT}")) or child.poll() is not None:
            break
        begun.wait(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert list((other / assemble.FOLDER).glob(".*.part*")), "it was killed too late"
    assert not (other / assemble.FOLDER / first.key).exists()
    seen = assemble.assemble(other, recipe, shipped.quiet)
    assert not seen.cached
    assert seen.found == first.found
    assert not list((other / assemble.FOLDER).glob(".*.part*"))
    assert str(other) not in Path("/proc/self/mounts").read_text()


def test_two_at_once_make_one(base: Base, tmp_path: Path) -> None:
    images, recipe, first = base
    other = shipped.beside(images, tmp_path, "layers", "initrds", "oci")
    seen: list[Assembled] = []
    both = [threading.Thread(target=lambda: seen.append(assemble.assemble(other, recipe, shipped.quiet))) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert sorted(one.cached for one in seen) == [False, True]
    assert {one.found for one in seen} == {first.found}


def test_what_other_versions_of_tools_packed_is_packed_anew(base: Base, tmp_path: Path) -> None:
    """The key says nothing of them: an image that is believed must be what this machine would make of it."""
    images, recipe, first = base
    other = shipped.beside(images, tmp_path, "layers", "initrds", "oci")
    place = other / assemble.FOLDER / first.key
    shutil.copytree(folder(base), place)
    found = manifest.decode((place / MANIFEST).read_bytes())
    (place / ROOT).write_bytes(b"as another mksquashfs would")
    (place / MANIFEST).write_bytes(manifest.encode(msgspec.structs.replace(found, tools={**found.tools, "mksquashfs": "1.0"})))
    seen = assemble.assemble(other, recipe, shipped.quiet)
    assert not seen.cached
    assert (seen.found, seen.manifest) == (first.found, first.manifest)
    assert assemble.assemble(other, recipe, shipped.quiet).cached


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a part of an image."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "none", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_store_is_told_and_left_clean(base: Base, small_disk: Path) -> None:
    images, recipe, _ = base
    other = shipped.beside(images, small_disk, "layers", "initrds", "oci")
    with pytest.raises(StoreBusy, match=r"full|No space left"):
        assemble.assemble(other, recipe, shipped.quiet)
    assert [path.name for path in (other / assemble.FOLDER).iterdir() if not path.name.endswith(".lock")] == []


@pytest.mark.parametrize("name", PARTS)
def test_a_damaged_file_is_seen(name: str, base: Base, tmp_path: Path) -> None:
    place = tmp_path / "image"
    shutil.copytree(folder(base), place)
    with (place / name).open("r+b") as file:
        file.truncate((place / name).stat().st_size // 2)
    seen = readback.read(place, base[2].key)
    verdict = image_assemble.outputs(seen, Wanted(key=base[2].key))
    assert not verdict.is_pass
    assert name in verdict.reason


def test_a_missing_file_is_seen(base: Base, tmp_path: Path) -> None:
    place = tmp_path / "image"
    shutil.copytree(folder(base), place)
    (place / INITRD).unlink()
    verdict = image_assemble.outputs(readback.read(place, base[2].key), Wanted(key=base[2].key))
    assert "initrd.img is missing" in verdict.reason


def test_a_difference_is_explained_by_package_and_file(base: Base, site: Base) -> None:
    found = comparing.compare(folder(base), folder(site))
    assert [(one.name, one.after, one.layer) for one in found.packages] == [(shipped.EXAMPLE, "1.0", "site")]
    assert [one.name for one in found.parts] == [ROOT, OCI]
    by_path = {one.path: one for one in found.root}
    assert by_path["usr/bin/bringup-example"].package == shipped.EXAMPLE
    assert by_path["var/lib/dpkg/status"].what == (difference.CONTENT,)
    assert {path.split("/")[0] for path in by_path} == {"usr", "var"}, sorted(by_path)
    assert not found.initrd
    assert comparing.compare(folder(site), folder(site)).same


def test_an_image_is_found_by_digits_of_its_key(base: Base, tmp_path: Path) -> None:
    assert comparing.find(base[2].key[:10], base[0], None) == folder(base)
    with pytest.raises(BadTask, match="no image 12345678: no folder 12345678"):
        comparing.find("12345678", base[0], tmp_path)


def test_the_root_is_left_as_it_was_and_the_initrd_is_of_no_machine(base: Base) -> None:
    images, recipe, _ = base
    files = {one.path for one in comparing.cpio.read(folder(base) / INITRD)}
    assert "conf/conf.d/node-image" in files
    assert not [path for path in files if path.endswith(("resume", ".lock")) and path.startswith("conf/")]
    for driver in ("overlay", "squashfs", "virtio_net"):
        assert [path for path in files if path.rpartition("/")[2].startswith(f"{driver}.ko")], driver
    tree = layers.stack(images, recipe)[-1]
    assert not [path for path in (tree / "var/tmp").iterdir() if "initramfs" in path.name]


@pytest.mark.parametrize(
    ("paths", "sentence"),
    [
        ((), "no kernel in /boot"),
        (("boot/vmlinuz-6.1.0-1", "boot/vmlinuz-6.1.0-2"), r"2 kernels \(6\.1\.0-1, 6\.1\.0-2\)"),
        (("boot/vmlinuz-6.1.0-1",), r"no modules of its kernel 6\.1\.0-1"),
        (("boot/vmlinuz-6.1.0-1", "usr/lib/modules/6.1.0-1/modules.dep"), "no /usr/sbin/mkinitramfs"),
    ],
)
def test_a_root_that_cannot_be_packed_is_told(paths: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    root, out = shipped.upper(tmp_path / "root"), shipped.upper(tmp_path / "out")
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")
    told = packing.Pack(out=str(out), epoch=1, initrds=str(tmp_path / "initrds"))
    with pytest.raises(BadTask, match=sentence):
        namespace.call((root,), "steps.clients.image.files.packing:pack", told, packing.Packed, seconds=60)
