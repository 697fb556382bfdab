"""A recipe and its lock give the resolved recipe; a lock that is not the recipe's is refused, and the sentence says what to do."""

import dataclasses
import hashlib
import os
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract import resolved_recipe as contract
from steps.nodeimage.contract.image_tests import BuiltinCheck
from workflows import examples
from workflows.nodeimage import lockfile, package_resolution, recipe_files, recipe_resolution
from workflows.nodeimage.image_spec import load_image
from workflows.nodeimage.recipe_spec import Foundation
from workflows.podimage.errors import BuildError
from workflows.spec.errors import SpecErrors

OWN = """
apiVersion: bringup/v1
kind: ImageRecipe
name: own
description: A stand-in for a site's recipe.
extends: base
layers:
  - name: site
    users: [{name: ada, uid: 1000, keys: ["ssh-ed25519 AAAA ada"]}]
    files:
      - {path: /etc/motd, source: files/motd, mode: "0600", uid: 5, gid: 6}
      - {path: /srv/data}
      - {path: /srv/link, link: data}
    commands: [{run: "true", secrets: [license]}]
    services: {enabled: [own.service], disabled: [systemd-timesyncd.service]}
    tests:
      - {name: setuid_files, incident: Another list than that of base., check: setuid, arguments: [/usr/bin/su]}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/motd").write_bytes(b"{{ kept as it is }}\n")
    (tmp_path / "own.yaml").write_text(OWN)
    lock = lockfile.read(recipe_files.RECIPES / "base.lock.json", "")
    layers = (*lock.layers, lockfile.LockedLayer(name="site", packages=()))
    (tmp_path / "own.lock.json").write_text(lockfile.text(msgspec.structs.replace(lock, recipe="own", layers=layers)))
    return tmp_path


def of(name: str, folder: Path = Path()) -> recipe_resolution.Resolved:
    return recipe_resolution.resolve(recipe_resolution.recipe_request(name, folder))


def test_the_folder_that_a_recipe_lies_in_is_no_part_of_what_is_built(own: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A schedule reads the same commit into another folder each night: it is the same installation then."""
    text = (own / "own.yaml").read_text()
    source = "    sources: [{url: http://deb.example.org/own, suite: /, keyring: own.gpg}]\n"
    (own / "own.yaml").write_text(text.replace("  - name: site\n", f"  - name: site\n{source}"))
    lock = lockfile.read(own / "own.lock.json", "")
    (own / "own.lock.json").write_text(lockfile.text(msgspec.structs.replace(lock, sources=(*lock.sources, "site /"))))
    other = tmp_path_factory.mktemp("other") / "own"
    shutil.copytree(own, other)
    here, there = (
        recipe_resolution.resolve(
            dataclasses.replace(recipe_resolution.recipe_request("own.yaml", folder), keyring=str(folder / "mirror.gpg"))
        )
        for folder in (own, other)
    )
    assert contract.encode(here.recipe) == contract.encode(there.recipe)
    assert here.recipe.sources[-1].url == "http://deb.example.org/own"


def test_a_pointer_of_git_lfs_is_not_taken_for_the_file(own: Path) -> None:
    (own / "files/motd").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n")
    with pytest.raises(SpecErrors, match="a pointer of Git LFS and not the file"):
        of("own.yaml", own)


def test_the_shipped_recipes_resolve_and_share_their_layers() -> None:
    base, compute = of("base"), of("compute")
    assert compute.recipe.names == ("base", "hpc")
    assert build_keys.layers(compute.recipe)["base"] == build_keys.top(base.recipe), (
        "compute is built on the very layer that base is"
    )
    assert re.fullmatch(r"linux-image-\d\S+-cloud-amd64", base.recipe.kernel)
    assert contract.decode(contract.encode(compute.recipe)) == compute.recipe
    assert len(contract.encode(compute.recipe)) + sum(map(len, compute.files.values())) < contract.MAX_BYTES
    urls = [one.url for one in base.recipe.sources]
    assert urls == ["http://deb.debian.org/debian", "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"]


def test_every_image_can_tell_what_it_is() -> None:
    lowest = of("compute").recipe.layers[0]
    assert "/usr/lib/bringup/report" in [one.path for one in lowest.files]
    enabled = [one.unit for one in lowest.services if one.state == "enabled"]
    assert {"bringup-report.service", "bringup-report.timer"} <= set(enabled), "it tells again each day"


def test_what_follows_from_a_recipe_is_tested_without_being_written(own: Path) -> None:
    tests = {one.name: one for one in of("own.yaml", own).recipe.tests}
    services = tests["recipe_services_enabled"]
    assert (services.check, "own.service" in services.arguments) == (BuiltinCheck.SERVICES_ENABLED, True)
    assert "systemd-timesyncd.service" not in services.arguments, "an upper layer disabled it"
    assert "live-boot" in tests["recipe_packages_installed"].arguments
    assert tests["root_size"].arguments == ("650",)
    assert tests["setuid_files"].arguments == ("/usr/bin/su",), "the upper recipe's test takes the place of the lower one"


def test_files_travel_by_digest_byte_for_byte(own: Path) -> None:
    found = of("own.yaml", own)
    motd, folder, link = found.recipe.layer("site").files
    assert found.files[motd.sha256] == b"{{ kept as it is }}\n"
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in found.files.items())
    assert (motd.mode, motd.uid, motd.gid) == (0o600, 5, 6)
    assert (folder.sha256, folder.link, folder.mode) == ("", "", 0o755)
    assert (link.link, link.mode) == ("data", 0o777)
    (user,) = found.recipe.layer("site").users
    assert (user.gid, user.home) == (1000, "/home/ada")


def test_a_file_that_is_missing_is_named_with_its_place(own: Path) -> None:
    (own / "files/motd").unlink()
    with pytest.raises(SpecErrors, match=r"layers\[0\].files\[0\].source\n  value  files/motd\n  error  .*No such file"):
        of("own.yaml", own)


def test_a_secret_that_a_command_asks_for_stands_in_the_spec(own: Path) -> None:
    asked = recipe_resolution.RecipeRequest(recipe="own.yaml", folder=own, variables={}, secrets=("licence",))
    with pytest.raises(
        SpecErrors, match=r"secrets.license\n  value  license\n  error  a command of the recipe asks for this secret"
    ):
        recipe_resolution.resolve(asked)
    assert recipe_resolution.resolve(dataclasses.replace(asked, secrets=("license",))).recipe.layer("site").commands[0].secrets == (
        "license",
    )


def test_the_example_resolves_with_the_name_of_its_spec() -> None:
    path = Path(examples.__file__).parent / "images/image.yaml"
    text = (
        path.read_text()
        .replace("name: compute", "name: nightly")
        .replace("lock: compute", "# lock: compute")
        .replace("variables:", "# variables:")
        .replace("publish:", "mirror: https://m.example.org/deb\npublish:")
    )
    found = recipe_resolution.resolve(recipe_resolution.spec_request(load_image(text), path.parent))
    assert found.recipe.name == "nightly"
    assert [one.url for one in found.recipe.sources][1:] == ["https://m.example.org/deb", "https://m.example.org/deb-security"]
    assert build_keys.layers(found.recipe) == build_keys.layers(of("compute").recipe), "a mirror changes nothing that is built"


@pytest.mark.parametrize(
    ("architecture", "own_mirror", "urls"),
    [
        ("amd64", "", ("http://archive.ubuntu.com/ubuntu", "http://security.ubuntu.com/ubuntu")),
        ("arm64", "", ("http://ports.ubuntu.com/ubuntu-ports", "http://ports.ubuntu.com/ubuntu-ports")),
        ("amd64", "https://m.example.org/ubuntu", ("https://m.example.org/ubuntu", "https://m.example.org/ubuntu")),
    ],
)
def test_ubuntu_has_places_of_its_own(architecture: str, own_mirror: str, urls: tuple[str, str]) -> None:
    ground = Foundation(
        distribution="ubuntu", release="noble", architecture=architecture, epoch=1795219200, kernel="linux-image-virtual"
    )
    main, _, security = package_resolution.sources(ground, (), package_resolution.Mirror(url=own_mirror))
    assert (main.source.url, security.source.url, security.source.suite) == (*urls, "noble-security")
    assert main.name == "ubuntu noble main universe"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "layers:\n  - name: site\n",
            "layers:\n  - name: site\n    packages: [htop]\n",
            "layer site asks for htop, which it lacks",
        ),
        ("  - name: site", "  - name: ours", "it has layers base, site, the recipe base, ours"),
        (
            "extends: base",
            "extends: base\nvariables: {kernel: linux-image-amd64}",
            "layer base asks for linux-image-amd64, which it lacks",
        ),
    ],
)
def test_a_lock_older_than_its_recipe_is_one_sentence(own: Path, old: str, new: str, sentence: str) -> None:
    (own / "own.yaml").write_text(OWN.replace(old, new, 1))
    with pytest.raises(BuildError, match=r"the lock own\.lock\.json is older than the recipe own: ") as caught:
        of("own.yaml", own)
    assert sentence in str(caught.value)
    assert caught.value.hint == "lock it again, which moves only what it must: bringup image lock own.yaml"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (None, "is not there"),
        (b"{", "is no lock"),
        (b'{"schema": 1}', "is no lock"),
        (b"\xff\xfe", "is no lock"),
        (b"[]", "is no lock"),
        (b" " * (lockfile.LARGEST_BYTES + 1), "more than 8 MiB"),
    ],
)
def test_a_damaged_lock_is_one_sentence(own: Path, data: bytes | None, sentence: str) -> None:
    path = own / "own.lock.json"
    path.unlink() if data is None else path.write_bytes(data)
    with pytest.raises(BuildError, match=sentence) as caught:
        of("own.yaml", own)
    assert caught.value.hint == "make it: bringup image lock own.yaml"


def test_other_repositories_or_another_release_make_a_lock_unfit(own: Path) -> None:
    lock = lockfile.read(own / "own.lock.json", "")
    other = msgspec.structs.replace(lock, release="trixie", sources=lock.sources[:2])
    (own / "own.lock.json").write_text(lockfile.text(other))
    with pytest.raises(
        BuildError, match=r"for debian trixie amd64.*its repositories are not those \(debian bookworm-security main\)|repositories"
    ):
        of("own.yaml", own)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("link", "a link leads out of the recipe's folder"),
        ("large", "it has more than 600000 bytes\n  fix    put large ones into a package"),
        ("folder", "it is no regular file"),
        ("pipe", "it is no regular file"),
        ("circle", "its links are a circle"),
    ],
)
def test_a_file_that_is_not_the_recipes_own_is_refused(own: Path, what: str, sentence: str) -> None:
    motd = own / "files/motd"
    motd.unlink()
    outside = own.with_name(f"{own.name}-outside")
    outside.write_text("of this machine")
    made = {
        "link": lambda: motd.symlink_to(outside),
        "large": lambda: motd.write_bytes(bytes(600_001)),
        "folder": motd.mkdir,
        "pipe": lambda: os.mkfifo(motd),
        "circle": lambda: motd.symlink_to("motd"),
    }
    made[what]()
    with pytest.raises(SpecErrors) as caught:
        of("own.yaml", own)
    assert sentence in str(caught.value)


def test_a_link_within_the_folder_of_the_recipe_is_followed(own: Path) -> None:
    (own / "files/motd").rename(own / "real")
    (own / "files/motd").symlink_to("../real")
    assert b"{{ kept as it is }}\n" in of("own.yaml", own).files.values()
