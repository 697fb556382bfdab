"""Listeners on the ports of RKE2: other programs are named, and RKE2 itself is accepted however it was set up."""

from pathlib import Path

import pytest
from ansible.module_utils.nodeprofile import port_listeners

from tests.unit.playbooks.machine import Machine
from workflows.catalog import profile

WANTED = ["6443", "9345", "10250"]
CONFIG, DROP_IN = "etc/rancher/rke2/config.yaml", "etc/rancher/rke2/config.yaml.d/50-site.yaml"
HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   0: 00000000:{:04X} 00000000:0000 {} 00000000:00000000 00:00000000 00000000     0        0 123456789 1 0 100 0 0 10 0\n"
KUBELET = HEADER + ROW.format(10250, "0A")


def seen(root: Path, table: str, files: tuple[str, ...] = (), server: tuple[str, str] | None = None) -> list[tuple[str, str]]:
    """Status and observation of a machine with these sockets and files; `server`: the state of rke2-server and of its unit file."""
    for name, text in {"proc/net/tcp": table, **dict.fromkeys(files, "cni: canal\n")}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "run/systemd/system").mkdir(parents=True)
    state, kept = server or ("inactive", "")
    said = f"Id=rke2-server.service\nActiveState={state}\nUnitFileState={kept}\n\nId=rke2-agent.service\nActiveState=inactive\n"
    rows = port_listeners.ports(Machine({"systemctl": lambda _: (0, said, "")}), WANTED, str(root))
    return [(row["status"], row["after"]) for row in rows]


@pytest.mark.parametrize(
    ("files", "server"),
    [
        ((CONFIG,), None),
        ((), ("active", "enabled")),
        ((), ("active", "disabled")),
        ((), ("activating", "enabled")),
        ((DROP_IN,), ("active", "enabled")),
        ((), ("failed", "enabled")),
    ],
    ids=["its file", "a quick start", "started by hand", "on its way up", "Rancher's", "crashed, and its containers live on"],
)
def test_rke2_holds_its_own_ports(tmp_path: Path, files: tuple[str, ...], server: tuple[str, str] | None) -> None:
    assert seen(tmp_path, KUBELET, files, server) == []


@pytest.mark.parametrize(
    ("files", "server"),
    [((), None), ((), ("inactive", "disabled")), ((DROP_IN,), None)],
    ids=["bare", "installed, never started", "the site's settings for an RKE2 to come"],
)
def test_somebody_else_on_a_port_is_said(tmp_path: Path, files: tuple[str, ...], server: tuple[str, str] | None) -> None:
    assert seen(tmp_path, KUBELET, files, server) == [("failed", "10250 by socket 123456789")]


@pytest.mark.parametrize(
    ("port", "of_server", "of_agent"),
    [
        (2379, "failed", "ok"),
        (9345, "failed", "ok"),
        (10258, "failed", "ok"),
        (10259, "failed", "ok"),
        (6444, "ok", "failed"),
        (6443, "failed", "failed"),
        (10248, "failed", "failed"),
        (5432, "ok", "ok"),
    ],
)
def test_a_role_wants_its_own_ports_alone(tmp_path: Path, port: int, of_server: str, of_agent: str) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/tcp").write_text(HEADER + ROW.format(port, "0A"))
    base = profile.of_system("debian")
    for is_server, status in ((True, of_server), (False, of_agent)):
        wanted = port_listeners.ports_of_role(base | {"server": is_server})
        (row,) = port_listeners.ports(Machine({}), wanted, str(tmp_path))
        assert row["status"] == status


def test_a_connection_and_another_port_are_no_matter(tmp_path: Path) -> None:
    table = HEADER + ROW.format(10250, "01") + ROW.format(22, "0A")
    assert seen(tmp_path, table) == [("ok", "free")]


def test_a_systemd_that_does_not_answer_leaves_the_other_items_alone(tmp_path: Path) -> None:
    for name in ("proc/net", "run/systemd/system"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/net/tcp").write_text(KUBELET)
    machine = Machine({"systemctl": lambda _: (1, "", "Failed to connect to bus")})
    (row,) = port_listeners.ports(machine, WANTED, str(tmp_path))
    assert row["status"] == "failed"
