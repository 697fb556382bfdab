"""Serial consoles as they were recorded, and what is read of them."""

import time
from pathlib import Path

import pytest

from steps.nodeimage.contract import console

CONSOLES = Path(__file__).parent / "consoles"
KERNEL = "6.1.0-56-cloud-amd64"


def recorded(name: str) -> str:
    return (CONSOLES / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("name", "cause", "over", "kernel"),
    [
        ("wrong_kernel", "no-kernel", True, ""),
        ("wrong_mac", "wrong-machine", True, ""),
        ("no_network_driver", "no-driver", True, KERNEL),
        ("truncated_root", "bad-root", True, KERNEL),
        ("server_gone", "no-root", True, KERNEL),
        ("no_memory", "no-memory", True, KERNEL),
        ("no_memory_initrd", "no-memory", True, KERNEL),
        ("up", "up", False, KERNEL),
    ],
)
def test_recorded_consoles(name: str, cause: str, over: bool, kernel: str) -> None:
    reading = console.read(recorded(name))
    assert (reading.name, reading.over, reading.kernel) == (cause, over, kernel)


def test_a_card_that_comes_late_is_no_cause() -> None:
    later = recorded("no_network_driver") + "Waiting for link to come up on ens2... \nLink is up\n"
    assert not console.read(later).over


def test_what_the_loader_got_over_is_no_cause() -> None:
    tried = recorded("wrong_kernel") + "bringup: starts the kernel\n[    0.000000] Linux version 6.1.0 (x)\n"
    assert console.read(tried) == console.Reading(name="kernel", kernel="6.1.0")


def test_one_failed_try_proves_nothing() -> None:
    once = "bringup: loads x\nhttp://10.0.2.2:1/vmlinuz... Connection reset (http://ipxe.org/0f0a6039)\n"
    assert console.read(once) == console.Reading(name="no-server")
    assert console.read(once * 2).over


def test_a_try_that_failed_is_forgotten_when_the_next_went_on() -> None:
    tried = "Configuring (net0 52:54:00:b0:00:01)... No configuration methods succeeded (http://ipxe.org/040ee186)\n"
    assert console.read(tried).name == "no-address"
    assert console.read(f"{tried}bringup: asks http://10.0.2.2:1/m1/boot.ipxe\n") == console.Reading(name="script")


def test_a_program_that_took_all_memory_does_not_end_a_boot() -> None:
    up = recorded("up") + "[   99.0] Out of memory: Killed process 1110 (greedy) total-vm:11212kB\n"
    assert console.read(up) == console.Reading(name="no-memory", kernel=KERNEL)
    panic = f"{up}[  100.0] Kernel panic - not syncing: System is deadlocked on memory\n"
    assert console.read(panic) == console.Reading(name="no-memory", over=True, kernel=KERNEL)


def test_a_line_that_the_screen_broke_is_read() -> None:
    broken = "http://10.0.2.2:36657/bios1/vmlinuz" + "." * 30 + " Connection tim\ned out (http\n://ipxe.org/4c0a6092)\n"
    assert console.read(broken * 2) == console.Reading(name="no-server", over=True)


def test_every_prefix_of_a_good_boot_goes_on() -> None:
    """A console is read while it is written: no half line of a boot that comes up may end it."""
    text = recorded("up")
    for end in range(0, len(text), 7):
        assert not console.read(text[:end]).over, text[max(0, end - 200) : end]


def test_escapes_and_nothing_are_read() -> None:
    assert console.read("") == console.Reading()
    assert console.read("\x1b[2J\x1b[01;01H\x1b[=3h\x00\xfe garbage").name == ""
    assert console.last_lines("\x1b[0;32m  OK  \x1b[0m one\r\n\r\n\x07two\r\n") == ("  OK   one", "\N{REPLACEMENT CHARACTER}two")
    assert len(console.last_lines("line\n" * 1000)) == console.LAST_LINES


@pytest.mark.parametrize(
    "said", ["Reached target x ", "Linux version 6 (x)\nRequested init ", "Linux version 6 (x)\nmount overlay on"]
)
def test_a_console_without_line_ends_is_read_at_once(said: str) -> None:
    began = time.process_time()
    console.read((said + "Reached target Requested init run-init: mount overlay on" * 20_000)[:1_000_000])
    assert time.process_time() - began < 10


def test_a_kernel_that_goes_on_about_its_release_is_cut() -> None:
    assert len(console.read("Linux version " + "6" * 100_000).kernel) == 64


def test_names_are_of_one_thing_each() -> None:
    assert not set(console.SIGNS) & set(console.LIVES)
    for sign in console.SIGNS.values():
        assert sign.seen
        assert sign.next_step


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("wrong_kernel", "Could not select: Exec format error (http://ipxe.org/2e008001)"),
        ("no_memory_initrd", "Initramfs unpacking failed: write error"),
        ("truncated_root", "Can not mount /dev/loop0 (/run/live/medium/live/root.squashfs) on /run/live/rootfs/root.squashfs"),
        ("up", ""),
    ],
)
def test_line_with_the_cause_is_quoted(name: str, line: str) -> None:
    text = recorded(name)
    assert line in console.cause_line(text, console.read(text).name)
    assert bool(line) is bool(console.cause_line(text, console.read(text).name))


def test_quoted_line_is_bounded_plain_and_has_no_half_words() -> None:
    secret = "s3cret" * 30
    text = f"Linux version 6 (x)\n{'x ' * 200}{secret} \x1b[1mKernel panic - not syncing: {secret} {secret}{secret}\x07\n"
    line = console.cause_line(text, "panic")
    assert line.isprintable()
    assert len(line) <= console.LONGEST_LINE + 40
    assert "s3cret" not in line or secret in line


def test_hardware_errors_stand_above_the_panic_that_they_end_in() -> None:
    error = "[ 1.0] mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 12"
    text = f"Linux version 6 (x)\n{error}\n[ 1.1] Kernel panic - not syncing: Fatal\n"
    assert console.read(text).name == "hardware"
    assert "Machine Check Exception" in console.cause_line(text, "hardware")
