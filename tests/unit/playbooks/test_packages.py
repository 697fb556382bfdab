"""Packages by every adapter: what is asked for, what is installed, and one reason where the manager itself does not work."""

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import proxies
from ansible.module_utils.nodeprofile import packages

from steps.clients.ansible_failures import of_failed
from steps.contract.play import FailureKind
from tests.unit.playbooks.machine import Machine

QUERY = {"apt": "dpkg-query", "dnf": "rpm", "zypper": "rpm"}
INSTALL = {"apt": "apt-get", "dnf": "dnf", "zypper": "zypper"}


class Manager:
    """A stand-in for a package manager: knows packages, or fails with words of the real one."""

    def __init__(self, manager: str, *, installed: set[str] = frozenset(), known: set[str] = frozenset(), fails: str = "") -> None:
        self.installed, self.known, self.fails = set(installed), set(known), fails
        self.machine = Machine({QUERY[manager]: self.query, INSTALL[manager]: self.install})

    def query(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        rows = [f"{name}\tinstall ok installed\t1.0" for name in command if name in self.installed]
        return 1, "\n".join(rows), ""

    def install(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        if self.fails:
            return 1, "", self.fails
        if "install" not in command:
            return 0, "", ""
        wanted = [word for word in command[command.index("install") + 1 :] if not word.startswith("-")]
        if unknown := [name for name in wanted if name not in self.known]:
            return 1, "", f"No match for argument: {unknown[0]}"
        self.installed |= set(wanted)
        return 0, "", ""


def settled(manager: Manager, name: str, *wanted: str) -> dict[str, dict[str, str]]:
    rows: list[dict[str, Any]] = packages.packages(manager.machine, list(wanted), name, 0)
    return {row["name"]: row for row in rows}


@pytest.mark.parametrize("name", QUERY)
def test_what_lacks_is_installed_and_one_unknown_package_fails_alone(name: str) -> None:
    manager = Manager(name, installed={"curl"}, known={"socat", "chrony"})
    rows = settled(manager, name, "curl", "socat", "none-such", "chrony")
    assert {label: row["status"] for label, row in rows.items()} == {
        "package curl": "ok",
        "package socat": "changed",
        "package none-such": "failed",
        "package chrony": "changed",
    }
    assert "No match for argument: none-such" in rows["package none-such"]["why"]
    assert {row["status"] for row in settled(manager, name, "curl", "socat", "chrony").values()} == {"ok"}


@pytest.mark.parametrize(
    ("name", "said", "reason"),
    [
        ("apt", "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812", "holds the lock"),
        ("zypper", "System management is locked by the application with pid 812 (zypper).", "holds the lock"),
        ("dnf", "error: rpmdb: damaged header #18 retrieved", "database is damaged"),
        ("apt", "E: Failed to fetch http://192.0.2.1/x.deb  Connection failed", "cannot be reached"),
        ("dnf", "Error: Failed to download metadata for repo 'baseos'", "cannot be reached"),
        (
            "apt",
            "E: Failed to fetch http://d/x  407  Proxy Authentication Required [IP: 192.0.2.1 3128]",
            "the proxy refuses this login",
        ),
        (
            "dnf",
            "Curl error (56): Failure when receiving data [Received HTTP code 407 from proxy after CONNECT]",
            "refuses this login",
        ),
        ("dnf", "Error: Status code: 407 for http://d/repodata/repomd.xml (IP: 192.0.2.1)", "refuses this login"),
        ("apt", "E: Failed to fetch http://d/x  401  Unauthorized [IP: 192.0.2.1 80]", "cannot be reached"),
        ("apt", "W: GPG error: NO_PUBKEY 0E98404D386FA1D9", "signature is not trusted"),
        ("apt", "E: Unmet dependencies. Try 'apt --fix-broken install'", "half installed"),
        ("dnf", "Error Summary: No space left on device", "No space left on device"),
    ],
)
def test_a_manager_that_does_not_work_is_said_once(name: str, said: str, reason: str) -> None:
    manager = Manager(name, installed={"curl"}, fails=said)
    rows = settled(manager, name, "curl", "socat", "chrony", "conntrack")
    assert [row["name"] for row in rows.values() if row["status"] == "failed"] == ["package manager"]
    assert reason in rows["package manager"]["why"]
    assert rows["package manager"]["want"] == "installs socat, chrony, conntrack"
    assert len([command for command in manager.machine.said if command[0] == INSTALL[name]]) == 1, "not tried again for each"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("apt", "E: Failed to fetch http://d/x  401  Unauthorized [IP: 192.0.2.1 3128]"),
        ("dnf", "Error: Status code: 401 for http://d/repodata/repomd.xml (IP: 192.0.2.1)"),
        ("dnf", "Curl error (56): Failure when receiving data [Received HTTP code 401 from proxy after CONNECT]"),
    ],
)
def test_a_wrong_login_is_the_proxys_also_where_it_answers_as_a_site_does(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://site:canary-5@192.0.2.1:3128")
    rows = settled(Manager(name, installed={"curl"}, fails=said), name, "curl", "socat")
    assert proxies.UNAUTHORIZED in rows["package manager"]["why"]
    assert of_failed(rows["package manager"]["why"]) is FailureKind.PROXY


def test_check_mode_installs_nothing() -> None:
    manager = Manager("dnf", known={"socat"})
    manager.machine.check_mode = True
    assert settled(manager, "dnf", "socat")["package socat"]["status"] == "differs"
    assert [command[0] for command in manager.machine.said] == ["rpm"]


def test_a_foreign_distribution_is_no_place_for_any_manager() -> None:
    rows = packages.packages(Machine({}), ["socat"], "", 0)
    assert [(row["status"], row["why"]) for row in rows] == [("failed", "none is known for this distribution")]


def test_proxies_reach_apt_in_the_letters_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    manager = Manager("apt", known={"socat"})
    settled(manager, "apt", "socat")
    assert manager.machine.environments[-2]["https_proxy"] == "http://proxy.example.org:3128"


# what dnf needs-restarting -r prints, of dnf-plugins-core 4 and of dnf 5, and dnf without the plugin, which ends with 1 too
OWED = """Core libraries or services have been updated since boot-up:
  * glibc

Reboot is required to fully utilize these updates.
More information: https://access.redhat.com/solutions/27943
"""
NOT_OWED = "No core libraries or services have been updated since boot-up.\nReboot should not be necessary.\n"
NO_PLUGIN = "No such command: needs-restarting. Please use /usr/bin/dnf --help\n"


@pytest.mark.parametrize(
    ("answer", "asks"),
    [((1, OWED, ""), True), ((0, NOT_OWED, ""), False), ((1, "", NO_PLUGIN), False)],
)
def test_dnf_says_whether_what_was_installed_waits_for_a_reboot(tmp_path: Path, answer: tuple[int, str, str], asks: bool) -> None:
    machine = Machine({"dnf": lambda _: answer})
    assert packages.asks_for_reboot(machine, "dnf", str(tmp_path)) is asks
    assert machine.said == [("dnf", "needs-restarting", "-r")]


@pytest.mark.parametrize(("manager", "flag"), [("apt", "reboot-required"), ("zypper", "reboot-needed")])
def test_others_leave_a_flag(tmp_path: Path, manager: str, flag: str) -> None:
    machine = Machine({})
    assert not packages.asks_for_reboot(machine, manager, str(tmp_path))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / flag).touch()
    assert packages.asks_for_reboot(machine, manager, str(tmp_path))
    assert packages.asks_for_reboot(machine, "", str(tmp_path)), "also where nobody knows the distribution"
    assert machine.said == []
