"""Cached initrds and layer blobs are reused only if they are undamaged and the inputs of the initrd have not changed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from steps.nodeimage.files import initrds, oci_layers
from steps.nodeimage.sandbox import root_scan
from tests.unit.clients.image import trees

KERNEL = "6.1"
TRAILER = "070701" + "0" * 88 + "0000000B" + "0" * 8 + "TRAILER!!!" + r"\000" * 4
MAKE = f"""#!/bin/sh
find -L /etc/systemd/network -name '*.link' -exec cat {{}} + >/dev/null
for file in /etc/live/boot/* /lib/libacl*; do [ -e "$file" ] && cat "$file" >/dev/null; done
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
printf '{TRAILER}' >"$out"
"""
"""A stand-in for mkinitramfs, which looks at what the hooks of udev and live-boot look at: an archive without a member."""
CHANGES = {
    "a file in a folder of which a hook takes some": "etc/systemd/network/10-site.link",
    "a file in a folder that a hook takes whole": "etc/live/boot/site",
    "a folder in it": "etc/live/boot/more/site",
    "a file that a pattern takes": "usr/lib/libacl.so.9",
    "the file that a link leads to": "srv/names",
}
DAMAGES = {
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "other bytes": lambda path: path.write_bytes(b"x" * path.stat().st_size),
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a shell, a kernel and the stand-in."""
    if os.geteuid() != 0 or shutil.which("bwrap") is None:
        pytest.skip("programs of a root run in bubblewrap, as root")
    made = tmp_path / "root"
    for folder in (
        "proc",
        "dev",
        "run",
        "tmp",
        "var/tmp",
        "etc/initramfs-tools",
        "etc/systemd/network",
        "etc/live/boot",
        "usr/sbin",
    ):
        (made / folder).mkdir(parents=True)
    libraries = re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout)
    for name in ("/bin/sh", *libraries):
        (made / name.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, made / name.lstrip("/"))
    trees.write(made / f"boot/vmlinuz-{KERNEL}")
    trees.write(made / f"usr/lib/modules/{KERNEL}/modules.dep")
    trees.write(made / "usr/sbin/mkinitramfs", MAKE)
    (made / "usr/sbin/mkinitramfs").chmod(0o755)
    trees.write(made / "srv/names", "one")
    (made / "etc/systemd/network/99-names.link").symlink_to("/srv/names")
    return made


def put(root: Path, folder: Path) -> tuple[bool, bytes]:
    """Make an initrd of the root, and return whether it came from the cache, and its bytes."""
    out = folder / "out.img"
    made = initrds.put(root, root_scan.read(root), folder / "kept", out, 1)
    return made.cached, out.read_bytes()


@pytest.mark.parametrize("name", [initrds.FILE, initrds.RECORD])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_kept_initrd_that_is_damaged_is_made_anew(root: Path, tmp_path: Path, name: str, damage: str) -> None:
    cached, first = put(root, tmp_path)
    assert not cached
    assert put(root, tmp_path) == (True, first)
    (kept,) = (tmp_path / "kept").glob(f"*/*/{name}")
    DAMAGES[damage](kept)
    assert put(root, tmp_path) == (False, first)
    assert put(root, tmp_path) == (True, first), "the damaged one went, and the next finds the new one"


@pytest.mark.parametrize("changed", CHANGES.values(), ids=list(CHANGES))
def test_a_kept_initrd_is_not_taken_where_what_its_hooks_look_at_changed(root: Path, tmp_path: Path, changed: str) -> None:
    put(root, tmp_path)
    trees.write(root / changed, "two")
    assert not put(root, tmp_path)[0]
    trees.write(root / changed, "TWO")
    assert not put(root, tmp_path)[0], "its bytes matter too"
    trees.write(root / "srv/others/new", "two")
    assert put(root, tmp_path)[0]


@pytest.mark.parametrize("name", [oci_layers.FILE, oci_layers.NOTE])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_kept_blob_that_is_damaged_is_made_anew(tmp_path: Path, name: str, damage: str) -> None:
    if shutil.which("zstd") is None:
        pytest.skip("zstd is not on this machine")
    trees.write(tmp_path / "tree/etc/motd", "hello\n" * 100)
    kept = tmp_path / "kept"
    told = oci_layers.OciLayer(tree=str(tmp_path / "tree"), key="k", kept=str(kept), epoch=1, made_by="a test")
    first = oci_layers.pack(tmp_path, told)
    data = (kept / "k" / oci_layers.FILE).read_bytes()
    DAMAGES[damage](kept / "k" / name)
    assert oci_layers.find(kept, "k") is None
    assert oci_layers.pack(tmp_path, told) == first
    assert (kept / "k" / oci_layers.FILE).read_bytes() == data
