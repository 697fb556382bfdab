"""A kubeconfig that is sent another way leads to the same cluster, by the name that its certificate has."""

from pathlib import Path

import pytest
import yaml

from steps.clients.kube import kubeconfig
from steps.clients.kube.kubeconfig import readdress
from steps.errors import NotUnderstood

RKE2 = """apiVersion: v1
clusters:
- cluster:
    server: https://10.10.0.10:6443
    insecure-skip-tls-verify: true
  name: default
contexts:
- context:
    cluster: default
    user: default
  name: default
current-context: default
kind: Config
users:
- name: default
  user:
    token: canary-7
"""


def test_only_the_way_to_the_server_is_another(tmp_path: Path) -> None:
    sent = readdress(RKE2, "https://127.0.0.1:16443", "10.10.0.10")
    (tmp_path / "before").write_text(RKE2)
    (tmp_path / "after").write_text(sent)
    before, after = (kubeconfig.load(tmp_path / name) for name in ("before", "after"))
    assert (after.server, after.name) == ("https://127.0.0.1:16443", "10.10.0.10")
    assert (before.server, before.name) == ("https://10.10.0.10:6443", "")
    assert (after.token, after.insecure) == (before.token, before.insecure)
    rest = [{**yaml.safe_load(text), "clusters": None} for text in (RKE2, sent)]
    assert rest[0] == rest[1]


@pytest.mark.parametrize("text", ["", "no mapping", "clusters: []", "clusters: [{name: a}]", "clusters: [a: b: c"])
def test_one_without_a_cluster_is_not_understood(text: str) -> None:
    with pytest.raises(NotUnderstood, match="the kubeconfig of the new cluster"):
        readdress(text, "https://127.0.0.1:16443", "10.10.0.10")
