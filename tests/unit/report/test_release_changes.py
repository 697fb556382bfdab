"""The report of an upgrade says from which release to which, and how many hosts."""

import msgspec
import pytest

from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.canonical import canonical
from steps.contract.runs.evidence import Evidence
from steps.report import assembly, model, source
from steps.report.html import html
from steps.report.text import text

OLD, NEW = "v1.35.6+rke2r1", "v1.35.7+rke2r1"


def host(name: str, *, changed: int = 3, kept: str = OLD, version: str = NEW) -> dict[str, object]:
    return {"node": name, "outcome": "ok", "changed": changed, "facts": {"version": version, "kept": kept}}


def reported(store: Store, operation: str, *attempts: list[dict[str, object]]) -> model.Report:
    header = run_records.decode_header(store.read(run_records.header_key("r1")) or b"")
    store.replace(run_records.header_key("r1"), canonical(msgspec.structs.replace(header, operation=operation)))
    for rows in attempts:
        record = Evidence(
            run="r1", stage="rke2", task="servers", verb="play", shard=0, attempt=1, input_digest="sha256:0", engine="local",
            started=1.0, finished=2.0, observation={"nodes": rows},
        )  # fmt: skip
        store.write_evidence(record, canonical)
    return assembly.build(source.read(store, "r1"))


def test_an_upgrade_says_from_which_release_to_which(store: Store) -> None:
    rows = [host("sv1"), host("sv2"), host("sv3", version=OLD), host("gpu1", kept="v1.35.5+rke2r1")]
    report = reported(store, "upgrade", rows)
    said = f"RKE2 {OLD} → {NEW} on 2 hosts; RKE2 v1.35.5+rke2r1 → {NEW} on 1 host"
    assert report.upgraded == said
    assert f"\noperation upgrade: {said}\n" in text(report)
    assert f"upgrade: {said}" in html(report)


def test_a_host_that_an_earlier_attempt_changed_counts(store: Store) -> None:
    assert reported(store, "upgrade", [host("sv1", version="")], [host("sv1", changed=0)]).upgraded.endswith("on 1 host")


@pytest.mark.parametrize(("operation", "changed"), [("upgrade", 0), ("add-node gpu017", 3), ("", 3)])
def test_what_was_no_upgrade_says_none(store: Store, operation: str, changed: int) -> None:
    report = reported(store, operation, [host("sv1", changed=changed)])
    assert report.upgraded == ""
    assert "→" not in text(report)


def test_a_rollback_says_which_release_runs_again_and_what_etcd_was_set_back_to(store: Store) -> None:
    rows = [host(name, kept=OLD, version=OLD) for name in ("sv1", "sv2")]
    rows[0]["facts"] = {"version": OLD, "kept": OLD, "restored": "/snapshots/before"}
    report = reported(store, "rollback", [*rows, host("gpu1", changed=0, kept=OLD, version=OLD), host("gpu2")])
    assert report.upgraded == f"RKE2 {OLD} again on 2 hosts; etcd set back to /snapshots/before on sv1"
    assert f"operation rollback: {report.upgraded}" in text(report)
