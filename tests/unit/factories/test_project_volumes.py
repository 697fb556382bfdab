"""Volumes of projects: where their bytes lie, how many they are, and which of them a rebuild refuses to lose."""

from typing import Any, TypeVar

import msgspec
import pytest

from steps.errors import StepError, Temporary
from tests.unit.factories.conftest import STARTER
from workflows.app.factories import project_volumes, rebuild_refusals
from workflows.app.factories.rebuild_refusals import Overrides, Refusal
from workflows.app.factories.unplanned_contents import UnplannedContents
from workflows.spec import FactorySpec, SpecErrors, load_factory

T = TypeVar("T")
AFFINITY = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["factory03"]}
ON_NODE = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [AFFINITY]}]}}}
NFS_CSI = {"csi": {"driver": "nfs.csi.k8s.io", "volumeAttributes": {"server": "nas.example.org", "share": "/srv"}}}


NODE = {
    "metadata": {"name": "factory03", "annotations": {"projectcalico.org/IPv4Address": "10.30.0.13/24", "note": "10, x"}},
    "spec": {"podCIDRs": ["fd42::/64"]},
    "status": {"addresses": [{"type": "InternalIP", "address": "10.20.0.13"}, {"type": "ExternalIP", "address": "192.0.2.13"}]},
}
SERVICE = {
    "spec": {"clusterIP": "10.43.0.9", "clusterIPs": ["10.43.0.9", "fd43::9"], "externalIPs": ["192.0.2.20"]},
    "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.30"}, {"hostname": "lb.example.org"}]}},
}
ADDRESSES = {
    "nas.example.org": ("203.0.113.7",),
    "cache.example.org": ("203.0.113.8", "192.0.2.20"),
    "alias.example.org": ("::ffff:10.20.0.12",),
    "factory01": ("198.51.100.1",),
}
"""Stand-in for a name server."""


def resolve(name: str) -> tuple[str, ...]:
    return ADDRESSES.get(name, ())


class ClaimedCluster:
    """Stand-in for the API of a factory with claims, each with its volume; kubelets tell sizes, or raise `silence`."""

    def __init__(self, volumes: dict[str, dict[str, Any]], used: dict[str, int], silence: StepError | None = None) -> None:
        self._used, self._silence = used, silence
        requests = {"requests": {"storage": "5Gi"}}
        claims = [(name.split("/"), {"volumeName": f"v-{name}", "resources": requests}) for name in volumes]
        self._lists = {
            "/api/v1/persistentvolumeclaims": [
                {"metadata": {"namespace": space, "name": claim}, "spec": spec} for (space, claim), spec in claims
            ],
            "/api/v1/persistentvolumes": [{"metadata": {"name": f"v-{name}"}, "spec": spec} for name, spec in volumes.items()],
            "/api/v1/nodes": [NODE],
            "/api/v1/services": [SERVICE, {"spec": {"clusterIP": "None"}}],
        }
        self._lists["/api/v1/persistentvolumeclaims"].append({"metadata": {"namespace": "software", "name": "unbound"}})

    def retain(self, name: str, claim: str, volume: dict[str, Any], policy: str = "Retain") -> None:
        """Add a volume without a claim, which had `claim` before."""
        space, _, of_claim = claim.partition("/")
        reference = {"claimRef": {"namespace": space, "name": of_claim}} if claim else {}
        spec = {"persistentVolumeReclaimPolicy": policy, **reference, **volume}
        self._lists["/api/v1/persistentvolumes"].append({"metadata": {"name": name}, "spec": spec})

    def list(self, path: str, kind: type[T]) -> tuple[T, ...]:
        """Return a collection."""
        return tuple(msgspec.convert(item, kind) for item in self._lists[path])

    def get(self, path: str, kind: type[T]) -> T | None:
        """Return the figures of the kubelet."""
        assert path == "/api/v1/nodes/factory03/proxy/stats/summary"
        if self._silence:
            raise self._silence
        figures = [
            {"name": "data", "usedBytes": size, "pvcRef": {"namespace": name.split("/")[0], "name": name.split("/")[1]}}
            for name, size in self._used.items()
        ]
        return msgspec.convert({"node": {}, "pods": [{"volume": [{"name": "token", "usedBytes": 1}, *figures]}]}, kind)


def spec_with(rebuild: str = "{}") -> FactorySpec:
    return load_factory(STARTER.read_text() + f"rebuild: {rebuild}\n")


@pytest.mark.parametrize(
    ("volume", "is_kept", "about"),
    [
        ({"hostPath": {"path": "/v"}, **ON_NODE}, False, "(local path on factory03, 2.0 GiB in use of 5Gi requested)"),
        ({"local": {"path": "/v"}}, False, "(path of a node, 2.0 GiB in use on its whole file system of 5Gi requested)"),
        ({"nfs": {"server": "nas.example.org", "path": "/srv"}}, True, "(NFS nas.example.org:/srv, 2.0 GiB"),
        ({"nfs": {"server": "factory02", "path": "/srv"}}, False, "(NFS factory02:/srv"),
        ({"nfs": {"server": "factory02.example.org", "path": "/srv"}}, False, "(NFS factory02.example.org:/srv"),
        ({"nfs": {"path": "/srv"}}, False, "(NFS :/srv"),
        (NFS_CSI, True, "(NFS nas.example.org:/srv"),
        ({"csi": {"driver": "rbd.csi.ceph.com"}}, False, "(driver rbd.csi.ceph.com, of which nobody knows"),
        ({"iscsi": {"targetPortal": "10.0.0.1"}}, False, "(a volume of a kind of which nobody knows"),
    ],
)
def test_volumes_tell_where_their_bytes_lie(volume: dict[str, Any], is_kept: bool, about: str) -> None:
    cluster = ClaimedCluster({"software/data": volume}, {"software/data": 2 << 30})
    (item,) = project_volumes.read(spec_with(), cluster, resolve)
    assert item.is_kept == is_kept
    assert item.about.startswith(f"software/data {about}")


@pytest.mark.parametrize(
    ("server", "is_kept"),
    [
        *((server, True) for server in ("203.0.113.7", "NAS.example.org.", "2001:db8::7", "[2001:db8::7]")),
        # Services and pods, by name, by the networks of the spec, and by what the API shows
        *((server, False) for server in ("10.43.12.7", "10.42.3.4", "fd43::9", "fd42::5", "192.0.2.20", "192.0.2.30")),
        *((server, False) for server in ("nfs.storage.svc.cluster.local", "nfs.storage.svc", "lb.example.org")),
        # further addresses of machines
        *((server, False) for server in ("192.0.2.13", "10.30.0.13", "198.51.100.1", "FACTORY02.example.org", "::ffff:10.20.0.12")),
        *((server, False) for server in ("cache.example.org", "alias.example.org", "127.0.0.1", "::1", "localhost")),
        ("unknown.example.org", False),
    ],
)
def test_only_servers_known_to_be_outside_keep_bytes(server: str, is_kept: bool) -> None:
    cluster = ClaimedCluster({"software/data": {"nfs": {"server": server, "path": "/srv"}}}, {})
    (item,) = project_volumes.read(spec_with(), cluster, resolve)
    assert item.is_kept == is_kept
    assert ("without an address here" in item.about) == server.startswith("unknown")
    assert len(list(rebuild_refusals.volumes_at_risk(spec_with(), cluster, resolve))) == (not is_kept)


@pytest.mark.parametrize(("server", "is_kept"), [("filer.example.org", True), ("alias.example.org", False), ("factory02", False)])
def test_the_share_of_the_spec_is_kept_unless_it_is_known_to_be_inside(server: str, is_kept: bool) -> None:
    spec = load_factory(STARTER.read_text() + f"share: {{server: {server}, path: /srv}}\n")
    cluster = ClaimedCluster({"software/share": {"nfs": {"server": server, "path": "/srv"}}}, {})
    (item,) = project_volumes.read(spec, cluster, resolve)
    assert item.is_kept == is_kept
    assert not list(project_volumes.uncompared(spec, [item]))


LOCAL = {"hostPath": {"path": "/v"}, **ON_NODE}


@pytest.mark.parametrize(
    ("claim", "volume", "policy", "about"),
    [
        ("software/data", LOCAL, "Retain", "pv-1 (local path on factory03, retained since claim software/data was deleted)"),
        ("", LOCAL, "Retain", "pv-1 (local path on factory03, retained without a claim)"),
        ("team/own", {"csi": {"driver": "rbd"}}, "Retain", "pv-1 (driver rbd, of which nobody knows if it is outside, retained"),
        ("software/data", LOCAL, "Delete", ""),
        ("registry/data", LOCAL, "Retain", ""),
        ("software/data", {"nfs": {"server": "nas.example.org", "path": "/srv"}}, "Retain", ""),
    ],
)
def test_retained_bytes_without_a_claim_are_lost(claim: str, volume: dict[str, Any], policy: str, about: str) -> None:
    cluster = ClaimedCluster({}, {})
    cluster.retain("pv-1", claim, volume, policy)
    reasons = [reason.problem for reason in rebuild_refusals.volumes_at_risk(spec_with(), cluster, resolve)]
    assert [about in problem for problem in reasons] == [True] * bool(about)
    assert not list(rebuild_refusals.volumes_at_risk(spec_with("{restored: [volumes/pv-*]}"), cluster, resolve))


COPY = "copies: [{what: data, path: /srv/data, marker: complete, volume: software/data}]"
RESTORED = COPY.replace("volume", "restored: restored, volume")


@pytest.mark.parametrize(
    ("rebuild", "lost", "uncompared"),
    [
        ("{}", ["software/data", "team/own"], 0),
        ("{restored: [volumes/software/*]}", ["team/own"], 1),
        ("{restored: [persistentvolumeclaims/software/data]}", ["software/data", "team/own"], 0),
        ("{restored: ['*/software/*', '*/*', 'vol*/team/own']}", ["software/data", "team/own"], 0),
        (f"{{{COPY}}}", ["team/own"], 1),
        (f"{{{RESTORED}}}", ["team/own"], 0),
        (f"{{restored: [volumes/team/own], {RESTORED}}}", [], 1),
    ],
)
def test_bytes_without_a_copy_are_lost(rebuild: str, lost: list[str], uncompared: int) -> None:
    spec, cluster = spec_with(rebuild), ClaimedCluster({"software/data": LOCAL, "team/own": LOCAL, "registry/data": LOCAL}, {})
    volumes = project_volumes.read(spec, cluster)
    assert [item.name for item in project_volumes.lost(spec, volumes)] == lost
    assert len(list(project_volumes.uncompared(spec, volumes))) == uncompared
    reasons = list(rebuild_refusals.volumes_at_risk(spec, cluster))
    assert [reason.forcible and reason.loses_bytes for reason in reasons] == [True] * bool(lost)
    assert all(f"{len(lost)} volume" in reason.problem and lost[0] in reason.problem for reason in reasons)


def test_a_kubelet_that_does_not_answer_leaves_the_size_unknown() -> None:
    cluster = ClaimedCluster({"software/data": LOCAL}, {"software/data": 9}, Temporary("no route"))
    (item,) = project_volumes.read(spec_with(), cluster)
    assert "size in use unknown of 5Gi requested" in item.about
    assert UnplannedContents(volumes=(item,)).sentences == (
        f"only in the cluster: bytes in volume {item.about}; they are not saved, and not built again",
    )


def test_a_factory_that_does_not_tell_its_volumes_is_refused() -> None:
    class Silent(ClaimedCluster):
        """Stand-in for an API that lists nothing."""

        def list(self, path: str, kind: type[T]) -> tuple[T, ...]:
            """Raise Temporary."""
            raise Temporary("no route")

    (reason,) = rebuild_refusals.volumes_at_risk(spec_with(), Silent({}, {}))
    assert "does not say which volumes" in reason.problem
    assert reason.forcible
    assert reason.loses_bytes


@pytest.mark.parametrize(
    ("overrides", "covered"),
    [
        (Overrides(), []),
        (Overrides(reason="broken"), ["builds run"]),
        (Overrides(lose_volumes=True), ["volumes"]),
        (Overrides(reason="broken", lose_volumes=True), ["builds run", "volumes"]),
    ],
)
def test_a_reason_for_something_else_loses_no_volumes(overrides: Overrides, covered: list[str]) -> None:
    reasons = [
        Refusal(problem="builds run", fix="wait", forcible=True, ends=True),
        Refusal(problem="volumes", fix="copy", forcible=True, loses_bytes=True),
        Refusal(problem="this machine", fix="go"),
    ]
    assert [reason.problem for reason in reasons if overrides.covers(reason)] == covered


@pytest.mark.parametrize(
    ("copy", "path"),
    [
        ("{what: data, path: /srv/data, volume: data}", "rebuild.copies[0].volume"),
        ("{what: data, path: /srv/data, restored: restored}", "no volume is named"),
        ("{what: data, path: /srv/data, volume: a/b, restored: ../etc/x}", "rebuild.copies[0].restored"),
    ],
)
def test_wrong_copies_of_volumes_are_refused(copy: str, path: str) -> None:
    with pytest.raises(SpecErrors) as refused:
        spec_with(f"{{copies: [{copy}]}}")
    assert path in str(refused.value)
