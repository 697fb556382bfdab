"""The examples and the starter: each loads, has no issue but the warnings that the README names, and shows what it says."""

import re
import time
from pathlib import Path

import pytest

from workflows import catalog, examples, spec
from workflows.spec.starter import starter

README = Path(examples.__file__).with_name("README.md").read_text(encoding="utf-8")


def documented() -> dict[str, list[str]]:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|[^|]*\| ([^|]*) \|$", README, re.MULTILINE)
    return {name: re.findall(r"P\d\d", warnings) for name, warnings in rows}


def test_every_example_is_documented() -> None:
    assert set(documented()) == set(examples.names()) == {"single-node", "h200-16", "multi-rack-232", "dra", "three-hosts"}


@pytest.mark.parametrize("name", examples.names())
def test_an_example_has_the_documented_warnings_and_no_error(name: str) -> None:
    issues = catalog.check(spec.load(examples.path(name)), catalog.load())
    assert [issue.rule for issue in issues if issue.severity == "error"] == []
    assert [issue.rule for issue in issues] == documented()[name]


def test_the_starter_works_as_it_stands() -> None:
    cluster = spec.load(starter())
    assert len(cluster.gpu_machines) == 4
    # with Slurm, which holds all GPUs, two tests of GPU pods are left out
    assert [issue.rule for issue in catalog.check(cluster, catalog.load())] == ["P02", "P15", "P29", "P29"]


def test_every_line_of_the_starter_that_can_be_turned_on_works() -> None:
    lines = starter().splitlines()
    turned_on = [re.sub(r"^# ((?:proxy|sharing|delivery|approvals|schedule|events):| {2,})", r"\1", line) for line in lines]
    text = "\n".join(re.sub(r"^  # (registration_address|http_proxy\w*):", r"  \1:", line) for line in turned_on) + "\n"
    assert text.count("#") < starter().count("#")
    cluster = spec.load(text)
    assert cluster.proxy is not None
    assert (cluster.proxy.user, cluster.ssh.http_proxy_user) == ("bringup", "bringup")
    assert cluster.sharing.profile == "1g.18gb"
    assert cluster.approvals[0].before == "validation"
    assert cluster.registration_address == "192.0.2.10"
    assert cluster.delivery.argo_cd is not None
    assert cluster.schedule is not None
    assert (cluster.schedule.timezone, cluster.events[0].name) == ("Europe/Berlin", "machine-replaced")


def test_an_unknown_example_is_refused_with_the_names() -> None:
    with pytest.raises(KeyError, match="there are dra, h200-16"):
        examples.path("h2000")


def test_three_hosts_are_the_ones_of_the_host_tests() -> None:
    cluster = spec.load(examples.path("three-hosts"))
    assert [(one.name, one.address) for one in cluster.machines] == [
        ("n000", "10.77.0.1"),
        ("n001", "10.77.0.2"),
        ("n002", "10.77.0.3"),
    ]
    assert cluster.enabled_stages() == ("os_prep",)


def test_the_large_example_has_its_racks() -> None:
    cluster = spec.load(examples.path("multi-rack-232"))
    assert len(cluster.gpu_machines) == 232
    assert {one.rack for one in cluster.gpu_machines} == {f"rack0{n}" for n in range(1, 9)}
    (odd,) = [one for one in cluster.gpu_machines if one.gpus != 8]
    assert (odd.name, odd.gpus, odd.address, odd.rack) == ("rack03-node17", 7, "10.33.3.17", "rack03")


def large() -> str:
    text = examples.path("multi-rack-232").read_text(encoding="utf-8")
    for old, new in (
        ("rack[01-08]-node[01-29]", "rack[001-625]-node[01-16]"),
        ('{pattern: "10.33.{1}.{2}"}', "{start: 10.64.0.1}"),
        ("10.128.0.0/14", "10.128.0.0/9"),
        ("rack03-node17", "rack003-node14"),
        ("225/232", "97%"),
    ):
        assert old in text
        text = text.replace(old, new)
    return text


def seconds_to_load(text: str) -> float:
    """Return the CPU time of the quickest of three readings of a spec."""

    def once() -> float:
        start = time.process_time()
        spec.load(text)
        return time.process_time() - start

    return min(once() for _ in range(3))


def test_ten_thousand_nodes_by_range_cost_little_more_than_a_small_cluster() -> None:
    assert len(spec.load(large()).gpu_machines) == 10_000
    # with 526 times as many machines; measured: 110 times as long
    assert seconds_to_load(large()) < 300 * seconds_to_load(examples.path("h200-16").read_text(encoding="utf-8"))


def test_ten_thousand_addresses_one_by_one_cost_little_more_than_their_lines() -> None:
    names = spec.expand("rack[001-625]-node[01-16]")
    rows = "\n".join(f"      {name}: 10.64.{n // 250}.{n % 250 + 1}" for n, name in enumerate(names))
    text = large().replace("{start: 10.64.0.1}", f"\n     map:\n{rows}")
    assert spec.load(text).gpu_machines[-1].address == "10.64.39.250"
    assert seconds_to_load(text) < 20 * seconds_to_load(large())
