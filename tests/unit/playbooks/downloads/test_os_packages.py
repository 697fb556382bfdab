"""Packages by every adapter: what is asked for, what is installed, and one reason where the manager itself does not work."""

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import proxy_login
from ansible.module_utils.nodeprofile import os_packages
from ansible.module_utils.nodeprofile.item import Unavailable

from steps.clients.ansible.failures import failure_reason
from steps.contract.host_play import FailureKind
from tests.unit.playbooks.machine import Machine

QUERY = {"apt": "dpkg-query", "dnf": "rpm", "zypper": "rpm"}
INSTALL = {"apt": "apt-get", "dnf": "dnf", "zypper": "zypper"}


UNREACHABLE = """Repository 'dead' is invalid.
 - Download (curl) error for 'http://192.0.2.1/x/content':
Error code: Connection failed
Error message: Failed to connect
Skipping repository 'dead' because of the above error.
"""
REFUSED = "The requested URL returned error: 407"
NONE_REFRESHED = "Could not refresh the repositories because of errors."
DNF_AWAY = """Errors during downloading metadata for repository 'dead':
  - Curl error (6): Couldn't resolve host name for http://dead.example/repodata/repomd.xml [Could not resolve host: dead.example]
Error: Failed to download metadata for repo 'dead': Cannot download repomd.xml: All mirrors were tried
"""
DNF5_AWAY = """>>> Curl error (6): Could not resolve hostname for http://dead.example/repodata/repomd.xml
Failed to download metadata (baseurl: "http://dead.example") for repository "dead"
"""
FULL = "No space left on device"
SOME_REFRESHED = "Some of the repositories have not been refreshed because of an error."


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


class OneAway(Manager):
    """Repositories of it are away: apt and zypper say so as they refresh, dnf of one after the other as it installs."""

    def __init__(self, manager: str, *dead: str, fails: str = "", **words: set[str]) -> None:
        super().__init__(manager, **words)
        self.dead, self.broken = dead, fails

    def install(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        refreshes = command[0] == "dnf" or "install" not in command
        left = [said for said in self.dead if not any(f"'{word.partition('=')[2]}'" in said.replace('"', "'") for word in command)]
        if refreshes and left:
            return 1, "", left[0]
        self.fails = self.broken
        return super().install(command)


class Locked(Manager):
    """Another one holds the lock for its first tries."""

    def __init__(self, manager: str, code: int, said: str, tries: float) -> None:
        super().__init__(manager, known={"socat"})
        self.code, self.said, self.tries = code, said, tries

    def install(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        self.tries -= 1
        return (self.code, "", self.said) if self.tries >= 0 else super().install(command)


class Partly(Manager):
    """zypper, where the name of one of its repositories does not resolve."""

    def install(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        code, _, error = super().install(command)
        said = UNREACHABLE.replace("Failed to connect", "Could not resolve host: dead.example") + SOME_REFRESHED
        return (104, "", f"{said}\n{error}") if code else (106 if "install" in command else 4, "", said)


class NoneReached(Manager):
    """zypper, where it reaches none of its repositories: as it installs it says so in other words than as it refreshes, first, and
    of what it says the end is told."""

    def install(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        if "install" not in command:
            return 4, "", UNREACHABLE + NONE_REFRESHED
        names = [word for word in command[command.index("install") + 1 :] if not word.startswith("-")]
        rows = [UNREACHABLE + SOME_REFRESHED, *(f"No provider of '{name}' found." for name in names)]
        return 104, "", "\n".join(rows)[-400:]


def settled(manager: Manager, name: str, *wanted: str) -> dict[str, dict[str, str]]:
    rows: list[dict[str, Any]] = os_packages.packages(manager.machine, list(wanted), name, 0.001, pause=0.0)
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
    ("name", "said", "reason", "tries"),
    [
        ("dnf", "error: rpmdb: damaged header #18 retrieved", "database is damaged", 1),
        ("apt", "E: Failed to fetch http://192.0.2.1/x.deb  Connection failed", "cannot be reached", 2),
        ("apt", "E: Release file for http://192.0.2.1/InRelease is not valid yet (invalid for another 9d)", "clock behind", 2),
        ("dnf", "Error: Failed to download metadata for repo 'baseos'", "cannot be reached", 2),
        (
            "apt",
            "E: Failed to fetch http://d/x  407  Proxy Authentication Required [IP: 192.0.2.1 3128]",
            "the proxy refuses this login",
            2,
        ),
        (
            "dnf",
            "Curl error (56): Failure when receiving data [Received HTTP code 407 from proxy after CONNECT]",
            "refuses this login",
            1,
        ),
        ("dnf", "Error: Status code: 407 for http://d/repodata/repomd.xml (IP: 192.0.2.1)", "refuses this login", 1),
        ("apt", "E: Failed to fetch http://d/x  401  Unauthorized [IP: 192.0.2.1 80]", "cannot be reached", 2),
        ("zypper", UNREACHABLE + NONE_REFRESHED, "cannot be reached", 2),
        ("zypper", UNREACHABLE.replace("Failed to connect", REFUSED) + NONE_REFRESHED, "refuses this login", 2),
        ("zypper", f" - Signature verification failed for repomd.xml\n{NONE_REFRESHED}", "signature is not trusted", 2),
        ("apt", "W: GPG error: NO_PUBKEY 0E98404D386FA1D9", "signature is not trusted", 2),
        ("apt", "E: Unmet dependencies. Try 'apt --fix-broken install'", "half installed", 1),
        ("apt", "E: Failed to fetch http://d/x  Connection failed\nE: Write error - write (28: No space left on device)", FULL, 1),
        ("dnf", f"Error Summary: {FULL}", FULL, 1),
    ],
)
def test_a_manager_that_does_not_work_is_said_once(name: str, said: str, reason: str, tries: int) -> None:
    manager = Manager(name, installed={"curl"}, fails=said)
    rows = settled(manager, name, "curl", "socat", "chrony", "conntrack")
    assert [row["name"] for row in rows.values() if row["status"] == "failed"] == ["package manager"]
    assert reason in rows["package manager"]["why"]
    assert rows["package manager"]["want"] == "installs socat, chrony, conntrack"
    assert len([command for command in manager.machine.said if command[0] == INSTALL[name]]) == tries, "not tried for each"


@pytest.mark.parametrize(
    ("name", "dead"),
    [
        ("apt", "E: Failed to fetch http://dead.example/InRelease  Could not connect to dead.example:80"),
        ("apt", "W: GPG error: http://dead.example InRelease: NO_PUBKEY 0E98404D386FA1D9"),
        ("apt", "E: The repository 'cdrom://[Debian 12] bookworm Release' does not have a Release file."),
        ("dnf", DNF_AWAY),
        ("dnf", DNF5_AWAY),
        ("zypper", UNREACHABLE + NONE_REFRESHED),
    ],
)
@pytest.mark.parametrize("wanted", [("socat",), ("socat", "chrony")])
def test_a_repository_that_is_away_keeps_nothing_from_being_installed_that_others_have(
    name: str, dead: str, wanted: tuple[str, ...]
) -> None:
    manager = OneAway(name, dead, known={"socat", "chrony"})
    rows = settled(manager, name, *wanted)
    assert {row["status"] for row in rows.values()} == {"changed"}
    assert all(dead.split(".")[0] in row["why"] or "cannot be reached" in row["why"] for row in rows.values()), rows
    assert len([command for command in manager.machine.said if command[0] == INSTALL[name]]) == 2, "at once"
    assert {row.get("why") for row in settled(manager, name, *wanted).values()} == {None}

    manager = OneAway(name, dead, known={"socat", "chrony"})
    rows = settled(manager, name, "none-such", *wanted)
    assert {row["status"] for row in rows.values() if row["name"] != "package none-such"} == {"changed"}
    assert "No match for argument: none-such; and before, " in rows["package none-such"]["why"]


def test_of_what_a_manager_says_the_line_is_told_that_gives_the_reason() -> None:
    said = f"Unable to detect release version (use '--releasever' to specify release version)\n{DNF_AWAY}"
    why = settled(OneAway("dnf", said), "dnf", "socat")["package manager"]["why"]
    assert why.startswith(
        "its repositories cannot be reached: - Curl error (6): Couldn't resolve host name for http://dead.example/"
    )


@pytest.mark.parametrize(("name", "dead"), [("apt", "E: Failed to fetch http://d/InRelease"), ("dnf", DNF_AWAY)])
def test_where_no_other_repository_has_anything_the_one_that_is_away_is_the_reason(name: str, dead: str) -> None:
    for wanted in (("socat",), ("socat", "chrony")):
        rows = settled(OneAway(name, dead, installed={"curl"}), name, "curl", *wanted)
        assert {label: row["status"] for label, row in rows.items()} == {"package curl": "ok", "package manager": "failed"}
        assert rows["package manager"]["why"].startswith("its repositories cannot be reached: ")


def test_one_package_that_is_not_to_be_had_says_what_was_the_matter_before() -> None:
    said = "E: The repository 'cdrom://[Debian 12] bookworm Release' does not have a Release file."
    row = settled(OneAway("apt", said), "apt", "none-such")["package none-such"]
    assert row["status"] == "failed"
    assert said in row["why"]


def test_what_keeps_the_second_try_from_working_is_the_reason_where_it_is_the_machines() -> None:
    manager = OneAway("apt", "E: Failed to fetch http://d/InRelease", fails=f"E: Write error - write (28: {FULL})")
    assert settled(manager, "apt", "socat")["package manager"]["why"].startswith(FULL)


def test_what_cannot_be_installed_without_a_repository_that_is_away_says_so() -> None:
    """The image was built with packages of -updates, and what others need of them is nowhere else."""
    broken = "E: Unable to correct problems, you have held broken packages."
    dead = "E: Failed to fetch http://updates.example/dists/jammy-updates/InRelease  Could not connect to updates.example:80"
    row = settled(OneAway("apt", dead, fails=broken), "apt", "socat", "chrony")["package manager"]
    assert row["status"] == "failed"
    assert f"{broken}; and before, its repositories cannot be reached: " in row["why"]
    assert row["why"].endswith(dead)


def test_dnf_leaves_out_one_repository_after_the_other() -> None:
    manager = OneAway("dnf", DNF_AWAY, DNF_AWAY.replace("dead", "gone"), known={"socat"})
    row = settled(manager, "dnf", "socat")["package socat"]
    assert (row["status"], "dead.example" in row["why"]) == ("changed", True)
    last = [command for command in manager.machine.said if command[0] == "dnf"][-1]
    assert last[1:3] == ("--disablerepo=dead", "--disablerepo=gone")


def test_zypper_installs_from_the_repositories_that_it_reaches() -> None:
    manager = Partly("zypper", known={"socat", "chrony"})
    rows = settled(manager, "zypper", "socat", "chrony")
    assert {(row["status"], "dead.example" in row["why"]) for row in rows.values()} == {("changed", True)}
    assert len([command for command in manager.machine.said if command[0] == "zypper"]) == 2, "at once"
    manager = Partly("zypper", known={"socat", "chrony"})
    rows = settled(manager, "zypper", "socat", "none-such", "chrony")
    assert [row["status"] for row in rows.values()] == ["changed", "failed", "changed"]
    assert "No match for argument: none-such" in rows["package none-such"]["why"]


@pytest.mark.parametrize(("count", "runs"), [(1, 2), (3, 2), (12, 3)])
def test_zypper_waits_for_repositories_of_which_it_reaches_none_no_more_often_than_it_has_to(count: int, runs: int) -> None:
    manager = NoneReached("zypper", installed={"curl"})
    rows = settled(manager, "zypper", "curl", *(f"package-{number}" for number in range(count)))
    assert {label: row["status"] for label, row in rows.items()} == {"package curl": "ok", "package manager": "failed"}
    assert rows["package manager"]["why"].startswith("its repositories cannot be reached: ")
    assert len([command for command in manager.machine.said if command[0] == "zypper"]) == runs, "each waits for all of them"


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
    assert proxy_login.UNAUTHORIZED in rows["package manager"]["why"]
    assert failure_reason(rows["package manager"]["why"]) is FailureKind.PROXY


LOCKS = [
    ("apt", 100, "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)"),
    ("zypper", 7, "System management is locked by the application with pid 812 (zypper)."),
    ("dnf", 200, "Error: RPMDB already locked by 812"),
    ("dnf", 1, "Failed to obtain rpm transaction lock. Another transaction is in progress."),
]


@pytest.mark.parametrize(("name", "code", "said"), LOCKS)
def test_a_lock_that_goes_is_waited_for(name: str, code: int, said: str) -> None:
    manager = Locked(name, code, said, tries=2)
    (row,) = os_packages.packages(manager.machine, ["socat"], name, 60, pause=0.0)
    assert (row["name"], row["status"]) == ("package socat", "changed")


@pytest.mark.parametrize(("name", "code", "said"), LOCKS)
def test_a_lock_that_stays_ends_the_item_alone_once_time_is_up(name: str, code: int, said: str) -> None:
    manager = Locked(name, code, said, tries=float("inf"))
    manager.installed.add("curl")
    rows = settled(manager, name, "curl", "socat", "chrony")
    assert {label: row["status"] for label, row in rows.items()} == {"package curl": "ok", "package manager": "failed"}
    assert "another package manager holds the lock" in rows["package manager"]["why"]
    assert said in rows["package manager"]["why"]


def test_dnf_is_told_not_to_wait_for_ever() -> None:
    manager = Manager("dnf", known={"socat"})
    settled(manager, "dnf", "socat")
    (command,) = [command for command in manager.machine.said if command[0] == "dnf"]
    assert command.index("--setopt=exit_on_lock=True") < command.index("install")


@pytest.mark.parametrize(
    ("there", "status", "after"),
    [({"curl-minimal"}, "ok", {"curl-minimal"}), ({"curl"}, "ok", {"curl"}), (set(), "changed", {"curl"})],
)
def test_of_packages_that_serve_alike_the_one_that_is_there_will_do(there: set[str], status: str, after: set[str]) -> None:
    manager = Manager("dnf", installed=there, known={"curl"})
    assert settled(manager, "dnf", "curl or curl-minimal")["package curl or curl-minimal"]["status"] == status
    assert manager.installed == after
    lacking = Manager("dnf", known={"socat"})
    rows = settled(lacking, "dnf", "curl or curl-minimal", "socat")
    assert "No match for argument: curl" in rows["package curl or curl-minimal"]["why"]
    assert rows["package socat"]["status"] == "changed"


def test_where_the_first_is_not_to_be_had_the_other_is_installed() -> None:
    """RHEL 8 has no iptables-nft."""
    manager = Manager("dnf", known={"iptables", "socat"})
    rows = settled(manager, "dnf", "iptables-nft or iptables", "socat")
    assert {row["status"] for row in rows.values()} == {"changed"}
    assert manager.installed == {"iptables", "socat"}
    manager = Manager("dnf", known={"iptables", "iptables-nft"})
    settled(manager, "dnf", "iptables-nft or iptables")
    assert manager.installed == {"iptables-nft"}


def test_modules_of_the_kernel_that_runs_come_before_those_of_the_newest() -> None:
    ours = f"kernel-modules-extra-{os.uname().release}"
    manager = Manager("dnf", known={ours, "kernel-modules-extra", "socat"})
    settled(manager, "dnf", "kernel-modules-extra", "socat")
    assert manager.installed == {ours, "socat"}

    gone = Manager("dnf", known={"kernel-modules-extra", "socat"})
    rows = settled(gone, "dnf", "kernel-modules-extra", "socat")
    assert {row["status"] for row in rows.values()} == {"changed"}
    assert gone.installed == {"kernel-modules-extra", "socat"}, "repositories keep no kernel for ever"
    assert settled(Manager("dnf"), "dnf", "kernel-modules-extra")["package kernel-modules-extra"]["why"]


@pytest.mark.parametrize("status", ["install reinstreq half-installed", "install ok half-configured", "deinstall ok config-files"])
def test_a_package_that_was_killed_on_its_way_is_not_there(status: str) -> None:
    manager = Manager("apt", known={"socat"})
    half = f"socat\t{status}\t1.7"
    whole = manager.query
    manager.machine.tools["dpkg-query"] = lambda command: whole(command) if manager.installed else (0, half, "")
    row = settled(manager, "apt", "socat")["package socat"]
    assert (row["status"], row["after"]) == ("changed", "1.0")


def test_check_mode_installs_nothing() -> None:
    manager = Manager("dnf", known={"socat"})
    manager.machine.check_mode = True
    assert settled(manager, "dnf", "socat")["package socat"]["status"] == "differs"
    assert [command[0] for command in manager.machine.said] == ["rpm"]


def test_a_foreign_distribution_is_no_place_for_any_manager() -> None:
    rows = os_packages.packages(Machine({}), ["socat"], "", 0)
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
    [((1, OWED, ""), True), ((0, NOT_OWED, ""), False)],
)
def test_dnf_says_whether_what_was_installed_waits_for_a_reboot(tmp_path: Path, answer: tuple[int, str, str], asks: bool) -> None:
    machine = Machine({"dnf": lambda _: answer})
    assert os_packages.asks_for_reboot(machine, "dnf", str(tmp_path)) is asks
    assert machine.said == [("dnf", "--setopt=exit_on_lock=True", "needs-restarting", "-r")]


def test_a_dnf_that_has_no_such_command_does_not_say_no(tmp_path: Path) -> None:
    for machine in (Machine({"dnf": lambda _: (1, "", NO_PLUGIN)}), Machine({})):
        with pytest.raises(Unavailable, match="install dnf-plugins-core"):
            os_packages.asks_for_reboot(machine, "dnf", str(tmp_path))


def test_whether_a_reboot_is_owed_is_asked_again_while_another_dnf_runs(tmp_path: Path) -> None:
    answers = [(200, "", "Error: metadata already locked by 812"), (0, NOT_OWED, "")]
    machine = Machine({"dnf": lambda _: answers.pop(0)})
    assert not os_packages.asks_for_reboot(machine, "dnf", str(tmp_path), pause=0.0)
    assert answers == []


@pytest.mark.parametrize(("manager", "flag"), [("apt", "reboot-required"), ("zypper", "reboot-needed")])
def test_others_leave_a_flag(tmp_path: Path, manager: str, flag: str) -> None:
    machine = Machine({})
    assert not os_packages.asks_for_reboot(machine, manager, str(tmp_path))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / flag).touch()
    assert os_packages.asks_for_reboot(machine, manager, str(tmp_path))
    assert os_packages.asks_for_reboot(machine, "", str(tmp_path)), "also where nobody knows the distribution"
    assert machine.said == []
