"""`bringup image recipes`, `lock` and `update` as a person or a script meets them; and `validate` of image specs and recipes."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.unit.images.nodes.conftest import SMALL, Deb, Site


def test_lock_keeps_the_packages_so_that_no_mirror_is_needed(site: Site) -> None:
    done = site.bringup("image", "lock", "image.yaml")
    assert done.returncode == 0, done.stderr
    assert "small.lock.json: 7 packages (base 5, hpc 2)" in done.stdout
    assert "all 7 kept, 7 of them now" in done.stdout
    assert len(list((site.folder / "home/store/images/archive").rglob("*.deb"))) == 7
    assert site.bringup("validate", "image.yaml").returncode == 0
    again = site.bringup("image", "lock", "image.yaml", "--no-keep")
    assert (again.returncode, "as before" in again.stdout) == (0, True)


def test_a_package_that_cannot_be_kept_is_temporary(site: Site) -> None:
    for path in site.mirror.folder.rglob("libmpi*.deb"):
        path.unlink()
    done = site.bringup("image", "lock", "image.yaml")
    assert done.returncode == 75
    assert "1 package could not be kept: libmpi=1:2.0+b1: 127.0.0.1" in done.stderr
    assert "answers 404" in done.stderr


def test_a_mirror_that_is_away_is_temporary_and_leaves_the_lock_alone(site: Site) -> None:
    site.bringup("image", "lock", "image.yaml", "--no-keep")
    before = site.lock.read_bytes()
    site.spec.write_text(site.spec.read_text().replace(site.mirror.url, "http://127.0.0.1:1"))
    recipe = site.folder / "small.yaml"
    recipe.write_text(recipe.read_text().replace("[mpi]", "[mpi, htop]"))
    done = site.bringup("image", "lock", "image.yaml")
    assert (done.returncode, site.lock.read_bytes()) == (75, before)
    (said, _) = done.stderr.split("\n", 1)
    assert re.search(r"apt cannot resolve the recipe: http://127.0.0.1:1/\S+ cannot be fetched: Could not connect", said), said
    assert len(said) < 350


PROXIES = tuple(name for one in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (one, one.upper()))


@pytest.fixture
def behind(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site behind a proxy that only apt is configured for: no other program can resolve the mirror's name."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    site.spec.write_text(site.spec.read_text().replace(site.mirror.url, "http://mirror.invalid"))
    settings = site.folder / "apt.conf"
    settings.write_text(f'Acquire::http::Proxy "{site.mirror.url}";\n')
    monkeypatch.setenv("APT_CONFIG", str(settings))
    return site


def test_packages_are_kept_by_the_proxy_that_made_the_lock(behind: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    done = behind.bringup("image", "lock", "image.yaml")
    assert done.returncode == 0, done.stderr
    assert "all 7 kept, 7 of them now" in done.stdout
    (behind.folder / "other").mkdir()
    monkeypatch.setenv("BRINGUP_HOME", str(behind.folder / "other"))
    monkeypatch.setenv("http_proxy", "http://ada:crowd@127.0.0.1:1")
    done = behind.bringup("image", "lock", "image.yaml")
    assert done.returncode == 75, "what the environment names goes before"
    why = "mirror.invalid does not answer through proxy 127.0.0.1:1, which the environment names: Connection refused"
    assert why in done.stderr
    assert "hint: run it again when the mirror answers; it is asked by the proxy that http_proxy or" in done.stderr


def test_update_shows_what_would_change_before_anything_is_built(site: Site) -> None:
    site.bringup("image", "lock", "image.yaml", "--no-keep")
    before = site.lock.read_bytes()
    site.mirror.publish(
        "bookworm", [*(one for one in SMALL if one.name != "libmpi"), Deb("libmpi", "1:2.1", depends="libfabric"), Deb("libfabric")]
    )
    site.mirror.publish("bookworm-security", [Deb("libc", "1.0-1+deb12u1", of="glibc")], archive="debian-security")
    feed = {"glibc": {"CVE-2026-0001": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "1.0-1+deb12u1"}}}}}
    (site.folder / "feed.json").write_text(json.dumps(feed))
    done = site.bringup("image", "update", "image.yaml", "--cves", "feed.json")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert rows["libc"][:4] == ["base", "1.0-1", "1.0-1+deb12u1", "CVE-2026-0001"]
    assert rows["libfabric"][:3] == ["hpc", "-", "1.0-1"]
    assert "1 added, 0 removed, 2 changed" in done.stdout
    assert "vulnerabilities: 1 fixed by it, 0 left" in done.stdout
    assert site.lock.read_bytes() == before
    told = json.loads(site.bringup("image", "update", "image.yaml", "--write", "-o", "json").stdout)
    assert [(one["kind"], one["package"]) for one in told["changes"]] == [
        ("changed", "libc"),
        ("added", "libfabric"),
        ("changed", "libmpi"),
    ]
    assert site.lock.read_bytes() != before
    assert "nothing newer" in site.bringup("image", "update", "image.yaml").stdout


def test_update_of_what_was_never_locked_counts_what_comes(site: Site) -> None:
    done = site.bringup("image", "update", "image.yaml")
    assert done.returncode == 0
    assert "small.lock.json (no lock yet): 7 added, 0 removed, 0 changed" in done.stdout


def test_recipes_are_listed_with_layers_packages_and_sizes(site: Site) -> None:
    shipped = {row["name"]: row for row in yaml.safe_load(site.bringup("image", "recipes", "-o", "yaml").stdout)}
    assert set(shipped) >= {"base", "compute", "gpu", "site"}
    assert (shipped["compute"]["lock"], shipped["gpu"]["lock"]) == ("fits", "none")
    assert shipped["compute"]["layers"][0] == shipped["base"]["layers"][0]
    assert shipped["compute"]["download_bytes"] > shipped["base"]["download_bytes"] > 50_000_000
    folder = site.folder / "recipes"
    folder.mkdir()
    (folder / "broken.yaml").write_text("apiVersion: bringup/v1\nkind: ImageRecipe\n")
    done = site.bringup("image", "recipes", str(folder))
    assert done.returncode == 64
    assert "a recipe stands on another, or on a foundation of its own (4 errors)" in " ".join(done.stdout.split())


def test_what_is_wrong_with_a_recipe_is_said_before_any_mirror_is_asked(site: Site) -> None:
    (site.folder / "small.yaml").write_text("apiVersion: bringup/v1\nkind: ImageRecipe\nname: small\nlayers: []\n")
    for words in (("image", "lock"), ("image", "update"), ("validate",)):
        done = site.bringup(*words, "image.yaml")
        assert done.returncode == 64
        assert "small.yaml has" in done.stderr
    assert site.bringup("image", "lock", "nosuch").returncode == 64
    assert site.bringup("image", "lock", "nosuch.yaml").returncode == 64


def test_one_round_names_what_is_wrong_with_spec_recipe_and_tree(site: Site) -> None:
    site.bringup("image", "lock", "image.yaml", "--no-keep")
    recipe = site.folder / "small.yaml"
    recipe.write_text(recipe.read_text().replace("[mpi]", "[mpi, mpi]").replace("budget_mib: 10", "budget_mib: lots"))
    built = site.bringup("image", "build", "image.yaml")
    assert built.returncode == 64
    assert "image.yaml has 3 errors" in built.stderr
    assert "publish.root /srv/no-images is no folder of this machine" in built.stderr
    assert "small.yaml:15: layers[1].packages\n  value  mpi\n  error  it stands twice" in built.stderr
    site.spec.write_text(site.spec.read_text().replace("owner: hpc@example.org\n", "") + "variables: {greetings: x}\n")
    for words in (("validate",), ("image", "build"), ("image", "lock"), ("image", "update")):
        done = site.bringup(*words, "image.yaml")
        assert done.returncode == 64
        assert "image.yaml has 4 errors" in done.stderr, words
        assert {"image.yaml: owner", "image.yaml: variables.greetings"} <= set(done.stderr.splitlines())
        assert "image.yaml: small.yaml:16: layers[1].budget_mib" in done.stderr


def test_validate_finds_what_a_build_would_stop_at(site: Site) -> None:
    site.bringup("image", "lock", "image.yaml", "--no-keep")
    recipe = site.folder / "small.yaml"
    recipe.write_text(
        recipe.read_text().replace(
            "    budget_mib: 10\n",
            "    files: [{path: /etc/issue, source: files/issue}]\n"
            "    users: [{name: root, uid: 0}, {name: ada, uid: 1000}, {name: bob, uid: 1000}]\n",
        )
    )
    for name in ("image.yaml", "small.yaml"):
        done = site.bringup("validate", name)
        assert done.returncode == 64
        assert "files/issue\n  error  the file cannot be read: No such file or directory" in done.stderr
        assert "root is in every image already" in done.stderr
        assert "ada has this number" in done.stderr


def test_a_spec_never_writes_the_lock_of_a_shipped_recipe(site: Site) -> None:
    site.spec.write_text(site.spec.read_text().replace("recipe: small.yaml", "recipe: base"))
    for words in (("lock", "image.yaml"), ("update", "image.yaml", "--write")):
        done = site.bringup("image", *words)
        assert (done.returncode, "add lock: base.lock.json to the spec" in done.stderr) == (64, True)


def test_validate_says_when_a_lock_is_missing_or_old(site: Site) -> None:
    done = site.bringup("validate", "image.yaml")
    assert (done.returncode, "small.lock.json is not there" in done.stdout) == (64, True)
    assert "bringup image lock image.yaml" in done.stdout
    alone = site.bringup("validate", "small.yaml")
    assert (alone.returncode, "1 warning" in alone.stdout) == (0, True)
    site.bringup("image", "lock", "image.yaml", "--no-keep")
    recipe = site.folder / "small.yaml"
    recipe.write_text(recipe.read_text().replace("[tool]", "[tool, htop]"))
    done = site.bringup("validate", "image.yaml", "-o", "json")
    (issue,) = json.loads(done.stdout)["issues"]
    assert "layer base asks for htop, which it lacks" in issue["problem"]


def test_validate_says_that_no_test_machine_boots_it(site: Site) -> None:
    recipe = site.folder / "small.yaml"
    recipe.write_text(recipe.read_text().replace("release: bookworm,", "release: bookworm, architecture: arm64,"))
    done = site.bringup("validate", "image.yaml", "-o", "json")
    found = {one["rule"]: one for one in json.loads(done.stdout)["issues"]}
    assert done.returncode == 64
    assert found["booted"]["severity"] == "error"
    assert found["booted"]["problem"].startswith("recipe small is for arm64, and test machines are amd64")
    assert "--until image_sandbox" in found["booted"]["fix"]
    alone = site.bringup("validate", "small.yaml")
    assert (alone.returncode, "2 warnings" in alone.stdout, "is for arm64" in alone.stdout) == (0, True, True)


def test_the_schema_of_a_recipe_is_for_editors(tmp_path: Path, site: Site) -> None:
    assert json.loads(site.bringup("schema", "ImageRecipe").stdout)["title"] == "bringup/v1 ImageRecipe"
    assert "Cluster, Factory, Stack, Image, ImageRecipe" in site.bringup("schema", "Recipe").stderr
