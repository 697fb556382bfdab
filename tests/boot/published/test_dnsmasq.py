"""The examples for a boot server, by dnsmasq and nginx themselves: a machine finds its image with them alone.

UEFI boots by their lines as they stand. A BIOS has QEMU's ROM, which is iPXE: it is answered as a plain PXE ROM, where one line for
dnsmasq is another (`boot_server`), so that it too goes the whole way, from its ROM to an iPXE that TFTP sent, to its image by HTTP.
"""

import shutil
import time
from pathlib import Path

import pytest

from steps.nodeimage.contract.boot_tests import Firmware
from steps.nodeimage.contract.boot_tree import BootGroup, PublishTarget
from steps.nodeimage.contract.image_manifest import MANIFEST
from steps.nodeimage.publishing import image_publication, node_reports
from steps.nodeimage.publishing.image_kind import local_tree
from tests.boot.published import boot_server, servers
from tests.unit.clients.published.published_trees import order, silent

URL = f"http://{boot_server.NAME}/images"
FOR_FIRMWARE = ("undionly.kpxe", "ipxe.efi", "snponly.efi")


@pytest.fixture(scope="module")
def ipxe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """iPXE for each kind of firmware, as the example's README says: the files of Debian's package."""
    if not Path("/dev/net/tun").exists():
        pytest.skip("this kernel has no tap devices: there is no /dev/net/tun")
    folder, found = tmp_path_factory.mktemp("ipxe"), tmp_path_factory.mktemp("tftp")
    package = Path("/") if Path("/usr/lib/ipxe/undionly.kpxe").exists() else servers.unpacked("ipxe", folder)
    for name in FOR_FIRMWARE:
        file = package / "usr/lib/ipxe" / name
        shutil.copyfile(package / file.readlink().relative_to("/") if file.is_symlink() else file, found / name)
    return found


@pytest.mark.sampled("machines that boot")
@pytest.mark.parametrize("firmware", [Firmware.UEFI, pytest.param(Firmware.BIOS, marks=pytest.mark.long)])
def test_a_machine_boots_by_the_lines_of_the_examples(
    store: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, ipxe: Path, firmware: Firmware
) -> None:
    programs = [
        servers.program(name, package, tmp_path_factory.mktemp(name))
        for name, package in (("dnsmasq", "dnsmasq-base"), ("nginx", "nginx"))
    ]
    root = tmp_path / "images"
    root.mkdir()
    group = BootGroup(name="nodes", kernel_arguments=("console=ttyS0",), nodes={boot_server.MAC: "node001"})
    assembled = next(store.glob(f"assembled/*/{MANIFEST}")).parent
    # by address: the quick image has the name server of the machine that built it
    place = PublishTarget(
        root=str(root), url=URL, report=f"{URL.replace(boot_server.NAME, boot_server.SERVER)}/nodes", groups=(group,)
    )
    seen = image_publication.publish(order(place, assembled, results={}), silent)
    for name in ("nodes", ".put"):
        (root / name).mkdir()
        shutil.chown(root / name, "www-data")
    shutil.copytree(ipxe, tmp_path / "tftp").chmod(0o755)
    lines = boot_server.EXAMPLES / "nginx.conf"
    (tmp_path / "nginx.conf").write_text(servers.nginx_lines(tmp_path, lines, "www-data"))
    done = boot_server.run(tmp_path, firmware, *programs)
    log = (tmp_path / boot_server.DHCP).read_text()
    said = (tmp_path / boot_server.CONSOLE).read_text(errors="replace")
    assert done.returncode == 0, f"{done.stderr}\n{log[-3000:]}\n{said[-3000:]}"
    fetched = [name for name in FOR_FIRMWARE if f"sent /srv/tftp/{name} to " in log]
    assert fetched == ["ipxe.efi" if firmware is Firmware.UEFI else "undionly.kpxe"]
    (name,) = local_tree(root).look("boot").products
    (row,) = node_reports.nodes((local_tree(root).look(name),), now=time.time())
    assert (row.node, row.stand.value, row.mac, row.version) == ("node001", "current", boot_server.MAC, seen.version), row
