"""Units of the recipe `gpu` where no GPU is: left out of test boots by a word of theirs alone, or where their device is not."""

import shlex
import subprocess
from pathlib import Path

import pytest

from steps.nodeimage.contract import ipxe
from workflows.nodeimage import recipe_chain

LEFT_OUT = "ConditionKernelCommandLine=!"
EXEC = "ExecCondition="


def dropins(folder: Path) -> dict[str, list[str]]:
    """Lines of the drop-in of each unit that the uppermost layer starts."""
    (*_, layer) = recipe_chain.read("gpu", folder, {}).top.spec.layers
    files = {file.path: file.content or "" for file in layer.files}
    return {unit: files[f"/etc/systemd/system/{unit}.d/image.conf"].splitlines() for unit in layer.services.enabled}


def words(*, tests: bool) -> set[str]:
    """Return the words of the boot script of a test boot, or of a node; the kernel's command line is among them."""
    told = {"title": "gpu", "kernel": "http://x/k", "initrd": "http://x/i", "root": "http://x/r.squashfs", "image": "sha256:aa"}
    return set(ipxe.script(ipxe.Loaded(**told, report="http://10.0.0.1/x", tests=tests)).split())


def test_daemons_are_left_out_of_test_boots_and_of_no_other(tmp_path: Path) -> None:
    units = dropins(tmp_path)
    assert units.keys() == {"nvidia-persistenced.service", "nvidia-fabricmanager.service", "nvidia-dcgm.service"}
    ours = {unit: line.removeprefix(LEFT_OUT) for unit, lines in units.items() for line in lines if line.startswith(LEFT_OUT)}
    assert ours.keys() == {"nvidia-persistenced.service", "nvidia-dcgm.service"}
    assert set(ours.values()) <= words(tests=True) - words(tests=False)


@pytest.mark.parametrize(
    ("files", "starts"),
    [
        ({}, False),
        ({"bus/pci/devices/0000:17:00.0/modalias": "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00\n"}, False),
        ({"bus/pci/devices/0000:00:1f.0/modalias": "pci:v00008086d00001B81sv00008086sd00000000bc06sc80i00\n"}, False),
        ({"bus/pci/devices/0000:07:00.0/modalias": "pci:v000010DEd000022A3sv000010DEsd00001796bc06sc80i00\n"}, True),
        ({"class/infiniband/mlx5_0/device/vpd": "\x82\x01ConnectX-7\x00V3\x00"}, False),
        ({"class/infiniband/mlx5_0/device/vpd": "\x82\x01ConnectX-7\x00VZ\x0cSW_MNG\x00"}, True),
    ],
    ids=["nothing", "a GPU", "a bridge of somebody else", "an NVSwitch", "a card", "a card of NVSwitches"],
)
def test_fabric_manager_starts_where_nvswitches_are(tmp_path: Path, files: dict[str, str], starts: bool) -> None:
    for name, text in files.items():
        path = tmp_path / "sys" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    (line,) = (line for line in dropins(tmp_path)["nvidia-fabricmanager.service"] if line.startswith(EXEC))
    command = line.removeprefix(EXEC)
    assert not set("$%") & set(command), "systemd would take them for its own"
    done = subprocess.run(shlex.split(command.replace("/sys/", f"{tmp_path}/sys/")), capture_output=True, text=True)
    assert (done.returncode == 0, done.stderr) == (starts, "")
