"""Boot scripts: whole names, one machine's or a group's, and never a way past an error."""

import re

import pytest

from steps.nodeimage.contract import ipxe
from steps.nodeimage.contract.ipxe import Loaded, ScriptError

BASE = "http://10.0.0.1/images/compute/versions/0007-3fede354d804"


def loaded(**more: object) -> Loaded:
    values = {"title": "compute 0007", "kernel": f"{BASE}/vmlinuz", "initrd": f"{BASE}/initrd.img", "root": f"{BASE}/root.squashfs"}
    return Loaded(**{**values, "image": "sha256:aa", **more})  # type: ignore[arg-type]


def test_script_names_everything_whole() -> None:
    lines = ipxe.script(loaded(arguments=("console=ttyS0",), report="http://10.0.0.1:8080/nodes")).splitlines()
    assert lines[0] == "#!ipxe"
    kernel = next(line for line in lines if line.startswith("kernel "))
    assert f"{BASE}/vmlinuz initrd=initrd.img boot=live" in kernel
    assert f"fetch={BASE}/root.squashfs ethdevice-timeout=60 nonetworking panic=60 " in kernel
    assert "bringup.image=sha256:aa bringup.report=http://10.0.0.1:8080/nodes console=ttyS0 BOOTIF=01-${netX/mac:hexhyp}" in kernel
    assert f"initrd --name initrd.img {BASE}/initrd.img || goto failed" in lines


def test_tests_are_run_in_a_test_boot_alone() -> None:
    assert "bringup.tests" not in ipxe.script(loaded(report="http://10.0.0.1/x", arguments=("quiet",)))
    assert "bringup.report=http://10.0.0.1/x bringup.tests=yes" in ipxe.script(loaded(report="http://10.0.0.1/x", tests=True))


def test_every_way_out_leads_back() -> None:
    """No command that can fail is without its error's way, and the last line never ends the script."""
    for text in (
        ipxe.script(loaded(machines={"52:54:00:00:00:01": "gpu001"})),
        ipxe.script(loaded(machines={"52:54:00:00:00:01": "gpu001"}, entry=f"{BASE}/gpu.ipxe", again=f"{BASE}/boot.ipxe")),
        ipxe.chain(f"{BASE}/boot.ipxe"),
        ipxe.chain(f"{BASE}/gpu.ipxe", f"{BASE}/boot.ipxe"),
        ipxe.first(f"{BASE}/mac-", ["52:54:00:00:00:01"], f"{BASE}/default.ipxe", f"{BASE}/boot.ipxe"),
        ipxe.first(f"{BASE}/mac-", [], "", f"{BASE}/boot.ipxe"),
    ):
        lines = text.splitlines()
        assert re.match(r"goto \w+", lines[-1])
        for line in lines:
            if line.split()[0] in {"kernel", "initrd", "boot", "chain"} and not line.endswith(" ||"):
                assert line.endswith("|| goto failed")
        labels = {line.removeprefix(":") for line in lines if line.startswith(":")}
        assert {found for line in lines for found in re.findall(r"goto (\w+)", line)} <= labels


def test_a_group_knows_its_machines() -> None:
    text = ipxe.script(loaded(machines={"52:54:00:00:00:02": "gpu002", "52:54:00:00:00:01": "gpu001"}))
    assert text.index("iseq ${netX/mac} 52:54:00:00:00:01 && set node gpu001 ||") < text.index("set node gpu002")
    assert "systemd.hostname=${node}" in text
    assert "this script is for other machines" in text


def test_what_cannot_go_on_begins_anew_and_sees_what_is_current_then() -> None:
    """With a script that stays, it would ask for the files of one version for ever, or look into a list of yesterday."""
    start, entry = f"{BASE}/boot.ipxe", f"{BASE}/gpu.ipxe"
    lines = ipxe.script(loaded(machines={"52:54:00:00:00:01": "gpu001"}, entry=entry, again=start)).splitlines()
    for end, url in (("goto who", entry), ("goto load", start)):
        assert lines[lines.index(end) - 2 : lines.index(end)] == ["sleep 10", f"chain --autofree --replace {url} ||"]
    assert lines[lines.index(":who") + 1] == "clear node ||", "who was in the list of yesterday is not let in by it"


def ways(text: str, mac: str, start: str) -> list[str]:
    """Return the URLs that a boot script chains to for a MAC address if every `chain` fails, until it starts over at `start`."""
    lines, at, found = text.splitlines(), 0, list[str]()
    while not (line := lines[at]).startswith(f"chain --autofree --replace {start}"):
        words, at = line.split(), at + 1
        if words[:2] == ["iseq", "${netX/mac}"] and words[2] == mac:
            at = lines.index(f":{words[5]}")
        elif words[0] == "goto":
            at = lines.index(f":{words[1]}")
        elif words[0] == "chain":
            found.append(words[3])
            at = lines.index(f":{words[-1]}") if words[-2] == "goto" else at
    return found


def test_who_is_known_goes_on_with_its_own_alone_and_others_with_the_default() -> None:
    """A server that answers 503 once must not make a GPU node boot what compute nodes boot."""
    known, start = ["52:54:00:00:00:01", "52:54:00:00:00:02"], f"{BASE}/boot.ipxe"
    text = ipxe.first(f"{BASE}/mac-", known, f"{BASE}/default.ipxe", start)
    assert [ways(text, mac, start) for mac in known] == [[f"{BASE}/mac-${{netX/mac:hexhyp}}.ipxe"]] * 2
    assert ways(text, "52:54:00:00:00:03", start) == [f"{BASE}/default.ipxe"]
    assert f"chain --autofree --replace {start} ||" in text
    assert ways(ipxe.first(f"{BASE}/mac-", known, "", start), "52:54:00:00:00:03", start) == []


def test_machines_may_go_without_names() -> None:
    text = ipxe.script(loaded(machines={"52:54:00:00:00:01": ""}))
    assert "systemd.hostname" not in text
    assert "iseq ${netX/mac} 52:54:00:00:00:01" in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"kernel": "vmlinuz"}, "no absolute http URL"),
        ({"root": "http://"}, "no absolute http URL"),
        ({"initrd": "http://a/b c"}, "cannot stand in an iPXE script"),
        ({"arguments": ("a=${net0/ip}",)}, "cannot stand"),
        ({"arguments": ("||",)}, "cannot stand"),
        ({"arguments": ("quiet\nshell",)}, "cannot stand"),
        ({"arguments": ("",)}, "cannot stand"),
        ({"arguments": ("x" * 2000,)}, "a kernel keeps 2000"),
        ({"arguments": ("x" * 1700,), "machines": {"52:54:00:00:00:01": ".".join(["n" * 60] * 4)}}, "a kernel keeps 2000"),
        ({"machines": {"52-54-00-00-00-01": ""}}, "no MAC address"),
        ({"machines": {"52:54:00:AA:00:01": ""}}, "no MAC address"),
        ({"machines": {"52:54:00:00:00:01": "a b"}}, "no host name"),
        ({"machines": {"52:54:00:00:00:01": "", "52:54:00:00:00:02": "gpu"}}, "has no host name, others have"),
        ({"others": ("52-54-00-00-00-01",), "start": f"{BASE}/boot.ipxe"}, "no MAC address"),
        ({"others": ("52:54:00:00:00:01",), "start": "boot.ipxe"}, "no absolute http URL"),
        ({"again": "boot.ipxe"}, "no absolute http URL"),
        ({"again": "http://a/${x}"}, "cannot stand"),
        ({"machines": {"52:54:00:00:00:01": "gpu001"}, "entry": "boot.ipxe"}, "no absolute http URL"),
    ],
)
def test_what_ipxe_would_take_otherwise_is_refused(more: dict[str, object], said: str) -> None:
    with pytest.raises(ScriptError, match=re.escape(said)):
        ipxe.script(loaded(**more))


@pytest.mark.parametrize(
    "known", [["52-54-00-00-00-01"], ["52:54:00:AA:00:01"], ["52:54:00:00:00:01 && exit"]], ids=["dashes", "upper case", "more"]
)
def test_whoever_is_known_by_no_address_is_refused(known: list[str]) -> None:
    with pytest.raises(ScriptError, match="is no MAC address"):
        ipxe.first(f"{BASE}/mac-", known, "", f"{BASE}/boot.ipxe")


def test_a_title_is_only_a_title() -> None:
    assert "shell" not in [line.split()[0] for line in ipxe.script(loaded(title="a\nshell ${x}")).splitlines()]
