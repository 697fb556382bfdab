"""A root that is no node's: why it cannot be packed is one sentence."""

from pathlib import Path

import pytest

from steps.errors import BadTask
from steps.nodeimage.containment import namespace
from steps.nodeimage.files import root_packing
from tests.boot.builder import shipped


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
    told = root_packing.Pack(out=str(out), epoch=1, initrds=str(tmp_path / "initrds"))
    with pytest.raises(BadTask, match=sentence):
        namespace.call((root,), "steps.nodeimage.files.root_packing:pack", told, root_packing.Packed, seconds=60)
