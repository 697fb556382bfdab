"""The table of published floors: the most specific entry wins, claims and unknown GPUs give no floor, stale dates are reported."""

import datetime

import pytest

from workflows.spec import floor_table
from workflows.spec.floor_table import PublishedFloor

DAY = datetime.date(2026, 9, 25)


def entry(value: float, **keys: object) -> PublishedFloor:
    fields = {"gpu": "H100", "operation": "all_reduce", "unit": "GB/s", "provenance": "F", "source": "https://x.org", "date": DAY}
    return PublishedFloor.model_validate(fields | {"value": value} | keys)


TABLE = [
    entry(100),
    entry(200, nodes=2),
    entry(300, nodes=2, fabric="infiniband"),
    entry(400, nodes=2, fabric="infiniband", nccl="2.26"),
    entry(410, nodes=2, fabric="infiniband", nccl="2.26", date=datetime.date(2026, 1, 1)),
    entry(999, nodes=4, provenance="C"),
]


@pytest.mark.parametrize(
    ("nodes", "fabric", "nccl", "floor"),
    [
        (1, "", "", 100),
        (2, "roce", "", 200),
        (2, "infiniband", "2.25.1", 300),
        (2, "infiniband", "2.26.2", 400),
        (2, "infiniband", "2.260", 300),
        (4, "infiniband", "2.26.2", 100),
    ],
)
def test_the_most_specific_and_newest_entry_wins(nodes: int, fabric: str, nccl: str, floor: float) -> None:
    chosen = floor_table.resolve("H100", "all_reduce", nodes=nodes, fabric=fabric, nccl=nccl, table=TABLE)
    assert chosen is not None
    assert chosen.floor == floor


def test_a_measurement_is_demanded_in_part_and_a_claim_not_at_all() -> None:
    assert entry(400, provenance="M").floor == 360
    assert floor_table.resolve("H100", "all_reduce", nodes=1, table=[entry(400, provenance="C")]) is None
    assert floor_table.resolve("X999", "all_reduce", nodes=1) is None


def test_every_packaged_entry_has_a_public_source_and_a_date() -> None:
    assert {floor.gpu for floor in floor_table.published()} >= {"A100-80GB", "H100", "H200"}
    assert not any(floor.is_stale(DAY) for floor in floor_table.published())
    newest = max(floor.date for floor in floor_table.published())
    assert all(floor.is_stale(newest + datetime.timedelta(days=floor_table.STALE_DAYS + 1)) for floor in floor_table.published())


def test_the_default_of_the_spec_comes_from_the_table() -> None:
    floor = floor_table.resolve("H200", "all_reduce", nodes=1)
    assert floor is not None
    assert (floor.floor, floor.sentence) == (
        431,
        "431 GB/s: shipped floor of https://github.com/Azure/azurehpc-health-checks/blob/main/conf/nd96isr_h200_v5.conf, "
        "read 2026-09-25",
    )


def test_shares_of_the_own_all_reduce_are_those_of_the_table() -> None:
    shares = {name: floor_table.relative(name) for name in ("all_gather", "alltoall", "broadcast")}
    assert shares == {"all_gather": 0.5, "alltoall": 0.45, "broadcast": 0.0}
    # figures of other fabrics are in the table, and fit no spec
    assert floor_table.resolve("H100", "alltoall", nodes=2, fabric="infiniband") is None
    assert floor_table.resolve("H100", "alltoall", nodes=2, fabric="efa") is not None
