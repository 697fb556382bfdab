"""`run --reuse` says at once what cannot be reused, before anything of the new run exists."""

from typing import Any

import msgspec
import pytest

from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.canonical import canonical

UID = "11111111-1111-4111-8111-111111111111"
HEADER = run_records.Header(
    run="old", engine="local", plan="p", cluster="three-hosts", owner="o", revision="1", target_uid=UID, simulated=True
)


def test_an_unknown_run_is_a_usage_error(machine: Any) -> None:
    done = machine.call("run", "three-hosts", "--reuse", "nobody")
    assert done.code == 64
    assert "there is no run nobody to reuse" in done.err
    assert machine.runs == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [({}, "was a rehearsal, this is a run on real hosts"), ({"cluster": "other"}, "is about cluster other")],
)
def test_a_run_about_something_else_is_a_usage_error(machine: Any, fields: dict[str, Any], said: str) -> None:
    told = {**{name: getattr(HEADER, name) for name in HEADER.__struct_fields__}, **fields}
    Store(machine.home / "store").write(run_records.header_key("old"), canonical(run_records.Header(**told)))
    done = machine.call("run", "three-hosts", "--reuse", "old")
    assert done.code == 64
    assert said in done.err
    assert [path.name for path in machine.runs] == ["old"]


def test_a_run_that_never_reached_its_cluster_is_no_obstacle(machine: Any) -> None:
    """The command fails only at a later step, for lack of a secret (`known_hosts`), and not because of the run to reuse."""
    store = Store(machine.home / "store")
    store.write(run_records.header_key("old"), canonical(msgspec.structs.replace(HEADER, simulated=False, target_uid="")))
    done = machine.call("run", "three-hosts", "--reuse", "old")
    assert done.out == "run old never reached its cluster: nothing of it is reused\n"
    assert "known_hosts" in done.err
