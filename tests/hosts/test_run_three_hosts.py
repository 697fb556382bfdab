"""The main job on real input: `bringup run three-hosts --only os_prep` on real SSH hosts, one of them broken on purpose."""

from pathlib import Path
from typing import Any

from bringup_command import Command


def test_bare_hosts_pass_a_broken_one_is_set_aside_by_name_and_comes_back(up: Any, tmp_path: Path) -> None:
    lab = up(3)
    bringup = Command(lab.folder, tmp_path / "home")
    lab.hosts[2].unplug()

    first = bringup.call("run", "three-hosts", "--only", "os_prep")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "os_prep: pass: 2 of 3 nodes passed all gates; set aside: n002:" in first.stdout
    report = bringup.report()
    assert [entry["node"] for entry in report["quarantine"]] == ["n002"]
    assert {node["name"]: node["gates"]["os_prep/nodes"] for node in report["nodes"]} == {
        "n000": "pass",
        "n001": "pass",
        "n002": "fail",
    }
    assert any("n000: " in change for attempt in report["attempts"] for change in attempt["changes"])
    stored = tmp_path / "home" / "store" / "runs" / report["run"]
    assert bringup.call("verify", stored).returncode == 0
    private = lab.key.read_text().splitlines()[1]
    assert not [path for path in stored.rglob("*") if path.is_file() and private in path.read_text(errors="replace")]

    lab.hosts[2].plug()
    again = bringup.call("run", "three-hosts", "--only", "os_prep")
    assert again.returncode == 0, again.stdout + again.stderr
    report = bringup.report()
    changed = [change for attempt in report["attempts"] if attempt["task"] == "play" for change in attempt["changes"]]
    assert [change.split(":")[0] for change in changed] == ["n002"], "only the host that was away is still to be changed"


def test_two_broken_nodes_break_the_quorum_and_a_missing_key_is_a_usage_error(up: Any, tmp_path: Path) -> None:
    lab = up(3)
    home = tmp_path / "home"
    for host in lab.hosts[1:]:
        host.unplug()
    failed = Command(lab.folder, home).call("run", "three-hosts", "--only", "os_prep")
    assert failed.returncode == 65, failed.stdout + failed.stderr
    assert "0 of 2 agents pass, 1 needed" in failed.stdout

    lost = Command(tmp_path, home).call("run", "three-hosts", "--only", "os_prep")
    assert lost.returncode == 64
    assert "secret ssh_key" in lost.stderr or "secret known_hosts" in lost.stderr
