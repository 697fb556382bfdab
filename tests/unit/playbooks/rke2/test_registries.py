"""The registries.yaml for containerd: endpoints with a path of their own get the /v2 that RKE2 does not put before it."""

import json

import jinja2
import pytest
import yaml

from tests.unit.playbooks.library import PLAYBOOKS

TEMPLATES = PLAYBOOKS / "roles/rke2/templates"


def rendered(mirror: str, registries: dict[str, object] | None = None, *, fallback: bool = True) -> dict[str, object]:
    """Render registries.yaml for one mirror of all registries and for settings of single ones; secrets appear as variable names."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True)
    environment.filters["to_json"] = json.dumps
    variables = {"rke2_registry_mirror": mirror, "rke2_registries": registries or {}, "lookup": lambda _, name: name}
    variables["rke2_config"] = {} if fallback else {"disable-default-registry-endpoint": True}
    text = environment.get_template("registries.yaml.j2").render(variables)
    return dict(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("mirror", "endpoint"),
    [
        ("registry.example.org:5000", "https://registry.example.org:5000"),
        ("harbor.example.org/proxy/hub", "https://harbor.example.org/v2/proxy/hub"),
        ("harbor.example.org/v2/proxy", "https://harbor.example.org/v2/proxy"),
        ("harbor.example.org/v2", "https://harbor.example.org/v2"),
    ],
)
def test_a_mirror_is_asked_by_the_registry_api(mirror: str, endpoint: str) -> None:
    assert rendered(mirror)["mirrors"] == {"*": {"endpoint": [endpoint]}}


def test_a_registry_that_has_mirrors_alone_is_no_configured_one() -> None:
    """RKE2 asks each registry that stands in `configs` itself, also where it was told that mirrors alone are to be asked."""
    said: dict[str, object] = {"docker.io": {"endpoints": ["https://m.example.org"], "rewrite": {"a": "b"}}}
    mirrors = {"docker.io": {"endpoint": ["https://m.example.org"], "rewrite": {"a": "b"}}}
    assert rendered("", said, fallback=False) == {"mirrors": mirrors, "configs": None}
    asked = {"docker.io": {"tls": {"insecure_skip_verify": False}}}
    assert rendered("", said) == {"mirrors": mirrors, "configs": asked}, "a cluster that has this file is not restarted for another"


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ({"insecure": True}, {"tls": {"insecure_skip_verify": True}}),
        (
            {"username": "puller", "secrets": {"password": "word"}},
            {"auth": {"username": "puller", "password": "word"}, "tls": {"insecure_skip_verify": False}},
        ),
        (
            {"secrets": {"key": "k", "cert": "c", "ca": "a"}},
            {
                "tls": {
                    "insecure_skip_verify": False,
                    "ca_file": "/etc/rancher/rke2/a.pem",
                    "cert_file": "/etc/rancher/rke2/c.pem",
                    "key_file": "/etc/rancher/rke2/k.pem",
                }
            },
        ),
    ],
)
def test_login_and_certificates_are_configured(said: dict[str, object], written: dict[str, object]) -> None:
    assert rendered("", {"m.example.org": said}) == {"mirrors": None, "configs": {"m.example.org": written}}
