"""By which interfaces a machine is reached, and who has a connection open to it, out of the kernel's tables."""

from pathlib import Path

from ansible.module_utils.nodeprofile import reachability

from tests.unit.playbooks.machine import Machine

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue\n"
TCP = (
    "   0: 00000000:0016 00000000:0000 0A 0:0\n   1: 0B000A0A:0016 FEFF4D0A:C350 01 0:0\n   2: 0B000A0A:C351 01020304:01BB 01 0:0\n"
)
TCP6 = (
    "   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 0:0\n"
    "   1: 0000000000000000FFFF00000B000A0A:0016 0000000000000000FFFF00000500A8C0:C350 01 0:0\n"
    "   2: B80D0120000000000000000001000000:0016 B80D0120000000000000000002000000:C350 01 0:0\n"
)


def test_callers_are_the_other_sides_of_connections_to_a_port_that_listens(tmp_path: Path) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/tcp").write_text(HEAD + TCP)
    (tmp_path / "proc/net/tcp6").write_text(HEAD + TCP6)
    assert reachability.client_addresses(str(tmp_path)) == {"10.77.255.254", "192.168.0.5", "2001:db8::2"}, (
        "not whom it called itself"
    )


def test_nothing_is_known_where_nothing_is_told(tmp_path: Path) -> None:
    assert reachability.access_links(Machine({}), "10.0.0.1", str(tmp_path)) == set()
    assert reachability.client_addresses(str(tmp_path)) == set()
