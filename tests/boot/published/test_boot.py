"""A machine boots the version that the pointer names after a rollback, also where it waited meanwhile, and says what it runs."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.contract.release_layout import NODES
from steps.nodeimage.contract import ipxe
from steps.nodeimage.contract.boot_tests import BootedMachine, Firmware
from steps.nodeimage.contract.boot_tree import BootGroup, PublishTarget, machine_name
from steps.nodeimage.contract.image_manifest import KERNEL, MANIFEST, ROOT
from steps.nodeimage.netboot import qemu_machine
from steps.nodeimage.publishing import boot_server, image_publication, node_reports
from steps.nodeimage.publishing.image_kind import local_tree
from tests.hosts.hostlab.waiting import until
from tests.unit import small_image
from tests.unit.clients.published.published_trees import order, silent

MAC = "52:54:00:12:34:56"
SECONDS = 300.0
ROUNDS = 40
"""Three scripts each, of which iPXE kept every one on its stack of a few kB if they came back to each other."""
MACHINES = 500
"""Number of further machines in the node's boot group, so that its lists are as long as those of a large site."""


@pytest.mark.sampled("machines that boot")
def test_a_node_waits_for_what_is_its_own_sees_a_rollback_boots_what_is_current_and_says_so(store: Path, tmp_path: Path) -> None:
    """A node of a large group retries its own boot script while that cannot be loaded or names a version without a kernel. After a
    rollback it boots the version that is current then, never the script of the default group, and reports what it runs."""
    assembled = next(store.glob(f"assembled/*/{MANIFEST}")).parent
    with served(tmp_path / "tree") as (root, url, heard):
        group = BootGroup(name="nodes", kernel_arguments=("console=ttyS0",), nodes={**small_image.fleet(MACHINES), MAC: "node001"})
        others = BootGroup(name="default", kernel_arguments=("quiet",))
        place = PublishTarget(root=str(root), url=url, report=f"{url}/{NODES}", groups=(group, others))
        quiet, louder = (replace(group, kernel_arguments=(word,)) for word in ("quiet", "loglevel=7"))
        first = image_publication.publish(order(place, assembled, results={}), silent)
        second = image_publication.publish(order(replace(place, groups=(quiet, others)), assembled, results={}), silent)
        (root / first_image(root) / "versions" / second.version / KERNEL).unlink()
        own = root / f"boot/{machine_name(MAC)}.ipxe"
        own.rename(tmp_path / own.name)
        with started(f"{url}/boot/boot.ipxe", tmp_path) as running:
            says(running, f"{ipxe.SAID} could not go on with a script for {MAC}")
            (tmp_path / own.name).rename(own)
            for script in (root / first_image(root) / "versions" / second.version / "boot").glob("*.ipxe"):
                script.write_text(script.read_text().replace(f"sleep {ipxe.WAIT}", "sleep 0"))
            failed = f"{ipxe.SAID} could not load"
            assert until(lambda: running.console().count(failed) > ROUNDS, SECONDS, every=0.2), running.console()[-3000:]
            image_publication.roll_back(local_tree(root), first_image(root), "", "ada")
            assert heard.wait(SECONDS), running.console()[-3000:]
            assert "for group default" not in running.console()
    (row,) = node_reports.nodes((local_tree(root).look(first_image(root)),), now=time.time())
    assert "quiet" not in (root / first_image(root) / "current/boot/nodes.ipxe").read_text()
    assert (row.node, row.stand.value, row.mac) == ("node001", "current", MAC), row
    assert local_tree(root).look(first_image(root)).current == row.version == first.version
    third = image_publication.publish(order(replace(place, groups=(louder, others)), assembled, results={}), silent)
    (row,) = node_reports.nodes((local_tree(root).look(first_image(root)),), now=time.time())
    assert (row.version, row.stand.value) == (first.version, "older"), f"{third.version} has its root, and it has not booted that"


def says(running: qemu_machine.Running, text: str) -> None:
    """Wait until its console does."""
    assert until(lambda: text in running.console(), SECONDS, every=0.2), running.console()[-3000:]


@pytest.mark.long
def test_a_node_whose_root_cannot_be_had_begins_anew_by_itself(store: Path, tmp_path: Path) -> None:
    """A node that cannot load its root panics and asks for a reboot, on which QEMU ends."""
    assembled = next(store.glob(f"assembled/*/{MANIFEST}")).parent
    with served(tmp_path / "tree") as (root, url, heard):
        place = PublishTarget(
            root=str(root), url=url, report=f"{url}/{NODES}", groups=(BootGroup(name="nodes", kernel_arguments=("console=ttyS0",)),)
        )
        published = image_publication.publish(order(place, assembled, results={}), silent)
        (root / first_image(root) / "versions" / published.version / ROOT).rename(tmp_path / ROOT)
        with started(f"{url}/boot/nodes.ipxe", tmp_path) as running:
            assert until(lambda: running.ended, SECONDS, every=0.2), running.console()[-3000:]
            assert "Rebooting automatically due to panic= boot argument" in running.console()
            assert not heard.is_set()


@contextmanager
def started(script: str, folder: Path) -> Iterator[qemu_machine.Running]:
    """A machine that is told to load a script."""
    (folder / "tftp").mkdir()
    (folder / "tftp/boot.ipxe").write_text(ipxe.chain(script))
    running = qemu_machine.start(BootedMachine(name="node001", firmware=Firmware.BIOS, mac=MAC), qemu_machine.Hardware(), folder)
    try:
        yield running
    finally:
        running.end()


def first_image(root: Path) -> str:
    return local_tree(root).look("boot").products[0]


@contextmanager
def served(root: Path) -> Iterator[tuple[Path, str, threading.Event]]:
    """An empty tree by HTTP, with its address as machines see it; the event says that a report came."""
    root.mkdir()
    heard = threading.Event()

    def say(line: str) -> None:
        if line.endswith(" was put"):
            heard.set()

    with boot_server.server(root, say=say) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield root, f"http://{qemu_machine.GATEWAY}:{server.server_address[1]}", heard
        finally:
            server.shutdown()
            thread.join()
