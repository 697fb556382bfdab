"""Detecting a tree that is not the one published to before, for example because its disk is not mounted."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.clients.releases import preflight
from steps.errors import Refused
from steps.nodeimage.contract.boot_tree import BootGroup
from steps.nodeimage.publishing import image_kind, image_publication, publication_status
from tests.unit.clients.published.published_trees import KINDS, image, order, place, published, silent, state, transport

KNOWN = {"compute": "0002-3fede354d804"}


def refused(root: Path, known: Mapping[str, str], name: str = "compute") -> str:
    with transport("local", root) as way:
        try:
            preflight.refuse_wrong_mount(image_kind.image_kind(), way.look(name), "there", known)
        except Refused as error:
            return str(error)
    return ""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_to_a_tree_that_lacks_what_was_there(root: Path, tmp_path: Path, kind: str) -> None:
    before = state(root)
    wanted = replace(order(place(root), image(tmp_path / "a", "a")), known=KNOWN)
    with transport(kind, root) as way:
        with pytest.raises(Refused, match="it has no version of compute, but 0002-3fede354d804 was published there; is it mounted"):
            image_publication.publish_through(way, wanted, silent)
        with pytest.raises(Refused, match="is it mounted"):
            publication_status.query(way, place(root), "compute", "0" * 64, (), known=KNOWN)
        assert state(root) == before
        assert image_publication.publish_through(way, replace(wanted, again=True), silent).version.startswith("0001-")


def test_a_new_site_needs_nothing(root: Path) -> None:
    assert refused(root, {}) == ""


def test_a_tree_that_tells_of_the_version_is_the_one(root: Path, tmp_path: Path) -> None:
    """Also after a rollback, and where old versions, or all of them, were removed by hand."""
    for text in "ab":
        published(place(root), image(tmp_path / text, text))
    assert refused(root, KNOWN) == ""
    assert refused(root, {"compute": "0003-3fede354d804"}).startswith("there: its newest version of compute is 0002-")
    with transport("local", root) as way:
        image_publication.roll_back(way, "compute", "", "ada")
    assert refused(root, KNOWN) == ""
    shutil.rmtree(root / "compute/versions")
    assert refused(root, KNOWN) == "", "the history is there"


def test_a_first_image_beside_others_goes_where_these_are(root: Path, tmp_path: Path) -> None:
    assert refused(root, KNOWN, "login").startswith("there: it is empty, but compute 0002-3fede354d804 was published there")
    published(place(root), image(tmp_path / "a", "a"))
    assert refused(root, KNOWN, "login") == ""
    shutil.rmtree(root / "compute")
    assert refused(root, KNOWN, "login") == "", "an image that was taken away leaves boot, and others may come"
    published(place(root, BootGroup(name="login")), image(tmp_path / "l", "l", name="login"))
