"""Locks are what apt itself says of a mirror: what each layer brings, from where, and nothing that a layer below has already."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from steps.nodeimage.contract.resolved_recipe import Package
from tests.unit.images.nodes.conftest import FIRMWARE, SMALL, Deb, Mirror, Site
from workflows.nodeimage import lock_creation, lockfile, package_resolution, recipe_resolution
from workflows.nodeimage.image_spec import load_image
from workflows.nodeimage.lockfile import Lock
from workflows.podimage.errors import BuildError, FetchError


def asked(site: Site) -> recipe_resolution.RecipeRequest:
    return recipe_resolution.spec_request(load_image(site.spec), site.folder)


def names(packages: tuple[Package, ...]) -> list[str]:
    return [one.name for one in packages]


def test_each_layer_brings_what_those_below_lack(site: Site) -> None:
    lock = lock_creation.create_lock(asked(site))
    assert names(lock.layer("base")) == ["dash", "libc", "linux-image-1.0-stand-in", "linux-image-stand-in", "tool"]
    assert names(lock.layer("hpc")) == ["libmpi", "mpi"]
    by_name = lock.packages
    assert [name for name, one in by_name.items() if one.essential] == ["dash", "libc"]
    assert [name for name, one in by_name.items() if one.asked] == ["linux-image-stand-in", "tool", "mpi"]
    assert (by_name["libmpi"].version, by_name["libmpi"].path) == ("1:2.0+b1", "pool/main/s/libmpi/libmpi_2.0%2bb1_amd64.deb")
    assert by_name["libmpi"].sha256 == Deb("libmpi", "1:2.0+b1").sha256


def test_no_host_of_a_mirror_is_in_a_lock_and_one_written_again_is_the_same(site: Site) -> None:
    lock = lock_creation.create_lock(asked(site))
    assert lock_creation.write(lock, site.lock)
    assert not lock_creation.write(lock_creation.create_lock(asked(site)), site.lock)
    text = site.lock.read_text()
    assert "127.0.0.1" not in text
    assert "http" not in text
    assert lockfile.read(site.lock, "x") == lock
    assert len(text.splitlines()) == len(lock.packages) + 18, "a package a line"


def test_security_updates_win_and_are_counted_as_their_own_source(site: Site) -> None:
    site.mirror.publish("bookworm-security", [Deb("libc", "1.0-1+deb12u1", of="glibc")], archive="debian-security")
    lock = lock_creation.create_lock(asked(site))
    libc = lock.packages["libc"]
    assert (libc.version, lock.sources[libc.source]) == ("1.0-1+deb12u1", "debian bookworm-security main")


def test_the_version_of_a_source_is_kept_where_it_is_another_one(site: Site) -> None:
    newer = [Deb("libc", "2:1.0-1+deb12u1", of="glibc", of_version="1.0-1+deb12u1"), Deb("tool", "1.1-1", of="tool")]
    site.mirror.publish("bookworm-security", newer, archive="debian-security")
    lock = lock_creation.create_lock(asked(site))
    assert {one.name: one.source_version for one in lock.packages.values() if one.source_version} == {"libc": "1.0-1+deb12u1"}
    assert lock_creation.write(lock, site.lock)
    assert lockfile.read(site.lock, "x") == lock
    told = recipe_resolution.resolve(asked(site)).recipe.digest
    untold = [replace(one, packages=tuple(replace(each, source_version="") for each in one.packages)) for one in lock.layers]
    assert lock_creation.write(replace(lock, layers=tuple(untold)), site.lock)
    assert recipe_resolution.resolve(asked(site)).recipe.digest == told, "an image is another one only where its bytes are"


def test_the_locked_recipe_resolves_with_its_sources(site: Site) -> None:
    lock_creation.write(lock_creation.create_lock(asked(site)), site.lock)
    recipe = recipe_resolution.resolve(asked(site)).recipe
    assert recipe.kernel == "linux-image-1.0-stand-in"
    assert [one.url for one in recipe.sources] == [f"{site.mirror.url}/{path}" for path in ("debian", "debian", "debian-security")]
    assert recipe.layers[1].packages == lockfile.read(site.lock, "x").layer("hpc")


def test_a_repository_of_an_upper_layer_is_not_asked_for_the_lower_ones(site: Site) -> None:
    site.mirror.publish_flat("flat", [Deb("tool", "9.0"), Deb("driver-stand-in", depends="libc")])
    text = (site.folder / "small.yaml").read_text()
    source = f'{{url: "{site.mirror.url}/flat", suite: /, keyring: {site.mirror.key}}}'
    more = f"\n  - name: gpu\n    sources: [{source}]\n    packages: [driver-stand-in]\n"
    (site.folder / "small.yaml").write_text(text + more)
    lock = lock_creation.create_lock(asked(site))
    driver = lock.packages["driver-stand-in"]
    assert lock.packages["tool"].version == "1.0-1"
    assert (lock.sources[driver.source], driver.path) == ("gpu /", "./driver-stand-in_1.0-1_amd64.deb")
    assert names(lock.layer("gpu")) == ["driver-stand-in"]


def test_backports_give_what_nobody_else_has_and_no_newer_version(site: Site) -> None:
    site.mirror.publish("bookworm", [*SMALL, Deb("htop")])
    newer = [Deb("htop", "9.0~bpo12+1"), Deb("linux-image-6.12.9+bpo-amd64", "6.12.9-1~bpo12+1")]
    site.mirror.publish_flat("backports", newer, more=["NotAutomatic: yes", "ButAutomaticUpgrades: yes"])
    site.mirror.publish_flat("own", newer)
    text = (site.folder / "small.yaml").read_text()
    found = {}
    for repository in ("backports", "own"):
        source = f'{{url: "{site.mirror.url}/{repository}", suite: /, keyring: {site.mirror.key}}}'
        more = f"\n  - name: more\n    sources: [{source}]\n    packages: [htop, linux-image-6.12.9+bpo-amd64]\n"
        (site.folder / "small.yaml").write_text(text + more)
        found[repository] = {one.name: one.version for one in lock_creation.create_lock(asked(site)).layer("more")}
    assert found["backports"] == {"htop": "1.0-1", "linux-image-6.12.9+bpo-amd64": "6.12.9-1~bpo12+1"}
    assert found["own"]["htop"] == "9.0~bpo12+1"


def test_firmware_is_locked_from_the_distributions_own_component_where_a_layer_asks_for_it(site: Site) -> None:
    site.mirror.publish("bookworm", SMALL, firmware=[Deb("firmware-card"), Deb("tool", "9.0")])
    text = (site.folder / "small.yaml").read_text()
    (site.folder / "small.yaml").write_text(f"{text}\n  - name: more\n    packages: [firmware-card]\n")
    with pytest.raises(FetchError, match="firmware-card"):
        lock_creation.create_lock(asked(site))
    (site.folder / "small.yaml").write_text(
        f"{text}\n  - name: more\n    components: [main, {FIRMWARE}]\n    packages: [firmware-card]\n"
        f"  - name: again\n    components: [{FIRMWARE}]\n    packages: [firmware-card]\n"
    )
    lock = lock_creation.create_lock(asked(site))
    assert lock.sources == tuple(
        f"debian bookworm{suffix} {component}" for component in ("main", FIRMWARE) for suffix in ("", "-updates", "-security")
    )
    assert lock.packages["firmware-card"].path == "pool/non-free-firmware/s/firmware-card/firmware-card_1.0-1_amd64.deb"
    assert lock.packages["tool"].version == "1.0-1", "the layers below take nothing from it"
    assert names(lock.layer("more")) == ["firmware-card"]
    lock_creation.write(lock, site.lock)
    assert [one.components for one in recipe_resolution.resolve(asked(site)).recipe.sources] == [("main",)] * 3 + [(FIRMWARE,)] * 3
    (site.folder / "small.yaml").write_text(f"{text}\n  - name: more\n    packages: [firmware-card]\n")
    with pytest.raises(BuildError, match=r"its repositories are not those of the recipe \(.*non-free-firmware"):
        recipe_resolution.resolve(asked(site))


def test_a_layer_that_would_replace_a_package_below_it_is_refused(site: Site) -> None:
    site.mirror.publish_flat("flat", [Deb("tool", "9.0"), Deb("driver-stand-in", depends="tool (>= 9)")])
    text = (site.folder / "small.yaml").read_text()
    source = f'{{url: "{site.mirror.url}/flat", suite: /, keyring: {site.mirror.key}}}'
    more = f"\n  - name: gpu\n    sources: [{source}]\n    packages: [driver-stand-in]\n"
    (site.folder / "small.yaml").write_text(text + more)
    with pytest.raises(BuildError, match="tool would be installed a second time"):
        lock_creation.create_lock(asked(site))


@pytest.mark.parametrize(
    ("debs", "sentence"),
    [
        ([one for one in SMALL if one.name != "mpi"], "Unable to locate package mpi"),
        ([one for one in SMALL if one.name != "libmpi"], "mpi : Depends: libmpi|unmet dependencies|held broken"),
        ([*SMALL[:-1], Deb("libmpi", "0.5")], "unmet dependencies|held broken"),
    ],
)
def test_what_cannot_be_had_is_said_in_apts_words(site: Site, debs: list[Deb], sentence: str) -> None:
    site.mirror.publish("bookworm", debs)
    with pytest.raises(FetchError, match=sentence):
        lock_creation.create_lock(asked(site))


def test_a_mirror_with_another_key_is_not_believed(site: Site) -> None:
    (site.folder / "image.yaml").write_text(
        "".join(f"{line}\n" for line in site.spec.read_text().splitlines() if "keyring" not in line)
    )
    if not Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists():
        pytest.skip("debian-archive-keyring is not installed")
    with pytest.raises(FetchError, match=r"NO_PUBKEY|not signed|isn't signed|couldn't be verified"):
        lock_creation.create_lock(asked(site))


def test_a_key_that_is_not_there_is_one_sentence(site: Site) -> None:
    text = site.spec.read_text().replace(str(site.mirror.key), "nowhere.gpg")
    site.spec.write_text(text)
    with pytest.raises(BuildError, match=r"nowhere.gpg, the key of http.*, is not on this machine"):
        lock_creation.create_lock(asked(site))


def test_the_gpu_recipe_locks_with_stand_ins_of_what_nvidia_has(mirror: Mirror, tmp_path: Path) -> None:
    """The shipped recipe as it is, but for its repository: everything that it asks for is there by name."""
    stand_ins = {"driver": "nvidia-open-stand-in", "fabric_manager": "fabric-manager-stand-in"}
    stand_ins |= {"dcgm": "dcgm-stand-in", "toolkit": "cuda-toolkit-stand-in", "subnet_manager": "nvlsm-stand-in"}
    nvidias = [*stand_ins.values(), "nvidia-persistenced"]
    values: dict[str, Any] = {**stand_ins, "nvidia_repository": f"{mirror.url}/cuda", "nvidia_key": str(mirror.key)}
    values["kernel"] = "linux-image-stand-in"
    gpu = recipe_resolution.RecipeRequest(
        recipe="gpu",
        folder=tmp_path,
        variables=values,
        mirror=f"{mirror.url}/debian",
        keyring=str(mirror.key),
        lock="gpu.lock.json",
    )
    layers = [layer for _, layer in gpu.chain().layers]
    wanted = {name: layer for layer in layers for name in layer.packages if name not in nvidias}
    free, firmware = (
        [Deb(name, depends="libc") for name, layer in wanted.items() if (FIRMWARE in layer.components) is apart]
        for apart in (False, True)
    )
    mirror.publish("bookworm", [*SMALL[:4], *free], firmware=firmware, contrib=[Deb("nvidia-support", depends="libc")])
    mirror.publish_flat("cuda", [Deb(name, depends="libc, dkms, nvidia-support") for name in nvidias])
    lock: Lock = lock_creation.create_lock(gpu)
    lock_creation.write(lock, tmp_path / "gpu.lock.json")
    recipe = recipe_resolution.resolve(gpu).recipe
    assert recipe.names == ("base", "hpc", "firmware", "gpu_build", "gpu")
    assert [one.name for one in recipe.layer("gpu").packages] == sorted([*nvidias, "nvidia-support"])
    assert [one.path.split("/")[1] for one in recipe.layer("firmware").packages] == [FIRMWARE] * len(firmware)
    where = {one.name: recipe.sources[one.source].url for one in recipe.layer("gpu").packages}
    assert where == {**dict.fromkeys(nvidias, f"{mirror.url}/cuda"), "nvidia-support": f"{mirror.url}/debian"}
    assert "modprobe.blacklist=nouveau" in recipe.kernel_arguments


@pytest.mark.parametrize(("distribution", "package"), [("debian", "debian-archive-keyring"), ("ubuntu", "ubuntu-keyring")])
def test_a_key_of_a_distribution_is_told_with_its_package(distribution: str, package: str, site: Site) -> None:
    keyring = package_resolution.DISTRIBUTIONS[distribution].keyring
    assert package_resolution.keyring_hint(keyring) == f"apt-get install {package}"
    other = str(site.folder / "lost.gpg")
    with pytest.raises(BuildError, match=r"lost\.gpg, the key of .*, is not on this machine") as error:
        lock_creation.create_lock(dataclasses.replace(asked(site), keyring=other))
    assert error.value.hint == "install the package that brings it, or put it beside the recipe and name it there"
