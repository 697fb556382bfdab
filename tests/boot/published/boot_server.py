"""A boot server and one machine on its wire, in namespaces of their own: `boot_server.py FOLDER FIRMWARE DNSMASQ NGINX`.

There the network is one cable, called as in the examples, and /srv is the server's: their lines are read as they stand, for a BIOS
but for the one that knows iPXE (`BY_WHAT_IT_WAS_TOLD`). The first process of the namespaces is this one, so all that it starts,
mounts and plugs in is gone with it, however it ends.
"""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from steps.nodeimage.contract.boot_tests import BootedMachine, Firmware
from steps.nodeimage.netboot import qemu_machine
from tests.boot.published.nfs_mounts import KIND
from tests.hosts.hostlab.waiting import until

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "workflows/examples/images/boot-server"
NAME, SERVER, WIRE, MAC = "boot.example.org", "10.0.0.1", "eth1", "52:54:00:12:34:56"
CONSOLE, DHCP, REPORT = "console", "dnsmasq.log", "images/nodes/node001.json"
"""Files with the results in the folder: the console's output, dnsmasq's log and the node's report."""
SECONDS, MOST_SECONDS = 400.0, 460.0
"""Until the machine's report is there; and with the servers' start and end."""
ALONE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
PLUGGED = f"""
umount --all --lazy --types fuse.{KIND}
mount -t tmpfs -o mode=755 none /srv
mkdir -p /srv/tftp /srv/bringup/images
mount --bind tftp /srv/tftp
mount --bind images /srv/bringup/images
ip link set lo up
ip tuntap add dev {WIRE} mode tap vnet_hdr
ip addr add {SERVER}/22 dev {WIRE}
ip link set {WIRE} up
"""
"""Shell lines that set up mounts and network in the namespaces; inherited FUSE mounts of other tests are dropped first."""
CARDS = {Firmware.BIOS: "virtio-net-pci", Firmware.UEFI: "virtio-net-pci,romfile="}
"""A card's ROM in QEMU is iPXE, and all that a BIOS has there to boot from a network. UEFI has its own where the card has none."""
IS_IPXE = "dhcp-match=set:ipxe,175\n"
BY_WHAT_IT_WAS_TOLD = """dhcp-match=set:says-so,175
dhcp-userclass=set:loaded,loaded
tag-if=set:ipxe,tag:says-so,tag:loaded
dhcp-option-force=tag:!loaded,option:user-class,loaded
"""
"""In its place for a BIOS, so that QEMU's ROM is answered as a plain PXE ROM, although it is iPXE and says so. An iPXE that comes
by TFTP sends the same options; but it takes over the answer that the ROM had: here a user class, which it says from then on."""


def run(folder: Path, firmware: Firmware, dnsmasq: Path, nginx: Path) -> subprocess.CompletedProcess[str]:
    """Start it and wait for its end: 0 if the machine's report came. The folder has `tftp`, `images` and `nginx.conf`."""
    command = [*ALONE, sys.executable, __file__, folder, firmware.value, dnsmasq, nginx]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS)


def dhcp_lines(firmware: Firmware) -> str:
    """The example's for dnsmasq, as that firmware is served."""
    lines = (EXAMPLES / "dnsmasq.conf").read_text()
    assert lines.count(IS_IPXE) == 1
    return lines.replace(IS_IPXE, BY_WHAT_IT_WAS_TOLD) if firmware is Firmware.BIOS else lines


def main(folder: Path, firmware: Firmware, dnsmasq: str, nginx: str) -> int:
    """Serve one machine until it has told what it runs."""
    subprocess.run(["sh", "-ec", PLUGGED], cwd=folder, check=True)
    (folder / "dnsmasq.conf").write_text(dhcp_lines(firmware))
    with ExitStack() as ends, (folder / DHCP).open("w") as log:
        told = f"--address=/{NAME}/{SERVER}"  # a site's own name service knows it
        quiet = ("--no-resolv", "--no-hosts", "--leasefile-ro", "--pid-file", "--log-dhcp", "--log-queries", "--log-facility=-")
        command = [dnsmasq, "--keep-in-foreground", f"--conf-file={folder}/dnsmasq.conf", told, *quiet]
        commands = (command, [nginx, "-c", str(folder / "nginx.conf"), "-e", str(folder / "errors")])
        servers = [ends.enter_context(subprocess.Popen(one, stderr=log)) for one in commands]
        for server in servers:
            ends.callback(server.terminate)
        hardware = qemu_machine.Hardware(card=CARDS[firmware], tap=WIRE)
        running = qemu_machine.start(BootedMachine(name="node001", firmware=firmware, mac=MAC), hardware, folder)
        ends.callback(running.end)
        over = until(lambda: (folder / REPORT).exists() or running.ended or any(map(_ended, servers)), SECONDS, every=0.2)
        print(running.broken() or ("" if over else "no report in time"), file=sys.stderr)
    return 0 if (folder / REPORT).exists() else 1


def _ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(Path(sys.argv[1]), Firmware(sys.argv[2]), sys.argv[3], sys.argv[4]))
