"""A machine that is told a group's entry boots the version that the pointer names after a rollback, and says what it runs."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steps.clients.netboot import machine
from steps.clients.published import publishing, rolling_back, rows, serving
from steps.clients.published.local import Local
from steps.contract.image import ipxe
from steps.contract.image.booting import Firmware, Machine
from steps.contract.image.manifest import MANIFEST
from steps.contract.image.published import Group, Place
from tests.unit.clients.published.published_trees import silent

MAC = "52:54:00:12:34:56"
SECONDS = 300.0


def test_a_node_boots_what_is_current_and_says_so(store: Path, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    assembled = next(store.glob(f"assembled/*/{MANIFEST}")).parent
    with served(root) as (port, heard):
        url = f"http://{machine.GATEWAY}:{port}"
        group = Group(name="nodes", kernel_arguments=("console=ttyS0",), nodes={MAC: "node001"})
        place = Place(root=str(root), url=url, report=url, groups=(group,))
        other = Place(root=str(root), url=url, report=url, groups=(Group(name="nodes", kernel_arguments=("quiet",)),))
        first = publishing.publish(place, assembled, {}, tmp_path, "run-1", silent)
        publishing.publish(other, assembled, {}, tmp_path, "run-2", silent)
        rolling_back.rollback(Local(root), first_image(root), "", "ada")
        (tmp_path / "tftp").mkdir()
        (tmp_path / "tftp/boot.ipxe").write_text(ipxe.chain(f"{url}/boot/nodes.ipxe"))
        running = machine.start(Machine(name="node001", firmware=Firmware.BIOS, mac=MAC), machine.Hardware(), tmp_path)
        try:
            assert heard.wait(SECONDS), running.console()[-3000:]
        finally:
            running.end()
    (row,) = rows.nodes((Local(root).look(first_image(root)),), now=time.time())
    assert "quiet" not in (root / first_image(root) / "current/boot/nodes.ipxe").read_text()
    assert (row.node, row.stand.value, row.mac) == ("node001", "current", MAC), row
    assert Local(root).look(first_image(root)).current == first.version


def first_image(root: Path) -> str:
    return Local(root).look("boot").images[0]


@contextmanager
def served(root: Path) -> Iterator[tuple[int, threading.Event]]:
    """The tree by HTTP; the event says that a report came."""
    heard = threading.Event()

    def say(line: str) -> None:
        if " runs sha256:" in line:
            heard.set()

    with serving.server(root, say=say) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield int(server.server_address[1]), heard
        finally:
            server.shutdown()
            thread.join()
