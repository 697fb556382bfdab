"""Settings of Argo's controller as the probe of factory_argo reads them from a ConfigMap and a Deployment; under 1 CPU second."""

from typing import Any, TypeVar

import msgspec
import pytest

from steps.stages.factory_argo import probe
from steps.stages.factory_argo.contract import POD_GC, REQUEUE, WORKERS
from steps.stages.shared.kube_reader import Scope

T = TypeVar("T")
CONFIG = """parallelism: 50
resourceRateLimit:
  burst: 5
  limit: 20
namespaceParallelism: 10
workflowDefaults:
  spec:
    podGC:
      strategy: OnPodSuccess
workflowRestrictions:
  templateReferencing: Strict
podGCDeleteDelayDuration: 60s
"""
"""The configuration as the chart's templates/controller/workflow-controller-config-map.yaml writes it."""
ENVIRONMENT = [{"name": "ARGO_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}]


class ControllerStandIn:
    """Stand-in for a client: it answers with one ConfigMap and one Deployment."""

    def __init__(self, config: str, args: list[str], env: list[dict[str, Any]]) -> None:
        containers = [{"name": "sidecar", "args": ["--workflow-workers", "99"]}, {"name": "controller", "args": args, "env": env}]
        self.objects: dict[str, Any] = {
            f"/api/v1/namespaces/argo/configmaps/{probe.CONFIG_MAP}": {"data": {"config": config}},
            f"/apis/apps/v1/namespaces/argo/deployments/{probe.CONTROLLER}": {
                "spec": {"template": {"spec": {"containers": containers}}}
            },
        }

    def get(self, path: str, kind: type[T]) -> T | None:
        """Return the object at a path."""
        return msgspec.convert(self.objects[path], kind) if path in self.objects else None

    def list(self, path: str, kind: type[T], labels: str = "", fields: str = "") -> tuple[T, ...] | None:
        """Return nothing: no collection counts here."""
        return None

    def text(self, path: str) -> str | None:
        """Return nothing."""
        return None

    def log(self, namespace: str, pod: str, container: str = "", tail: int = 200, previous: bool = False) -> str:
        """Return an empty log."""
        return ""

    def events(self, namespace: str, name: str) -> tuple[str, ...]:
        """Return no events."""
        return ()


def settings(config: str = CONFIG, args: tuple[str, ...] = (), env: tuple[dict[str, Any], ...] = ()) -> dict[str, str] | None:
    """Return the settings that the probe reads."""
    return probe.control(ControllerStandIn(config, list(args), [*ENVIRONMENT, *env]), Scope()).settings


def test_settings_of_the_chart_are_read_from_both_objects() -> None:
    args = ("--configmap", probe.CONFIG_MAP, "--workflow-workers", "32")
    assert settings(args=args, env=({"name": REQUEUE, "value": "2s"},)) == {
        "templateReferencing": "Strict",
        "parallelism": "50",
        "namespaceParallelism": "10",
        "limit": "20",
        "burst": "5",
        "podGCDeleteDelayDuration": "60s",
        POD_GC: "OnPodSuccess",
        REQUEUE: "2s",
        WORKERS: "32",
    }


@pytest.mark.parametrize("args", [("--workflow-workers", "32", "--workflow-workers=4"), ("--workflow-workers=4",)])
def test_the_last_argument_and_variable_hold(args: tuple[str, ...]) -> None:
    seen = settings(args=args, env=({"name": REQUEUE, "value": "2s"}, {"name": REQUEUE, "value": "1h"}))
    assert seen is not None
    assert (seen[WORKERS], seen[REQUEUE]) == ("4", "1h")


@pytest.mark.parametrize(
    "config",
    [
        CONFIG.replace("workflowRestrictions:", "links:"),
        CONFIG.replace("workflowRestrictions:", "other: |"),
        "a: {b",
        "!!python/object/apply:os.system [id]",
        "[" * 1000,
        "- templateReferencing: Strict",
    ],
    ids=["elsewhere", "in_a_text", "broken", "tagged", "deep", "no_mapping"],
)
def test_a_setting_counts_in_its_place_alone(config: str) -> None:
    assert "templateReferencing" not in (settings(config) or {})
