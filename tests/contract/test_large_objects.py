"""Size limits of objects, and the parts that are dropped first. A Workflow of a large fleet is close to these limits."""

import json
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.rest import ApiException

from tests.contract.objects import helm_chart

ETCD = 3 << 19
"""Bytes of one request to etcd, 1.5 MiB."""

DATA = 1 << 20
"""Bytes of all values of a ConfigMap or Secret."""

GROUP = ("helm.cattle.io", "v1")


def refusal(error: pytest.ExceptionInfo[ApiException]) -> tuple[int, str]:
    return error.value.status, json.loads(error.value.body)["message"]


def test_an_object_that_etcd_cannot_take_is_an_error_of_the_server(api: client.ApiClient, namespace: str) -> None:
    custom = client.CustomObjectsApi(api)
    fits = helm_chart("fits", namespace, valuesContent="x" * (ETCD - 10_000))
    custom.create_namespaced_custom_object(*GROUP, namespace, "helmcharts", fits)
    with pytest.raises(ApiException) as caught:
        custom.create_namespaced_custom_object(
            *GROUP, namespace, "helmcharts", helm_chart("large", namespace, valuesContent="x" * ETCD)
        )
    assert refusal(caught) == (500, "etcdserver: request is too large")
    grown = {"spec": {"chart": "y" * 20_000}}
    with pytest.raises(ApiException) as caught:
        custom.patch_namespaced_custom_object(*GROUP, namespace, "helmcharts", "fits", grown)
    assert refusal(caught) == (500, "etcdserver: request is too large")
    left = custom.list_namespaced_custom_object(*GROUP, namespace, "helmcharts")["items"]
    assert [(item["metadata"]["name"], "chart" in item["spec"]) for item in left] == [("fits", False)]


def test_a_body_above_three_mebibytes_is_not_read(api: client.ApiClient, namespace: str) -> None:
    large = helm_chart("large", namespace, valuesContent="x" * (3 << 20))
    with pytest.raises(ApiException) as caught:
        client.CustomObjectsApi(api).create_namespaced_custom_object(*GROUP, namespace, "helmcharts", large)
    assert refusal(caught) == (413, "Request entity too large: limit is 3145728")


def test_managed_fields_go_before_an_update_is_refused(charts: Any, api: client.ApiClient, namespace: str) -> None:
    """3,000 long keys: with the record of who owns them the object is too large, and nobody misses that but who applies."""
    where = {"name": "keys", "namespace": namespace}
    charts.server_side_apply(body=helm_chart("keys", namespace, chart="a"), field_manager="m1", **where)
    keys = {f"{number:04d}{'k' * 249}": "x" * 80 for number in range(3000)}
    custom = client.CustomObjectsApi(api)
    few = custom.patch_namespaced_custom_object(*GROUP, namespace, "helmcharts", "keys", {"spec": {"set": {"a": "b"}}})
    assert few["metadata"]["managedFields"]
    many = custom.patch_namespaced_custom_object(*GROUP, namespace, "helmcharts", "keys", {"spec": {"set": keys}})
    assert "managedFields" not in many["metadata"]
    assert len(many["spec"]["set"]) == 3001


def test_an_apply_keeps_its_record_or_is_refused(charts: Any, namespace: str) -> None:
    keys = {f"{number:04d}{'k' * 249}": "x" * 80 for number in range(3000)}
    large = {**helm_chart("keys", namespace), "spec": {"set": keys}}
    with pytest.raises(ApiException) as caught:
        charts.server_side_apply(body=large, field_manager="m1", name="keys", namespace=namespace)
    assert refusal(caught) == (500, "etcdserver: request is too large")


@pytest.mark.parametrize(
    ("kind", "field"), [pytest.param("config_map", "[]", id="ConfigMap"), pytest.param("secret", "data", id="Secret")]
)
def test_values_above_one_mebibyte_are_invalid(core: client.CoreV1Api, namespace: str, kind: str, field: str) -> None:
    create: Any = getattr(core, f"create_namespaced_{kind}")
    values = {"config_map": "data", "secret": "stringData"}[kind]
    create(namespace, {"metadata": {"name": "fits"}, values: {"a": "x" * (DATA - 5), "b": "12345"}})
    with pytest.raises(ApiException) as caught:
        create(namespace, {"metadata": {"name": "large"}, values: {"a": "x" * (DATA - 5), "b": "123456"}})
    status, message = refusal(caught)
    assert status == 422
    assert f"{field}: Too long: may not be more than {DATA} bytes" in message
