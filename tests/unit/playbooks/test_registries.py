"""Where containerd asks for images, as registries.yaml tells it: RKE2 puts /v2 before no path that is given."""

import json
from pathlib import Path

import jinja2
import pytest
import yaml

TEMPLATES = Path(__file__).parents[3] / "playbooks/roles/rke2/templates"


def rendered(mirror: str) -> dict[str, object]:
    """What the role makes of a mirror for all registries."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True)
    environment.filters["to_json"] = json.dumps
    text = environment.get_template("registries.yaml.j2").render(rke2_registry_mirror=mirror, rke2_registries={})
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
