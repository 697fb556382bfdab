"""Image references that float are found wherever values and objects nest them, and fixed ones are left alone."""

from pathlib import Path
from typing import Any

import pytest

from workflows.catalog import loader
from workflows.spec.errors import SpecErrors
from workflows.spec.image_references import floating_images


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ({"image": {"repository": "r.example.org/a", "tag": "latest"}}, ["v.image.tag"]),
        ({"sidecars": [{"name": "x", "image": "r.example.org/a:latest"}]}, ["v.sidecars[0].image"]),
        ({"containers": [{"image": "r.example.org/a"}]}, ["v.containers[0].image"]),
        ({"containers": [{"image": "busybox:stable"}]}, ["v.containers[0].image"]),
        ({"spec": {"initContainers": [[{"image": "a/b:main"}]]}}, ["v.spec.initContainers[0][0].image"]),
        ({"driver": {"version": "latest", "image": "driver", "repository": "r.example.org"}}, ["v.driver.version"]),
        ({"image": "r.example.org:5000/a"}, ["v.image"]),
    ],
)
def test_a_floating_image_is_found(values: dict[str, Any], places: list[str]) -> None:
    assert [place for place, _ in floating_images(values, "v")] == places


@pytest.mark.parametrize(
    "values",
    [
        {"image": {"repository": "r.example.org/a", "tag": "1.2.3"}},
        {"image": {"repository": "r.example.org/a", "tag": ""}},
        {"image": "r.example.org:5000/a:1.2"},
        {"image": "r.example.org/a@sha256:" + "0" * 64},
        {"image": "doca-driver", "repository": "r.example.org", "version": "1.2"},
        {"image": "team/a", "digest": "sha256:" + "0" * 64},
        {"image": None, "tag": 3},
    ],
)
def test_a_fixed_image_is_left_alone(values: dict[str, Any]) -> None:
    assert list(floating_images(values, "v")) == []


def test_a_catalog_of_a_site_with_a_floating_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "values").mkdir()
    (tmp_path / "values/local_path_provisioner.yaml").write_text("image: {tag: latest}\n")
    with pytest.raises(SpecErrors, match="image latest means different things at different times"):
        loader.load(tmp_path)
