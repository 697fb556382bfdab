"""SELinux's mode, now and for the next boots; a machine without it, or booted without it, is left alone. AppArmor's mode, and the
parser that containerd needs with it."""

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.nodeprofile import confinement

from tests.unit.playbooks.machine import Machine


def machine(root: Path, *, enforce: str = "", config: str = "") -> Machine:
    for path, text in ((confinement.ENFORCE, enforce), (confinement.CONFIG, config)):
        if text:
            (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            (root / path[1:]).write_text(text)
    return Machine({}, root=root)


def settled(node: Machine, wanted: str) -> dict[str, Any]:
    (row,) = confinement.selinux(node, wanted, str(node.root))
    return dict(row)


def test_the_mode_is_set_now_and_kept(tmp_path: Path) -> None:
    node = machine(tmp_path, enforce="1", config="# comment\nSELINUX=enforcing\nSELINUXTYPE=targeted\n")
    assert settled(node, "permissive")["status"] == "changed"
    assert (tmp_path / confinement.CONFIG[1:]).read_text() == "# comment\nSELINUX=permissive\nSELINUXTYPE=targeted\n"
    assert confinement.selinux_mode(str(tmp_path)) == "permissive"
    assert settled(node, "permissive")["status"] == "ok"


def test_a_mode_that_the_next_boot_would_lose_is_seen(tmp_path: Path) -> None:
    node = machine(tmp_path, enforce="1", config="SELINUX=permissive\n")
    row = settled(node, "enforcing")
    assert (row["status"], row["before"]) == ("changed", "enforcing, and permissive after a boot")


def test_the_kernels_command_line_goes_before_the_configuration(tmp_path: Path) -> None:
    node = machine(tmp_path, enforce="1", config="SELINUX=enforcing\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_text("BOOT_IMAGE=/vmlinuz ro enforcing=0 quiet\n")
    row = settled(node, "enforcing")
    assert (row["status"], row["before"]) == ("failed", "enforcing, and permissive after a boot")
    assert "take it out there" in row["why"]
    (tmp_path / "proc/cmdline").write_text("BOOT_IMAGE=/vmlinuz ro enforcing=1\n")
    assert settled(node, "enforcing")["status"] == "ok"


def test_disabled_is_not_turned_on_and_none_is_unavailable(tmp_path: Path) -> None:
    row = settled(machine(tmp_path / "off", config="SELINUX=disabled\n"), "enforcing")
    assert row["status"] == "failed"
    assert "label the files first" in row["why"]
    assert settled(machine(tmp_path / "none"), "enforcing")["status"] == "unavailable"
    assert confinement.selinux(machine(tmp_path / "none"), "") == []


WAITS = ["kernel parameter apparmor=0"]


@pytest.mark.parametrize(
    ("now", "wanted", "parser", "waiting", "status", "why"),
    [
        ("Y", "", True, [], "ok", ""),
        ("N", "", False, [], "ok", ""),
        ("Y", "", False, [], "failed", "containerd starts no pod"),
        ("Y", "enabled", False, [], "failed", "containerd starts no pod"),
        ("Y", "enabled", True, [], "ok", ""),
        ("Y", "disabled", True, WAITS, "differs", "the next boot brings it"),
        ("Y", "disabled", True, [], "failed", "it is enabled: see `apparmor` and `lsm`"),
        ("N", "disabled", False, [], "ok", ""),
        ("", "enabled", True, [], "unavailable", "this kernel has no AppArmor"),
    ],
)
def test_apparmor_is_as_wanted_and_its_parser_is_there(
    tmp_path: Path, now: str, wanted: str, parser: bool, waiting: list[str], status: str, why: str
) -> None:
    if now:
        (tmp_path / "sys/module/apparmor/parameters").mkdir(parents=True)
        (tmp_path / "sys/module/apparmor/parameters/enabled").write_text(f"{now}\n")
    node = Machine({confinement.PARSER: lambda _: (0, "", "")} if parser else {})
    (row,) = confinement.apparmor(node, wanted, waiting, False, str(tmp_path))
    assert row["status"] == status, row
    assert why in row.get("why", "")
    assert bool(node.reboots) is (status == "differs")


def test_after_its_reboot_apparmor_waits_no_more_and_without_it_nothing_is_said(tmp_path: Path) -> None:
    assert confinement.apparmor(Machine({}), "", [], False, str(tmp_path)) == []
    (tmp_path / "sys/module/apparmor/parameters").mkdir(parents=True)
    (tmp_path / "sys/module/apparmor/parameters/enabled").write_text("Y\n")
    (row,) = confinement.apparmor(Machine({}), "disabled", WAITS, True, str(tmp_path))
    assert row["status"] == "failed"


@pytest.mark.parametrize(
    ("now", "wanted", "line", "words"),
    [
        ("Y", "enabled", "ro quiet", []),
        ("Y", "disabled", "ro quiet", ["apparmor=0"]),
        ("N", "disabled", "ro apparmor=0", ["apparmor=0"]),
        ("N", "enabled", "ro apparmor=0", ["apparmor=1"]),
        ("", "enabled", "ro", []),
        ("Y", "", "ro", []),
    ],
)
def test_the_command_line_says_it_only_where_it_is_not_so_by_itself(
    tmp_path: Path, now: str, wanted: str, line: str, words: list[str]
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_text(line)
    if now:
        (tmp_path / "sys/module/apparmor/parameters").mkdir(parents=True)
        (tmp_path / "sys/module/apparmor/parameters/enabled").write_text(now)
    assert confinement.apparmor_parameters(wanted, str(tmp_path)) == words


RKE2 = confinement.POLICIES["rke2-selinux"][1]


def policy(root: Path, loaded: list[str], *, check_mode: bool = False, error: str = "") -> tuple[Machine, list[dict[str, Any]]]:
    """A machine that enforces SELinux with rke2-selinux installed, and its setting results. `loaded` are its policy modules."""

    def semodule(command: tuple[str, ...]) -> tuple[int, str, str]:
        if command[1] == "-i" and not error:
            loaded.append("rke2")
        return (1, "", error) if command[1] == "-i" and error else (0, "\n".join(loaded) + "\n", "")

    machine(root, enforce="1", config="SELINUX=enforcing\n")
    node = Machine({"semodule": semodule}, root=root, check_mode=check_mode)
    return node, confinement.policy_modules(node, ["container-selinux", "rke2-selinux"], "enforcing", str(root))


def with_module(root: Path) -> Path:
    (root / RKE2[1:]).parent.mkdir(parents=True)
    (root / RKE2[1:]).write_text("module")
    return root


@pytest.mark.parametrize("listed", ["rke2", "rke2\t1.0"], ids=["semodule 3", "semodule 2"])
def test_a_module_that_is_loaded_is_left_alone(tmp_path: Path, listed: str) -> None:
    node, (row,) = policy(tmp_path, ["container", listed])
    assert (row["name"], row["status"], row["after"]) == ("SELinux module rke2", "ok", "loaded")
    assert node.said == [("semodule", "-l")]


def test_a_module_that_its_package_did_not_load_is_loaded(tmp_path: Path) -> None:
    _, (row,) = policy(with_module(tmp_path), ["container"])
    assert (row["status"], row["before"], row["after"]) == ("changed", "not loaded", "loaded")


def test_a_check_loads_nothing(tmp_path: Path) -> None:
    node, (row,) = policy(with_module(tmp_path), ["container"], check_mode=True)
    assert (row["status"], node.said) == ("differs", [("semodule", "-l")])


def test_a_module_that_cannot_be_loaded_is_told_with_the_tools_words(tmp_path: Path) -> None:
    _, (row,) = policy(with_module(tmp_path), ["rke2-other"], error="Failed to resolve typeattributeset statement")
    assert row["status"] == "failed"
    assert row["why"].startswith("package rke2-selinux is there, and its policy module is not loaded: ")
    assert "Failed to resolve typeattributeset" in row["why"]


def test_a_package_without_its_file_is_told(tmp_path: Path) -> None:
    _, (row,) = policy(tmp_path, [])
    assert row["why"] == f"package rke2-selinux is there, and its policy module is not loaded: it has no {RKE2}"


def test_modules_are_not_asked_for_where_selinux_does_not_enforce_or_no_package_brings_one(tmp_path: Path) -> None:
    node = machine(tmp_path, enforce="0", config="SELINUX=permissive\n")
    assert confinement.policy_modules(node, ["rke2-selinux"], "permissive", str(tmp_path)) == []
    assert confinement.policy_modules(node, ["container-selinux"], "enforcing", str(tmp_path)) == []
