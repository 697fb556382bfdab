"""The program that runs on a node, run here: what it asks for, runs and tells, and what a server reads of it."""

import hashlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from steps.nodeimage.contract import boot_test_protocol
from steps.nodeimage.contract.boot_tests import NodeReport
from steps.nodeimage.contract.image_tests import BuiltinCheck, ImageTest, ImageTestOutcome, Where
from steps.nodeimage.netboot.boot_test_server import BootTestServer, Orders

PROGRAM = Path(__file__).parents[4] / "images" / "boot" / "report.sh"
ROOT = b"hsqs and so on"
IMAGE = f"sha256:{hashlib.sha256(ROOT).hexdigest()}"
WISHED = f"sha256:{'3fede354' * 8}"


@pytest.fixture
def server() -> Iterator[BootTestServer]:
    with BootTestServer() as one:
        yield one


def told(server: BootTestServer, folder: Path, tests: tuple[ImageTest, ...], factor: float = 1.0) -> NodeReport:
    server.serve("m1", Orders(script="", tests=boot_test_protocol.render(tests, factor), parts={}))
    done = run(folder, f"http://127.0.0.1:{server.port}{server.place('m1')}")
    assert done.returncode == 0, done.stdout + done.stderr
    report = server.heard("m1").report
    assert report is not None, server.heard("m1").problem
    return report


def run(
    folder: Path, url: str, tests: str = "bringup.tests=yes", root: bytes = ROOT, kept: Path | None = None
) -> subprocess.CompletedProcess[str]:
    cmdline = folder / "cmdline"
    cmdline.write_text(f"boot=live bringup.image={WISHED} bringup.report={url} {tests} BOOTIF=01-52-54-00-00-00-01\n")
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)}
    medium = folder.parent / "medium"
    (medium / "live").mkdir(parents=True, exist_ok=True)
    (medium / "live/root.squashfs").write_bytes(root)
    command = ["bash", str(PROGRAM), str(cmdline), "0", str(medium), *([str(kept)] if kept else [])]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_digest_is_taken_once_a_boot(server: BootTestServer, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert kept_digest(server, tmp_path, kept, ROOT) == IMAGE
    assert kept.read_text() == IMAGE
    assert kept_digest(server, tmp_path, kept, b"is not read") == IMAGE
    kept.unlink()
    assert kept_digest(server, tmp_path, kept, b"after a boot") == f"sha256:{hashlib.sha256(b'after a boot').hexdigest()}"


def kept_digest(server: BootTestServer, folder: Path, kept: Path, root: bytes) -> str:
    """The digest that a node tells which keeps it in a file."""
    server.serve("m1", Orders(script="", tests=boot_test_protocol.render(()), parts={}))
    done = run(folder, f"http://127.0.0.1:{server.port}{server.place('m1')}", root=root, kept=kept)
    assert done.returncode == 0, done.stdout + done.stderr
    report = server.heard("m1").report
    assert report is not None, server.heard("m1").problem
    return report.image


def one(name: str, run: str, seconds: float = 5.0) -> ImageTest:
    return ImageTest(name=name, incident="", run=run, where=Where.BOOT, seconds=seconds)


def test_report_says_what_the_node_is(server: BootTestServer, tmp_path: Path) -> None:
    report = told(server, tmp_path, ())
    assert report.image == IMAGE, "its very bytes, whatever the boot script says"
    assert report.kernel == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert report.uptime > 0
    assert report.free_mib > 0
    assert report.root not in ("", "unknown")
    assert abs(report.clock - server.heard("m1").clock) < 60
    assert [event.what for event in server.events("m1")] == ["tests", "report"]


def test_each_test_has_its_outcome(server: BootTestServer, tmp_path: Path) -> None:
    tests = (
        one("good one", "echo fine"),
        one("100% bad/odd", "printf 'a\\tb\\001\\377'; false; echo not reached"),
        one("slow", "sleep 30", 1.0),
        one("no such program", "no-such-program-here"),
        one("talks much", "head -c 100000 /dev/zero | tr '\\0' x"),
    )
    report = told(server, tmp_path, tests)
    assert [result.name for result in report.results] == [test.name for test in tests]
    assert [result.outcome for result in report.results] == [
        ImageTestOutcome.PASS,
        ImageTestOutcome.FAIL,
        ImageTestOutcome.TIMEOUT,
        ImageTestOutcome.FAIL,
        ImageTestOutcome.PASS,
    ]
    assert report.results[0].output == "fine "
    assert report.results[1].output.startswith("a b")
    assert report.results[1].output.isprintable()
    assert "no-such-program-here" in report.results[3].output
    assert len(report.results[4].output) == boot_test_protocol.MAX_OUTPUT
    assert list(tmp_path.iterdir()) == [tmp_path / "cmdline"], "nothing is left on the node"


def test_tests_have_a_home_where_the_service_manager_gives_none(server: BootTestServer, tmp_path: Path) -> None:
    (told_home,) = told(server, tmp_path, (one("home", 'test "$HOME" = /root'),)).results
    assert told_home.outcome is ImageTestOutcome.PASS, told_home.output


def test_checks_run_as_shell(server: BootTestServer, tmp_path: Path) -> None:
    (tmp_path / "here it is").touch()
    checks = (
        (BuiltinCheck.PATHS_PRESENT, (str(tmp_path / "here*"),), ImageTestOutcome.PASS),
        (BuiltinCheck.PATHS_PRESENT, (str(tmp_path / "not'here"),), ImageTestOutcome.FAIL),
        (BuiltinCheck.PATHS_ABSENT, (str(tmp_path / "not*"),), ImageTestOutcome.PASS),
        (BuiltinCheck.PATHS_ABSENT, (str(tmp_path / "*it is"),), ImageTestOutcome.FAIL),
    )
    tests = [
        ImageTest(name=f"c{number}", incident="", check=name, arguments=words) for number, (name, words, _) in enumerate(checks)
    ]
    report = told(server, tmp_path, tuple(tests))
    assert [result.outcome for result in report.results] == [outcome for _, _, outcome in checks]


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="no Debian")
def test_packages_are_looked_up(server: BootTestServer, tmp_path: Path) -> None:
    checks = (
        (BuiltinCheck.PACKAGES_PRESENT, "dpkg"),
        (BuiltinCheck.PACKAGES_ABSENT, "no-such-package"),
        (BuiltinCheck.PACKAGES_ABSENT, "dpkg"),
    )
    tests = [ImageTest(name=f"{check}{name}", incident="", check=check, arguments=(name,)) for check, name in checks]
    report = told(server, tmp_path, tuple(tests))
    assert [result.outcome for result in report.results] == [ImageTestOutcome.PASS, ImageTestOutcome.PASS, ImageTestOutcome.FAIL]


def test_production_runs_nothing_that_came(server: BootTestServer, tmp_path: Path) -> None:
    server.serve("m1", Orders(script="", tests=boot_test_protocol.render([one("bad", f"touch {tmp_path}/ran")]), parts={}))
    assert run(tmp_path, f"http://127.0.0.1:{server.port}{server.place('m1')}", tests="").returncode == 0
    report = server.heard("m1").report
    assert report is not None
    assert report.results == ()
    assert [event.what for event in server.events("m1")] == ["report"]
    assert not (tmp_path / "ran").exists()


def test_a_server_that_does_not_answer_is_said(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = run(tmp_path, f"http://127.0.0.1:{closed.getsockname()[1]}/m1")
    assert done.returncode == 1
    assert "try 5 of 5: GET" in done.stdout


def test_only_http_is_understood(tmp_path: Path) -> None:
    done = run(tmp_path, "https://boot.example.org/")
    assert done.returncode == 1
    assert "only http:// is understood" in done.stdout
