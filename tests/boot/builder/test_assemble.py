"""Real images of the shipped base recipe: bit for bit the same wherever and whenever they are assembled, and read back."""

import hashlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from steps.errors import BadTask, StoreBusy
from steps.nodeimage.contract import build_keys, image_difference, image_manifest
from steps.nodeimage.contract.image_manifest import INITRD, MANIFEST, OCI, PARTS, ROOT
from steps.nodeimage.contract.resolved_recipe import LayerCommand, Recipe, ResolvedLayer
from steps.nodeimage.files import image_assembly, image_comparison, initrd_archive, readback
from steps.nodeimage.layer import layer_cache
from steps.nodeimage.layer.layer_build import LIST
from steps.stages.image_assemble import gate as image_assemble
from steps.stages.image_assemble.contract import Assembled, OutputsExpectation
from tests.boot.builder import clock, packed, shipped, whole
from tests.boot.pipeline.site import BRINGUP

START_SECONDS = 60.0
LATER = 400
"""Days."""
ODD = Path(__file__).with_name("odd.sh")
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
"""Extended attribute `security.capability` that grants raw sockets (CAP_NET_RAW), as the file system stores it."""
ZSTD = (6).to_bytes(2, "little")
"""Compression ID of zstd in the superblock of a squashfs, at bytes 20 and 21."""
Base = tuple[Path, Recipe, Assembled]


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    images, recipe = shipped.store(tmp_path_factory.getbasetemp(), "base")
    return images, recipe, image_assembly.assemble(images, recipe, shipped.quiet)


@pytest.fixture(scope="session")
def site(base: Base) -> Base:
    """One small package more: the initrd is that of base."""
    images, recipe = base[0], msgspec.structs.replace(shipped.with_example(base[0], base[1]), kernel_arguments=("quiet", "a=b"))
    shipped.build(images, recipe)
    said: list[str] = []
    seen = image_assembly.assemble(images, recipe, said.append)
    assert any("initrd as before" in line for line in said), said
    return images, recipe, seen


@pytest.fixture(scope="session")
def odd(base: Base) -> Base:
    """A layer more, with all that a root may hold."""
    images, recipe = base[0], base[1]
    made = msgspec.structs.replace(
        recipe, layers=(*recipe.layers, ResolvedLayer(name="odd", commands=(LayerCommand(run=ODD.read_text()),)))
    )
    shipped.build(images, made)
    return images, made, image_assembly.assemble(images, made, shipped.quiet)


def folder(made: Base) -> Path:
    return made[0] / image_assembly.FOLDER / made[2].key


def digests(place: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(place.iterdir())}


def everything(place: Path) -> dict[str, tuple[int, int]]:
    found = [path for path in place.rglob("*") if not path.is_symlink() and "layers" not in path.parts]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


def installed(*packages: str) -> list[str]:
    """Versions of packages of this machine as their authors write them: without Debian's epoch and revision."""
    command = ["dpkg-query", "--show", "--showformat=${Package} ${Version}\n", *packages]
    told = dict(line.split() for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())
    return [re.sub(r"^\d+:|[+-].*", "", told[name]) for name in packages]


def test_the_gate_passes_a_new_image(base: Base) -> None:
    images, recipe, seen = base
    assert not seen.cached
    verdict = image_assemble.outputs(seen, OutputsExpectation(key=build_keys.image(recipe), budget_mib=recipe.budget_mib))
    assert verdict.is_pass, verdict.reason
    assert {path.name for path in folder(base).iterdir()} == {MANIFEST, *PARTS}
    assert (folder(base) / ROOT).read_bytes()[20:22] == ZSTD
    assert not list((images / image_assembly.FOLDER).glob(".*.part*"))


@pytest.mark.sampled("equal bytes")
def test_elsewhere_at_another_date_the_same_bytes(site: Base, tmp_path: Path) -> None:
    """In another folder, on one processor, under another umask, locale and time zone. Also the initrd: the first store kept it from
    the image without the package, the second makes it anew."""
    images, recipe, _ = site
    other = shipped.beside(images, tmp_path / "an other", "layers")
    said, again = whole.elsewhere(other, recipe, {}, LATER)
    assert not any("initrd as before" in line for line in said), said
    assert digests(other / image_assembly.FOLDER / again.key) == digests(folder(site))
    assert diff(folder(site), other / image_assembly.FOLDER / again.key) == "the images are bit for bit the same\n"


def test_what_a_hook_takes_from_a_folder_that_was_there_gets_into_the_initrd(base: Base) -> None:
    """udev's hook takes every .link file of /etc/systemd/network, which base has for a file that no hook takes."""
    images, recipe, _ = base
    layer = ResolvedLayer(name="names", commands=(LayerCommand(run="echo '[Link]' > /etc/systemd/network/10-site.link"),))
    named = msgspec.structs.replace(recipe, layers=(*recipe.layers, layer))
    shipped.build(images, named)
    said: list[str] = []
    seen = image_assembly.assemble(images, named, said.append)
    assert not any("initrd as before" in line for line in said), said
    files = {one.path for one in initrd_archive.read(images / image_assembly.FOLDER / seen.key / INITRD)}
    assert "usr/lib/systemd/network/10-site.link" in files


def test_no_image_is_made_of_a_layer_whose_bytes_changed(base: Base) -> None:
    """Of equal size, so that the cache takes the layer; it is built anew after that. It was made days ago."""
    images, recipe, _ = base
    layer = ResolvedLayer(name="flipped", commands=(LayerCommand(run="echo 1 > /opt/one"),))
    made = msgspec.structs.replace(recipe, layers=(*recipe.layers, layer))
    shipped.build(images, made)
    tree = shipped.tree(images, made, "flipped")
    (tree / "opt/one").write_text("2\n")
    os.utime(tree.with_name(LIST), (1, 1))
    shipped.build(images, made)
    with pytest.raises(BadTask, match=r"^layer flipped \([0-9a-f]{12}\) is no longer what was built: /opt/one changed"):
        image_assembly.assemble(images, made, shipped.quiet)
    assert not (images / image_assembly.FOLDER / build_keys.image(made)).exists()
    assert not [path for path in (images / image_assembly.BLOBS).iterdir() if path.name.startswith(build_keys.top(made))], (
        "nothing is kept of it"
    )
    shipped.build(images, made)
    assert (shipped.tree(images, made, "flipped") / "opt/one").read_text() == "1\n"
    assert not image_assembly.assemble(images, made, shipped.quiet).cached


@pytest.mark.long
def test_a_year_later_the_same_image(base: Base, tmp_path: Path) -> None:
    """Packages see that date too, by a lowest layer that says it: all else is the same."""
    found = []
    for days in (0, LATER):
        first, files = clock.layer(days)
        recipe = msgspec.structs.replace(base[1], layers=(first, *base[1].layers))
        other = shipped.beside(base[0], tmp_path / str(days), "archive")
        found.append(other / image_assembly.FOLDER / whole.elsewhere(other, recipe, files, days)[1].key)
    told = json.loads(diff(*found, "-o", "json", code=65))
    assert [one["path"] for one in told["root"]] == [clock.DPKG.removeprefix("/")]
    assert [one["name"] for one in told["layers"]] == ["clock"]
    assert {one["name"] for one in told["parts"]} == {ROOT, OCI}


def diff(*words: str | Path, code: int = 0) -> str:
    """Run `bringup image diff --exit-code`, which must end with exit code `code`, and return its output."""
    done = subprocess.run([BRINGUP, "image", "diff", "--exit-code", *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_nothing_changed_writes_nothing(base: Base) -> None:
    images, recipe, first = base
    before = everything(images)
    seen = image_assembly.assemble(images, recipe, shipped.quiet)
    assert seen.cached
    assert msgspec.structs.replace(seen, cached=False, seconds=first.seconds) == first
    assert everything(images) == before


def test_another_test_changes_no_byte_of_the_root(base: Base) -> None:
    images, recipe, first = base
    other = msgspec.structs.replace(recipe, tests=recipe.tests[1:])
    said: list[str] = []
    seen = image_assembly.assemble(images, other, said.append)
    assert said == [f"base: root, kernel and initrd are those of image {first.key[:12]}"]
    assert not seen.cached
    assert seen.found == first.found
    assert seen.manifest != first.manifest


def test_the_manifest_names_what_brought_each_package(site: Base) -> None:
    images, recipe, seen = site
    found = image_manifest.decode((folder(site) / MANIFEST).read_bytes())
    assert {layer.name for layer in found.layers} == {"base", "site"}
    assert next(one.layer for one in found.packages if one.name == shipped.EXAMPLE) == "site"
    assert next(one.layer for one in found.packages if one.name == "systemd-sysv") == "base"
    assert found.kernel == seen.kernel == seen.root_modules == seen.initrd_modules
    assert installed("squashfs-tools", "zstd", "libzstd1") == [found.tools[name] for name in ("mksquashfs", "zstd", "libzstd")]
    assert found.tools["packer"] == str(build_keys.PACKER)
    made = layer_cache.entry(images, build_keys.layers(recipe)["base"])
    assert made is not None
    assert [made.tools[name] for name in ("apt", "dpkg-deb", "tar")] == installed("apt", "dpkg", "tar")
    assert found.kernel_arguments == recipe.kernel_arguments
    assert found.tests == tuple(test.name for test in recipe.tests)
    assert build_keys.image(msgspec.structs.replace(recipe, origin="elsewhere")) == found.key


def test_the_archive_has_the_same_root(odd: Base, tmp_path: Path) -> None:
    """To the last attribute, bytes of files and names of each included."""
    squashed, archived = packed.by_the_kernel(folder(odd) / ROOT, tmp_path / "root"), packed.of_layers(folder(odd) / OCI)
    assert archived == squashed
    assert squashed["usr/bin/tac"].attributes == (("security.capability", CAPABILITY),)
    assert squashed["opt/noted"].attributes == (("user.note", b"\xff\x00="),)
    assert squashed["opt/twice"].names == ("opt/once", "opt/twice")
    assert (squashed["opt/once"].mode, squashed["opt/once"].owner, squashed["opt/pipe"].kind) == (0o4750, "7:8", "pipe")
    assert (squashed["opt/to a place"].link, squashed["opt/null"].link) == ("any where", "1:3")
    assert [path for path in squashed if path.startswith("etc/skel")] == ["etc/skel", "etc/skel/x"]
    assert "etc/issue" not in squashed
    assert len(squashed) > 5000


def test_an_attribute_alone_is_a_difference(base: Base, odd: Base) -> None:
    found = {one.path: one for one in image_comparison.compare(folder(base), folder(odd)).root}
    assert found["usr/bin/tac"].what == (image_difference.ATTRIBUTES,)
    assert found["usr/bin/tac"].package == "coreutils"


def test_a_killed_assembly_leaves_nothing_that_is_used(base: Base, tmp_path: Path) -> None:
    images, recipe, first = base
    other = shipped.beside(images, tmp_path, "layers", "initrds", "oci")
    (tmp_path / "recipe.json").write_bytes(msgspec.json.encode(recipe))
    code = "import sys, msgspec; from pathlib import Path; from steps.nodeimage.files import image_assembly; "
    code += "from steps.nodeimage.contract.resolved_recipe import Recipe; "
    code += "image_assembly.assemble(Path(sys.argv[1]), msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=Recipe), print)"
    child = subprocess.Popen([sys.executable, "-c", code, str(other), str(tmp_path / "recipe.json")])
    begun = threading.Event()
    for _ in range(int(START_SECONDS * 100)):
        if list((other / image_assembly.FOLDER).glob(f".*.part*/{ROOT}")) or child.poll() is not None:
            break
        begun.wait(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert list((other / image_assembly.FOLDER).glob(".*.part*")), "it was killed too late"
    assert not (other / image_assembly.FOLDER / first.key).exists()
    seen = image_assembly.assemble(other, recipe, shipped.quiet)
    assert not seen.cached
    assert seen.found == first.found
    assert not list((other / image_assembly.FOLDER).glob(".*.part*"))
    assert str(other) not in Path("/proc/self/mounts").read_text()


def test_two_at_once_make_one(base: Base, tmp_path: Path) -> None:
    images, recipe, first = base
    other = shipped.beside(images, tmp_path, "layers", "initrds", "oci")
    seen: list[Assembled] = []
    both = [threading.Thread(target=lambda: seen.append(image_assembly.assemble(other, recipe, shipped.quiet))) for _ in range(2)]
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
    place = other / image_assembly.FOLDER / first.key
    shutil.copytree(folder(base), place)
    found = image_manifest.decode((place / MANIFEST).read_bytes())
    (place / ROOT).write_bytes(b"as another mksquashfs would")
    (place / MANIFEST).write_bytes(
        image_manifest.encode(msgspec.structs.replace(found, tools={**found.tools, "mksquashfs": "1.0"}))
    )
    seen = image_assembly.assemble(other, recipe, shipped.quiet)
    assert not seen.cached
    assert (seen.found, seen.manifest) == (first.found, first.manifest)
    assert image_assembly.assemble(other, recipe, shipped.quiet).cached


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
        image_assembly.assemble(other, recipe, shipped.quiet)
    assert [path.name for path in (other / image_assembly.FOLDER).iterdir() if not path.name.endswith(".lock")] == []


def test_the_kernel_of_virtual_machines_is_told(base: Base) -> None:
    assert readback.read(folder(base), base[2].key).unracked == readback.RACKED


@pytest.mark.parametrize("name", PARTS)
def test_a_damaged_file_is_seen(name: str, base: Base, tmp_path: Path) -> None:
    place = tmp_path / "image"
    shutil.copytree(folder(base), place)
    with (place / name).open("r+b") as file:
        file.truncate((place / name).stat().st_size // 2)
    seen = readback.read(place, base[2].key)
    verdict = image_assemble.outputs(seen, OutputsExpectation(key=base[2].key))
    assert not verdict.is_pass
    assert name in verdict.reason


def test_a_missing_file_is_seen(base: Base, tmp_path: Path) -> None:
    place = tmp_path / "image"
    shutil.copytree(folder(base), place)
    (place / INITRD).unlink()
    verdict = image_assemble.outputs(readback.read(place, base[2].key), OutputsExpectation(key=base[2].key))
    assert "initrd.img is missing" in verdict.reason


def test_a_difference_is_explained_by_package_and_file(base: Base, site: Base) -> None:
    found = image_comparison.compare(folder(base), folder(site))
    assert [(one.name, one.after, one.layer) for one in found.packages] == [(shipped.EXAMPLE, "1.0", "site")]
    assert [one.name for one in found.parts] == [ROOT, OCI]
    by_path = {one.path: one for one in found.root}
    assert by_path["usr/bin/bringup-example"].package == shipped.EXAMPLE
    assert by_path["var/lib/dpkg/status"].what == (image_difference.CONTENT,)
    assert {path.split("/")[0] for path in by_path} == {"usr", "var"}, sorted(by_path)
    assert not found.initrd
    assert image_comparison.compare(folder(site), folder(site)).same


def test_an_image_is_found_by_digits_of_its_key(base: Base, tmp_path: Path) -> None:
    assert image_comparison.find(base[2].key[:10], base[0], None) == folder(base)
    with pytest.raises(BadTask, match="no image 12345678: no folder 12345678"):
        image_comparison.find("12345678", base[0], tmp_path)


def test_the_root_is_left_as_it_was_and_the_initrd_is_of_no_machine(base: Base) -> None:
    images, recipe, _ = base
    files = {one.path for one in initrd_archive.read(folder(base) / INITRD)}
    assert "conf/conf.d/node-image" in files
    assert not [path for path in files if path.endswith(("resume", ".lock")) and path.startswith("conf/")]
    for driver in ("overlay", "squashfs", "virtio_net"):
        assert [path for path in files if path.rpartition("/")[2].startswith(f"{driver}.ko")], driver
    tree = layer_cache.stack(images, recipe)[-1]
    assert not [path for path in (tree / "var/tmp").iterdir() if "initramfs" in path.name]
