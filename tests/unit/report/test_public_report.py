"""The public report names no host, address, place or person, in whatever form a sentence says it."""

import time

import msgspec
import pytest

from steps.report import model, public_report, source
from steps.report.assembly import build

RUN, REUSED = "lab-17-20261121-101500-3f2a", "nightly-3"


def _report(stored: source.StoredRun, sentence: str) -> model.Report:
    made = build(stored)
    names = ("cp1", "GPU001", "gpu002", "n7.dc1.example.org", "gpu003", "sv1", "4u-box")
    nodes = tuple(
        model.HostReport(
            name=name, group="hgx-east", rack=f"r0{number}", places=(f"L{number}", "su-alpha"), gates={"os_prep/nodes": "pass"}
        )
        for number, name in enumerate(names, 1)
    )
    attempts = (msgspec.structs.replace(made.attempts[0], reused=REUSED), *made.attempts[1:])
    approvals = (
        msgspec.structs.replace(made.approvals[0], approver="grace@example.org"),
        msgspec.structs.replace(made.approvals[0], approver="ada"),
    )
    return msgspec.structs.replace(
        made, run=RUN, cluster="helios-prod", nodes=nodes, attempts=attempts, approvals=approvals, sentence=sentence
    )


HIDDEN = [
    ("etcd-cp1 is not ready", "etcd-node 1 is not ready"),
    ("pod nvidia-driver-gpu001 restarts", "pod nvidia-driver-node 2 restarts"),
    ("GPU001", "node 2"),
    ("gpu001_x and Gpu002", "node 2_x and node 3"),
    ("cp1.cluster.example.org:6443", "node 1:6443"),
    ("n7.dc1.example.org, n7 and n7.dc1", "node 4, node 4 and node 4"),
    ("cp1-gpu001-x", "node 1-node 2-x"),
    ("cp1.", "node 1."),
    ("etcd-cp.cp1.b", "etcd-cp.node 1"),
    ("cp1. Then", "node 1. Then"),
    ("gpu[001-016] wait", "several nodes wait"),
    ("gpu0011 is no host of ours", "gpu0011 is no host of ours"),
    ("fd00::1: timed out", "[address]: timed out"),
    ("[fd00::1]:6443", "[[address]]:6443"),
    ("eth0:fe80::a:b%eth0/64 up", "eth[address] up"),
    ("2001:db8::10", "[address]"),
    ("2001:db8:0:1:2:3:4:5/64", "[address]"),
    ("::ffff:10.77.0.3", "[address]"),
    ("10.77.0.3:22", "[address]:22"),
    ("at 10:15:00 std::vector :: x", "at 10:15:00 std::vector :: x"),
    ("pulls registry.example.org:5000/team/app:1.2 late", "pulls [domain] late"),
    ("cp1:/export and 4u-box-4u-box", "node 1:[path] and node 7-node 7"),
    ("db.prod.acme and mirror.lan and a.b.de", "[domain] and [domain] and [domain]"),
    ("port GUID 0x946dae0300cde72c", "port GUID [hardware id]"),
    ("946d:ae03:00cd:e72c", "[hardware id]"),
    ("946dae0300cde72c", "[hardware id]"),
    ("b8:ce:f6:0a:1b:2c", "[hardware id]"),
    ("GPU-5fd4f087-86f3-7a43-b711-4771313afc50", "[hardware id]"),
    ("/data is full", "[path] is full"),
    ("(/data) /mnt/a/b.txt", "([path]) [path]"),
    ("rack r01 leaf L3", "rack [rack] leaf [place]"),
    ("rack r99, leaf: sw-17", "rack [place], leaf: [place]"),
    ("in su-alpha of HGX-east", "in [place] of [group]"),
    ("the cluster Helios-prod", "the cluster cluster"),
    (f"run {RUN} reused {REUSED}", "run run reused run"),
    ("as in lab-20261101-000000-aaaa", "as in run"),
    ("ada approved after grace@example.org", "approver 2 approved after approver 1"),
    ("eve is not among the approvers (bob, mallory)", "eve is not among the approvers"),
    ("mail hal@example.org", "mail [mail]"),
    ("pulls oci://registry.example.org/gpu002/x", "pulls [url]"),
]


@pytest.mark.parametrize(("said", "shown"), HIDDEN, ids=[said for said, _ in HIDDEN])
def test_a_sentence_for_outsiders(stored: source.StoredRun, said: str, shown: str) -> None:
    assert public_report.public(_report(stored, said)).sentence == shown


@pytest.mark.parametrize(
    "said",
    [
        "16 of 16 nodes: advertise nvidia.com/gpu × 1 for each GPU",
        "/readyz is ok, 3 of 3 etcd members are healthy, rke2-coredns-rke2-coredns, rke2-canal are complete",
        "16 of 16 nodes: Ready with v1.35.7+rke2r1",
        "378.84 to 381.62 GB/s at the largest size, GPUDirect RDMA on 512 of 512 channels",
        "expected driver.rdma.useHostMofed; next: run rke2-uninstall.sh",
        "gpu_operator: feature.node.kubernetes.io/pci-15b3.present is missing at 10:15:00",
        "evidence sha256:" + "0123456789abcdef" * 4,
    ],
)
def test_ordinary_sentences_stay(stored: source.StoredRun, said: str) -> None:
    assert public_report.public(_report(stored, said)).sentence == said


def test_own_words_stay_even_where_a_group_or_cluster_has_such_a_name(stored: source.StoredRun) -> None:
    shown = public_report.public(msgspec.structs.replace(_report(stored, ""), cluster="gang"))
    assert [stage.id for stage in shown.stages] == ["os_prep", "gang", "slurm"]
    assert shown.nodes[0].gates == {"os_prep/nodes": "pass"}


def test_nothing_of_a_whole_report_leaks(stored: source.StoredRun) -> None:
    whole = msgspec.json.encode(public_report.public(_report(stored, f"{RUN}: cp1 in r02"))).decode().lower()
    for word in ("cp1", "gpu00", "hgx", "r02", "su-alpha", "helios", "lab-17", REUSED, "grace", '"ada', "ada ", "example.org"):
        assert word not in whole, word


def test_approvers_are_numbered_in_their_order(stored: source.StoredRun) -> None:
    shown = public_report.public(_report(stored, ""))
    assert [approval.approver for approval in shown.approvals] == ["approver 1", "approver 2"]


def test_the_rehearsal_is_no_person(stored: source.StoredRun) -> None:
    made = _report(stored, "the rehearsal itself approved")
    itself = msgspec.structs.replace(made.approvals[0], approver="rehearsal")
    shown = public_report.public(msgspec.structs.replace(made, approvals=(itself,)))
    assert (shown.approvals[0].approver, shown.sentence) == ("rehearsal", "the rehearsal itself approved")


def test_ten_thousand_nodes_with_reasons_are_quick(stored: source.StoredRun) -> None:
    nodes = tuple(_in_rack(number) for number in range(10_000))
    began = time.process_time()
    shown = public_report.public(msgspec.structs.replace(build(stored), nodes=nodes))
    assert time.process_time() - began < 5.0
    assert shown.nodes[9_999].reason == "node 10000: 7 of 8 GPUs on [place]"


def _in_rack(number: int) -> model.HostReport:
    rack, leaf = f"rack{number // 16:03d}", f"leaf{number // 8:04d}"
    name = f"{rack}-node{number:05d}"
    return model.HostReport(name=name, group="hgx", rack=rack, gates={}, places=(leaf,), reason=f"{name}: 7 of 8 GPUs on {leaf}")
