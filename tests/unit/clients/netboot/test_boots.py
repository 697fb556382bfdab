"""Boots watched to their end, with a stand-in for QEMU that writes a console and stays, or ends."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.contract.canonical import digest_bytes
from steps.errors import BadTask
from steps.nodeimage import garbage_collection
from steps.nodeimage.contract import build_keys, image_manifest
from steps.nodeimage.contract.boot_tests import Firmware
from steps.nodeimage.contract.image_manifest import INITRD, KERNEL, ROOT, ImageFile, Manifest
from steps.nodeimage.contract.image_tests import BuiltinCheck, ImageTest, Where
from steps.nodeimage.contract.resolved_recipe import PackageRepository, Recipe, ResolvedLayer
from steps.nodeimage.garbage_collection import Collected, Roots
from steps.nodeimage.netboot import machine_boots, parent_death, qemu_machine
from steps.stages.image_boot.contract import Booted

QEMU = shutil.which("qemu-system-x86_64")
LEVEL_3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
"""CPU features that level x86-64-v3 has and x86-64-v2 lacks."""
STAND_IN = """#!/bin/bash
# a stand-in for QEMU: writes what it is told to the serial console
for word; do case $word in file:*) console=${word#file:} ;; esac; done
printf '%b' "$CONSOLE_TEXT" >"$console"
echo $$ >>"$PIDS"
[ -z "$WORDS" ] || printf '%s\n' "$@" >"$WORDS"
case $STAYS in
    yes) ;;
    stopped) echo 'Slirp: external icmpv6 not supported yet' >&2; exit 0 ;;
    killed) kill -9 $$ ;;
    terminated) echo 'qemu: terminating on signal 15 from pid 1' >&2; exit 0 ;;
    *) echo 'cannot set up guest memory' >&2; exit 1 ;;
esac
exec sleep 600
"""
RECIPE = Recipe(
    name="small",
    distribution="debian",
    release="bookworm",
    architecture="amd64",
    epoch=1,
    sources=(PackageRepository(url="http://deb.debian.org/debian", suite="bookworm"),),
    layers=(ResolvedLayer(name="base"),),
    kernel="linux-image-cloud-amd64",
)


@pytest.fixture
def private() -> Iterator[Path]:
    """A short folder in which private folders are made; a path that is too long is not used for them."""
    with tempfile.TemporaryDirectory(prefix="nb-", dir="/tmp") as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        yield Path(folder)
        tempfile.tempdir = before


@pytest.fixture
def images(tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a packed image of a few bytes, and the stand-in in the search path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "qemu-system-x86_64").write_text(STAND_IN)
    (programs / "qemu-system-x86_64").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("STAYS", "yes")
    monkeypatch.setenv("CONSOLE_TEXT", "SeaBIOS\\n")
    monkeypatch.setenv("TMPDIR", str(private))
    store = tmp_path / "images"
    packed(store / "assembled" / build_keys.image(RECIPE))
    return store


def packed(folder: Path, *, exist_ok: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=exist_ok)
    for name in (ROOT, KERNEL, INITRD):
        (folder / name).write_bytes(name.encode())
    made = Manifest(
        name="small",
        key=folder.name,
        recipe=RECIPE.digest,
        distribution="debian",
        release="bookworm",
        architecture="amd64",
        epoch=1,
        kernel="6.1.0",
        kernel_arguments=(),
        parts=tuple(ImageFile(name=name, digest=digest_bytes(name.encode()), size=len(name)) for name in (ROOT, KERNEL, INITRD)),
        layers=(),
        packages=(),
    )
    (folder / image_manifest.MANIFEST).write_bytes(image_manifest.encode(made))


def boot(images: Path, machines: int = 1, seconds: float = 60.0, recipe: Recipe = RECIPE) -> Booted:
    return machine_boots.boot(images, recipe, Firmware.BIOS, machines, 256, seconds, lambda _: None)


def features(processor: str) -> set[str]:
    """Return the CPU features that QEMU reports for a processor, which is given as a value of `-cpu`."""
    name, *settings = processor.split(",")
    props = {key: value == "on" for key, _, value in (one.partition("=") for one in settings)}
    expand = {"type": "full", "model": {"name": name, "props": props}}
    asked = [{"execute": "qmp_capabilities"}, {"execute": "query-cpu-model-expansion", "arguments": expand}, {"execute": "quit"}]
    command = [str(QEMU), "-M", "none", "-accel", "tcg", "-display", "none", "-S", "-qmp", "stdio"]
    told = "".join(f"{json.dumps(one)}\n" for one in asked)
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=60, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    (model,) = [one["return"]["model"] for one in answers if "model" in one.get("return", {})]
    return {key for key, value in model["props"].items() if value is True}


def running(tmp_path: Path) -> list[int]:
    """Stand-ins that still run."""
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    return [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes()]


def nothing_left(tmp_path: Path, private: Path) -> bool:
    return not running(tmp_path) and not list(private.glob("bringup-*"))


def test_a_machine_that_stops_is_noticed_at_once(
    images: Path, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAYS", "no")
    monkeypatch.setenv("CONSOLE_TEXT", "SeaBIOS\\n[    0.0] Linux version 6.1.0 (x)\\nKernel panic - not syncing: x\\n")
    seen = boot(images, machines=2)
    assert [one.name for one in seen.boots] == ["bios1", "bios2"]
    assert len({one.mac for one in seen.boots}) == 2
    for one in seen.boots:
        assert (one.ended, one.stopped_at, one.kernel) == ("exit", "panic", "6.1.0")
        assert one.broken == "cannot set up guest memory"
        assert one.console[-1] == "Kernel panic - not syncing: x"
    assert nothing_left(tmp_path, private)


@pytest.mark.parametrize(
    ("stays", "broken"),
    [
        ("stopped", ""),
        ("killed", "it was killed by signal 9 (Killed)"),
        ("terminated", "qemu: terminating on signal 15 from pid 1"),
    ],
)
def test_a_machine_that_stops_is_told_from_one_that_was_ended(
    images: Path, monkeypatch: pytest.MonkeyPatch, stays: str, broken: str
) -> None:
    """A message of QEMU about network packets is not taken for the reason why the machine stopped."""
    monkeypatch.setenv("STAYS", stays)
    monkeypatch.setenv("CONSOLE_TEXT", "[    0.0] Linux version 6.1.0 (x)\\nKernel panic - not syncing: x\\n")
    (seen,) = boot(images).boots
    assert (seen.ended, seen.stopped_at, seen.broken, seen.problem) == ("exit", "panic", broken, "")


@pytest.mark.skipif(QEMU is None, reason="QEMU is not on this machine")
def test_a_machine_has_a_processor_that_qemu_knows_and_that_runs_programs_of_today(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked of the real QEMU: what it has for x86-64-v3 beyond its default."""
    monkeypatch.setenv("WORDS", str(tmp_path / "words"))
    monkeypatch.setenv("STAYS", "stopped")
    boot(images)
    words = (tmp_path / "words").read_text().splitlines()
    chosen, usual = (features(cpu) for cpu in (words[words.index("-cpu") + 1], "qemu64"))
    assert not usual & LEVEL_3
    assert chosen >= LEVEL_3


def test_a_console_that_proves_the_end_ends_it(
    images: Path, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSOLE_TEXT", "bringup: this script is for other machines, not for 52:54:00:b0:00:01\\n")
    seen = boot(images, seconds=300)
    assert [(one.ended, one.stopped_at) for one in seen.boots] == [("console", "wrong-machine")]
    assert nothing_left(tmp_path, private)


def test_a_silent_machine_ends_at_its_deadline(images: Path, private: Path, tmp_path: Path) -> None:
    seen = boot(images, seconds=5)
    assert [(one.ended, one.stopped_at) for one in seen.boots] == [("deadline", "firmware")]
    assert (seen.root_digest, seen.root_size, seen.kernel) == (digest_bytes(ROOT.encode()), len(ROOT), "6.1.0")
    assert nothing_left(tmp_path, private)


def test_a_console_without_end_is_ended(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Path(os.environ["PATH"].split(":")[0]) / "qemu-system-x86_64"
    program.write_text(STAND_IN.replace("printf '%b' \"$CONSOLE_TEXT\"", "head -c 3000000 /dev/zero"))
    seen = boot(images, seconds=300)
    assert [(one.ended, one.stopped_at) for one in seen.boots] == [("flood", "")]


def test_an_image_that_is_not_packed_is_said(images: Path) -> None:
    other = replace(RECIPE, kernel="linux-image-amd64")
    with pytest.raises(BadTask, match="no packed image"):
        boot(images, recipe=other)


def test_an_image_that_is_booted_is_not_collected(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAYS", "no")
    found: list[Collected] = []

    def collect(_: str) -> None:
        found.append(garbage_collection.collect(images, Roots(), recent=0, dry_run=False))

    machine_boots.boot(images, RECIPE, Firmware.BIOS, 1, 256, 60, collect)
    assert {used.name for one in found for used in one.in_use} == {build_keys.image(RECIPE)}
    assert not any(one.removed for one in found)
    assert [one.kind for one in garbage_collection.collect(images, Roots(), recent=0, dry_run=False).removed] == ["assembled"]


def test_a_test_that_no_node_can_run_is_said(images: Path) -> None:
    test = ImageTest(name="identity", incident="", check=BuiltinCheck.NO_HOST_IDENTITY, where=Where.BOTH)
    recipe = replace(RECIPE, tests=(test,))
    packed(images / "assembled" / build_keys.image(recipe), exist_ok=True)
    with pytest.raises(BadTask, match="recipe small: test identity"):
        boot(images, recipe=recipe)


def test_an_image_for_other_machines_is_not_booted(images: Path) -> None:
    with pytest.raises(BadTask, match="recipe small is for arm64, and test machines are amd64"):
        boot(images, recipe=replace(RECIPE, architecture="arm64"))


def test_a_machine_that_lacks_qemu_is_said(images: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadTask, match="qemu-system-x86_64 is not installed") as refused:
        boot(images)
    assert "qemu-system-x86" in refused.value.hint


def test_machines_die_with_us(images: Path, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = tmp_path / "numbers"
    os.mkfifo(pids)
    monkeypatch.setenv("PIDS", str(pids))
    program = (
        "import sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path; import test_boots as t\n"
        "t.machine_boots.boot(Path(sys.argv[1]), t.RECIPE, t.Firmware.BIOS, 2, 256, 300, lambda _: None)\n"
    )
    command = [sys.executable, "-c", program, str(images), str(Path(__file__).parent)]
    with pids.open("r+b", buffering=0) as told, subprocess.Popen(command, cwd=Path(__file__).parents[4]) as process:
        numbers = b""
        while numbers.count(b"\n") < 2:
            assert process.poll() is None, "the boot ended before its machines began"
            if select.select([told], [], [], 0.1)[0]:
                numbers += told.read(64)
        machines = [os.pidfd_open(int(number)) for number in numbers.split()]
        process.send_signal(signal.SIGKILL)
    for machine in machines:
        assert select.select([machine], [], [], 30)[0], "a machine outlives whoever started it"
        os.close(machine)
    assert list(private.glob("bringup-*")), "a killed boot cannot remove its folder"
    monkeypatch.setenv("PIDS", "/dev/null")
    boot(images, seconds=0.1)
    assert not list(private.glob("bringup-*")), "the next boot removes what a killed one left"


def test_nothing_starts_for_a_parent_that_is_gone() -> None:
    done = subprocess.run([sys.executable, parent_death.__file__, "1", "echo", "started"], capture_output=True, check=True)
    assert done.stdout == b""


@pytest.mark.parametrize(("cores", "processors"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 2)])
def test_a_second_processor_needs_a_core_in_each_of_two_machines(cores: int, processors: int) -> None:
    assert qemu_machine.processors(cores) == processors
