"""Reports posted by nodes are untrusted input: invalid ones are refused, and none can send control characters to a terminal."""

import base64

import pytest

from steps.nodeimage.contract import boot_test_protocol
from steps.nodeimage.contract.image_tests import BuiltinCheck, ImageTest, ImageTestOutcome, Where

GOOD = """bringup-report 1
node gpu001
mac 52:54:00:b0:00:01
address 10.0.2.15
kernel 6.1.0-37-cloud-amd64
modules 1
root overlay
free_mib 480
firmware uefi
image sha256:aa
uptime 31.25
failed a.service
failed b.service
test mpi%20run pass 0.42 Zmluz
test bad timeout 20.00 NOTHING
clock 1763848000.123456789
end 2
""".replace("Zmluz", base64.b64encode(b"fine\x1b[2J").decode()).replace("NOTHING", "")


def test_a_whole_report_is_read() -> None:
    report = boot_test_protocol.read(GOOD.encode())
    assert (report.node, report.mac, report.root, report.firmware) == ("gpu001", "52:54:00:b0:00:01", "overlay", "uefi")
    assert (report.modules, report.free_mib, report.uptime) == (True, 480, 31.25)
    assert report.failed_units == ("a.service", "b.service")
    assert [(one.name, one.outcome) for one in report.results] == [
        ("mpi run", ImageTestOutcome.PASS),
        ("bad", ImageTestOutcome.TIMEOUT),
    ]
    assert report.results[0].output.isprintable()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("bringup-report 1", "bringup-report 2", "no whole report"),
        ("end 2\n", "end 2", "no whole report"),
        ("end 2\n", "end 3\n", "came in part"),
        ("end 2\n", "", "came in part"),
        ("root overlay\n", "", "does not say root"),
        ("mac 52:54:00:b0:00:01\n", "", "does not say mac"),
        ("root overlay", "root overlay\nroot squashfs", "says root twice"),
        ("root overlay", "roof overlay", "'roof', which is no word"),
        ("uptime 31.25", "uptime nan", "'nan' is no number"),
        ("uptime 31.25", "uptime 1e999", "no number"),
        ("free_mib 480", "free_mib -1", "no number"),
        ("pass 0.42", "passed 0.42", "no result"),
        ("20.00 ", "20.00 ???", "no base64"),
        ("node gpu001", "node " + "x" * 500, "500 characters"),
        ("failed a.service", "failed a.service\n" * 2100, "lines, limit"),
        ("node gpu001", "node " + "x" * boot_test_protocol.MAX_REPORT, "bytes, limit"),
    ],
)
def test_what_is_no_report_is_refused(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(boot_test_protocol.ReportError, match=said):
        boot_test_protocol.read(GOOD.replace(old, new, 1).encode())


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(boot_test_protocol.ReportError, match="no whole report"):
        boot_test_protocol.read(b"\xff\xfe\x00")


def test_a_terminal_is_not_moved() -> None:
    report = boot_test_protocol.read(GOOD.replace("gpu001", "gpu\x1b[31m001").encode())
    assert report.node.isprintable()


def test_tests_are_rendered_with_their_time() -> None:
    rendered = boot_test_protocol.render([ImageTest(name="a b", incident="", run="true", seconds=0.3)], 20.0).decode().splitlines()
    assert rendered == ["bringup-tests 1", f"test a%20b 6 {base64.b64encode(b'true').decode()}", "end 1"]


def test_a_check_of_the_packed_root_is_refused() -> None:
    test = ImageTest(name="identity", incident="", check=BuiltinCheck.NO_HOST_IDENTITY, where=Where.BOTH)
    assert not boot_test_protocol.can_run(test)
    with pytest.raises(ValueError, match="test identity: check no_host_identity needs the packed root"):
        boot_test_protocol.render([test])


def test_tests_of_the_sandbox_stay_there() -> None:
    tests = [ImageTest(name=str(where), incident="", run="true", where=where) for where in Where]
    assert [one.name for one in boot_test_protocol.on_node(tests)] == ["boot", "both"]
