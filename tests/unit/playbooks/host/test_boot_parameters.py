"""The kernel's command line through grubby's boot entries and through /etc/default/grub, without a boot loader."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.nodeprofile import boot_parameters
from ansible.module_utils.nodeprofile.item import CannotChange

from tests.unit.playbooks.machine import Machine


class Grubby:
    """A stand-in for grubby: two boot entries, and a third that a later kernel brings without our words. What it adds takes the
    place of all values of its key, as with grubby of boot loader entries, which also tells root= apart from the arguments."""

    def __init__(self) -> None:
        self.entries = ["ro root=/dev/vda1", "ro root=/dev/vda1 quiet"]
        self.machine = Machine({"grubby": self.run})

    def run(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        if command[1] == "--info=ALL":
            return 0, "".join(self.info(number, line) for number, line in enumerate(self.entries)), ""
        added = next(word.partition("=")[2] for word in command if word.startswith("--args=")).split()
        keys = {word.partition("=")[0] for word in added}
        left = [[word for word in line.split() if word.partition("=")[0] not in keys] for line in self.entries]
        self.entries = [" ".join([*words, *added]) for words in left]
        return 0, "", ""

    @staticmethod
    def info(number: int, line: str) -> str:
        root = next((word for word in line.split() if word.startswith("root=")), "")
        args = " ".join(word for word in line.split() if word != root)
        place = f'root="{root.partition("=")[2]}"\n' if root else ""
        return f'index={number}\nkernel="/boot/vmlinuz-{number}"\nargs="{args}"\n{place}title="Rocky Linux ({number})"\n'


def status(grubby: Grubby, *wanted: str, rebooted: bool = False) -> dict[str, tuple[str, str]]:
    rows = boot_parameters.parameters(grubby.machine, list(wanted), "grubby", rebooted)
    return {row["name"]: (row["status"], row.get("why", "")) for row in rows}


def test_every_boot_entry_gets_the_words_once_and_waits_for_the_boot() -> None:
    grubby = Grubby()
    name = "kernel parameter bringup.test=1"
    assert status(grubby, "bringup.test=1") == {name: ("changed", "the next boot brings it")}
    assert grubby.entries == ["ro root=/dev/vda1 bringup.test=1", "ro root=/dev/vda1 quiet bringup.test=1"]
    assert status(grubby, "bringup.test=1") == {name: ("differs", "the next boot brings it")}
    assert len([command for command in grubby.machine.said if "--update-kernel=ALL" in command]) == 1
    assert grubby.machine.reboots == [name, name]

    assert status(grubby, "bringup.test=1", rebooted=True)[name][0] == "failed"
    grubby.entries.append("ro root=/dev/vda1")
    assert status(grubby, "bringup.test=1")[name][0] == "changed", "a new kernel's entry lacked it"


@pytest.mark.parametrize(
    ("line", "wanted", "after"),
    [
        ("ro console=ttyS0 quiet", ["console=tty0"], "ro quiet console=ttyS0 console=tty0"),
        ("ro console=tty0 console=ttyS0", ["console=tty0", "x=1"], "ro console=tty0 console=ttyS0 x=1"),
        ("ro console=ttyS0", ["console=tty0", "console=ttyS0"], "ro console=tty0 console=ttyS0"),
        ("ro console=tty0 console=ttyS0", ["console=tty0"], "ro console=tty0 console=ttyS0"),
        (
            "ro hugepagesz=2M hugepages=16 iommu=off",
            ["iommu=pt", "hugepagesz=1G hugepages=16"],
            "ro hugepagesz=2M hugepages=16 iommu=pt hugepagesz=1G hugepages=16",
        ),
        ("ro modprobe.blacklist=floppy", ["modprobe.blacklist=nouveau"], "ro modprobe.blacklist=floppy modprobe.blacklist=nouveau"),
        ("ro hugepagesz=1G hugepages=8 quiet", ["hugepagesz=1G hugepages=16"], "ro quiet hugepagesz=1G hugepages=16"),
        (
            "ro hugepagesz=1G hugepages=8 hugepagesz=2M hugepages=4",
            ["hugepagesz=1G hugepages=16"],
            "ro hugepagesz=2M hugepages=4 hugepagesz=1G hugepages=16",
        ),
        ("ro rd.lvm.lv=rl/root rd.lvm.lv=rl/swap", ["rd.lvm.lv=rl/a"], "ro rd.lvm.lv=rl/root rd.lvm.lv=rl/swap rd.lvm.lv=rl/a"),
    ],
)
def test_grubby_keeps_other_values_of_a_key_of_which_each_counts(line: str, wanted: list[str], after: str) -> None:
    grubby = Grubby()
    grubby.entries = [line, line]
    rows = [boot_parameters.parameters(grubby.machine, wanted, "grubby", rebooted=False) for _ in range(2)]
    assert {row["status"] for row in rows[1]} <= {"differs", "ok"}, "kept, and waits for the boot"
    assert grubby.entries == [after, after]


def test_check_mode_writes_nothing_and_a_machine_without_a_loader_says_so() -> None:
    grubby = Grubby()
    grubby.machine.check_mode = True
    assert status(grubby, "bringup.test=1")["kernel parameter bringup.test=1"][0] == "differs"
    assert grubby.entries[0] == "ro root=/dev/vda1"
    rows = boot_parameters.parameters(Machine({}), ["bringup.test=1"], "grubby", rebooted=False)
    assert [row["status"] for row in rows] == ["unavailable"]


def test_what_the_running_kernel_has_is_good_without_a_loader_too() -> None:
    with open("/proc/cmdline") as source:
        word = re.sub(r"\s.*", "", source.read().strip(), flags=re.DOTALL)
    assert [row["status"] for row in boot_parameters.parameters(Machine({}), [word], "", rebooted=False)] == ["ok"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX="quiet"\n', 'GRUB_CMDLINE_LINUX="quiet iommu=pt hugepagesz=1G hugepages=2"'),
        ("GRUB_CMDLINE_LINUX=''\n", 'GRUB_CMDLINE_LINUX="iommu=pt hugepagesz=1G hugepages=2"'),
        ("GRUB_TIMEOUT=5\n", 'GRUB_CMDLINE_LINUX="iommu=pt hugepagesz=1G hugepages=2"'),
        ('GRUB_CMDLINE_LINUX="quiet" \n', 'GRUB_CMDLINE_LINUX="quiet iommu=pt hugepagesz=1G hugepages=2" '),
        ("GRUB_CMDLINE_LINUX='quiet' # ours\n", "GRUB_CMDLINE_LINUX='quiet iommu=pt hugepagesz=1G hugepages=2' # ours"),
        ("GRUB_CMDLINE_LINUX=quiet\n", 'GRUB_CMDLINE_LINUX=quiet" iommu=pt hugepagesz=1G hugepages=2"'),
        (
            'GRUB_CMDLINE_LINUX="a=\\"b c\\" $MORE"; x=1\n',
            'GRUB_CMDLINE_LINUX="a=\\"b c\\" $MORE iommu=pt hugepagesz=1G hugepages=2"; x=1',
        ),
        ("GRUB_CMDLINE_LINUX=\n", 'GRUB_CMDLINE_LINUX="iommu=pt hugepagesz=1G hugepages=2"'),
        (
            'GRUB_CMDLINE_LINUX="iommu=pt iommu=off"\n',
            'GRUB_CMDLINE_LINUX="iommu=pt iommu=off iommu=pt hugepagesz=1G hugepages=2"',
        ),
        ('GRUB_CMDLINE_LINUX="iommu=pt"\n', 'GRUB_CMDLINE_LINUX="iommu=pt hugepagesz=1G hugepages=2"'),
        ('GRUB_CMDLINE_LINUX="hugepagesz=1G hugepages=8 iommu=pt"\n', 'GRUB_CMDLINE_LINUX="iommu=pt hugepagesz=1G hugepages=2"'),
        ("GRUB_CMDLINE_LINUX='hugepagesz=1G hugepages=8'\n", 'GRUB_CMDLINE_LINUX="iommu=pt hugepagesz=1G hugepages=2"'),
    ],
)
def test_grub_defaults_keep_what_they_have(text: str, line: str) -> None:
    wanted = ["iommu=pt", "hugepagesz=1G hugepages=2"]
    once = boot_parameters.with_parameters(text, wanted)
    assert [row for row in once.splitlines() if "CMDLINE" in row] == [line]
    assert boot_parameters.with_parameters(once, wanted) == once
    assert once.count("GRUB_TIMEOUT") == text.count("GRUB_TIMEOUT")
    done = subprocess.run(["sh", "-euc", f'MORE=""\n{once}printf %s "$GRUB_CMDLINE_LINUX"'], capture_output=True, text=True)
    assert done.stdout.endswith("iommu=pt hugepagesz=1G hugepages=2"), done.stderr


def test_of_two_assignments_the_last_is_changed_and_a_quote_without_an_end_is_refused() -> None:
    text = 'GRUB_CMDLINE_LINUX="a"\nGRUB_CMDLINE_LINUX="b"\n'
    assert boot_parameters.with_parameters(text, ["c"]) == 'GRUB_CMDLINE_LINUX="a"\nGRUB_CMDLINE_LINUX="b c"\n'
    with pytest.raises(CannotChange, match="GRUB_CMDLINE_LINUX has a quote that nothing ends"):
        boot_parameters.with_parameters('GRUB_CMDLINE_LINUX="a\n', ["c"])


@pytest.mark.parametrize(
    ("line", "wanted", "found"),
    [
        ("iommu=pt quiet iommu=off", ["iommu=pt"], "differs"),
        ("iommu=off quiet iommu=pt", ["iommu=pt"], "ok"),
        ("quiet foo-bar=1 foo_bar=2", ["foo-bar=1"], "differs"),
        ("console=tty0 console=ttyS0", ["console=tty0"], "ok"),
        ("intel_iommu=on intel_iommu=sm_on", ["intel_iommu=on", "intel_iommu=sm_on"], "ok"),
        ("hugepagesz=1G hugepages=2 hugepagesz=2M hugepages=9", ["hugepagesz=1G hugepages=2"], "ok"),
        ("hugepagesz=1G hugepages=4 hugepagesz=1G hugepages=2", ["hugepagesz=1G hugepages=2"], "differs"),
        ("rd.driver.blacklist=nouveau rd.driver.blacklist=floppy", ["rd.driver.blacklist=nouveau"], "ok"),
        ("nosmt", ["nosmt"], "ok"),
        ("nosmt nosmt=force", ["nosmt"], "differs"),
    ],
)
def test_of_a_key_that_repeats_the_last_value_counts_unless_the_kernel_takes_each(line: str, wanted: list[str], found: str) -> None:
    grubby = Grubby()
    grubby.entries = [line]
    grubby.machine.check_mode = True
    rows = boot_parameters.parameters(grubby.machine, wanted, "grubby", rebooted=False)
    assert {row.get("after") for row in rows} == {"absent" if found == "differs" else "kept for the next boot"}


def of_pages(tmp_path: Path, wanted: dict[str, int], waiting: list[str], **have: int) -> Any:
    for size, count in have.items():
        (tmp_path / {"small": "2048", "large": "1048576"}[size]).write_text(f"{count}\n")
    return {
        row["name"]: (row["status"], row.get("why", "")) for row in boot_parameters.hugepages(wanted, waiting, str(tmp_path / "%d"))
    }


def test_huge_pages_are_those_of_the_running_kernel(tmp_path: Path) -> None:
    found = of_pages(tmp_path, {"2M": 512, "1G": 16}, [], small=512, large=4)
    assert found["hugepages 2M"] == ("ok", "")
    assert found["hugepages 1G"] == ("failed", "the kernel found no more memory in one piece: reboot, or ask for fewer")


def test_huge_pages_wait_for_a_boot_that_brings_them_and_some_kernels_have_none(tmp_path: Path) -> None:
    found = of_pages(tmp_path, {"2M": 1, "1G": 16}, ["hugepagesz=1G hugepages=16"], large=0)
    assert found["hugepages 1G"] == ("differs", "the next boot brings them")
    assert found["hugepages 2M"] == ("unavailable", "this kernel has no huge pages of 2M")
