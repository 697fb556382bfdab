"""Keys that sign repositories are found where spec and recipe name them, and apt is told of them by paths that it can read."""

import contextlib
import shutil
from pathlib import Path

import pytest

from tests.unit.images.nodes.conftest import Deb, Site, gpg
from workflows.nodeimage import lockfile, package_resolution, recipe_resolution
from workflows.podimage.errors import BuildError


def with_keys_beside(site: Site, folder: str, key: str = "own.gpg") -> Site:
    """The site in a folder of its own: the key of the mirror beside the spec, that of a further repository beside the recipe."""
    moved = site.folder / folder
    (moved / "recipes").mkdir(parents=True)
    shutil.copy(site.mirror.key, moved / "mirror.gpg")
    if key.endswith(".asc"):
        gpg(site.mirror.home, "--export", "--armor", "--output", str(moved / "recipes" / key))
    else:
        shutil.copy(site.mirror.key, moved / "recipes" / key)
    site.mirror.publish_flat("flat", [Deb("driver-stand-in", depends="libc")])
    source = f'{{url: "{site.mirror.url}/flat", suite: /, keyring: {key}}}'
    more = f"\n  - name: gpu\n    sources: [{source}]\n    packages: [driver-stand-in]\n"
    (moved / "recipes/small.yaml").write_text((site.folder / "small.yaml").read_text() + more)
    spec = site.spec.read_text().replace("recipe: small.yaml", "recipe: recipes/small.yaml")
    (moved / "image.yaml").write_text(spec.replace(str(site.mirror.key), "./mirror.gpg"))
    return Site(moved, site.mirror)


@pytest.mark.parametrize("folder", ["site", "my site", "site [2], old"])
@pytest.mark.parametrize("key", ["own.gpg", "vendor key.asc"])
def test_keys_beside_spec_and_recipe_are_found_from_the_folder_one_stands_in(site: Site, folder: str, key: str) -> None:
    here = with_keys_beside(site, folder, key)
    done = here.bringup("image", "lock", "image.yaml", "--no-keep")
    assert done.returncode == 0, done.stderr
    lock = lockfile.read(here.folder / "recipes/small.lock.json", "")
    assert {one.name for one in lock.layer("gpu")} == {"driver-stand-in"}
    newer = here.bringup("image", "update", "image.yaml")
    assert newer.returncode == 0, newer.stderr


def test_a_recipe_named_relatively_has_its_keys_beside_it(site: Site) -> None:
    here = with_keys_beside(site, "site")
    with contextlib.chdir(here.folder):
        asked = recipe_resolution.recipe_request("recipes/small.yaml", Path())
        *usual, own = (one.source.keyring for one in asked.sources(asked.chain()))
    assert own == str(here.folder / "recipes/own.gpg")
    assert set(usual) == {package_resolution.DISTRIBUTIONS["debian"].keyring}


def test_a_key_with_a_plain_path_is_named_as_it_lies(tmp_path: Path) -> None:
    key = "/usr/share/keyrings/a+b_c-1.0~x.gpg"
    assert package_resolution.keyring_paths([key, key], tmp_path / "keys") == {key: key}
    assert list((tmp_path / "keys").iterdir()) == []


def test_keys_of_one_name_do_not_take_each_others_place(tmp_path: Path) -> None:
    found = [tmp_path / folder / "key.gpg" for folder in ("a b", "c d")]
    for one in found:
        one.parent.mkdir()
        one.write_text(one.parent.name)
    told = package_resolution.keyring_paths(map(str, found), tmp_path / "keys")
    assert [Path(told[str(one)]).read_text() for one in found] == ["a b", "c d"]


def test_a_key_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"my key\.gpg, the key of a repository, cannot be read: No such file or directory"):
        package_resolution.keyring_paths([str(tmp_path / "my key.gpg")], tmp_path / "keys")
