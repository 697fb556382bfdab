"""Volumes of projects: where their bytes lie, how many they are, and which of them a rebuild refuses to lose."""

from typing import Any, TypeVar

import msgspec
import pytest

from steps.errors import StepError, Temporary
from tests.unit.factories.conftest import STARTER
from workflows.app.factories import project_volumes, rebuild_refusals
from workflows.app.factories.unplanned_contents import UnplannedContents
from workflows.spec import FactorySpec, SpecErrors, load_factory

T = TypeVar("T")
AFFINITY = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["factory03"]}
ON_NODE = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [AFFINITY]}]}}}
NFS_CSI = {"csi": {"driver": "nfs.csi.k8s.io", "volumeAttributes": {"server": "nas.example.org", "share": "/srv"}}}


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
            "/api/v1/nodes": [{"metadata": {"name": "factory03"}}],
        }
        self._lists["/api/v1/persistentvolumeclaims"].append({"metadata": {"namespace": "software", "name": "unbound"}})

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
    (item,) = project_volumes.read(spec_with(), cluster)
    assert item.is_kept == is_kept
    assert item.about.startswith(f"software/data {about}")


LOCAL = {"hostPath": {"path": "/v"}, **ON_NODE}
COPY = "copies: [{what: data, path: /srv/data, marker: complete, volume: software/data}]"
RESTORED = COPY.replace("volume", "restored: restored, volume")


@pytest.mark.parametrize(
    ("rebuild", "lost", "uncompared"),
    [
        ("{}", ["software/data", "team/own"], 0),
        ("{restored: [volumes/software/*]}", ["team/own"], 1),
        ("{restored: [persistentvolumeclaims/software/data]}", ["software/data", "team/own"], 0),
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
    assert [reason.forcible for reason in reasons] == [True] * bool(lost)
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
