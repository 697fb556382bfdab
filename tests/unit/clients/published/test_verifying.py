"""Problems that verify and detach-check report in a damaged tree: each wrong file by name, and nothing else."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.clients.releases import preflight
from steps.contract.detachment import Factory
from steps.contract.verdict import Status
from steps.errors import BadTask
from steps.nodeimage.contract.boot_tree import BootGroup, machine_name
from steps.nodeimage.publishing import external_links, image_kind, image_publication
from steps.nodeimage.publishing.image_kind import local_tree
from steps.stages.image_publish import gate as image_publish
from steps.stages.image_publish.contract import PublishedExpectation
from tests.unit.clients.published.published_trees import (
    KINDS,
    URL,
    WITHOUT_RIGHTS,
    image,
    key_pair,
    place,
    published,
    transport,
    wrong,
)

Damage = Callable[[Path], object]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    for text in "ab":
        published(place(root), image(tmp_path / text, text))
    return root


def current(root: Path) -> Path:
    return (root / "compute/current").resolve()


def older(root: Path) -> Path:
    return next((root / "compute/versions").glob("0001-*"))


def replaced(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


def pointing(root: Path, target: str) -> None:
    (root / "compute/current").unlink()
    (root / "compute/current").symlink_to(target)


def lines_kept(root: Path, kept: slice) -> None:
    history = root / "compute/history.jsonl"
    history.write_text("".join(history.read_text().splitlines(keepends=True)[kept]))


DAMAGES: dict[str, tuple[Damage, str, str]] = {
    "missing": (lambda root: (current(root) / "vmlinuz").unlink(), "/vmlinuz", "is missing"),
    "short": (lambda root: os.truncate(current(root) / "root.squashfs", 5), "/root.squashfs", "has 5 bytes instead of 1900"),
    "changed": (lambda root: replaced(current(root) / "initrd.img", "b", "x"), "/initrd.img", "has the digest"),
    "older": (lambda root: replaced(older(root) / "initrd.img", "a", "x"), "versions/0001-", "has the digest"),
    "more": (lambda root: (current(root) / "extra").touch(), "/extra", "is listed nowhere"),
    "tests": (lambda root: replaced(current(root) / "tests.json", "pass", "fail"), "/tests.json", "has the digest"),
    "manifest": (
        lambda root: replaced(current(root) / "manifest.json", "bookworm", "trixie12"),
        "/manifest.json",
        "not that of the version",
    ),
    "no manifest": (lambda root: (current(root) / "manifest.json").unlink(), "/manifest.json", "is missing"),
    "no manifest any more": (lambda root: (current(root) / "manifest.json").write_text("{"), "/manifest.json", "cannot be read"),
    "no list": (lambda root: (current(root) / "SHA256SUMS").unlink(), "/SHA256SUMS", "is missing"),
    "odd list": (lambda root: (current(root) / "SHA256SUMS").write_text("x"), "/SHA256SUMS", "line 1 is no digest"),
    "script": (lambda root: replaced(current(root) / "boot/gpu.ipxe", "nouveau", "xouveau"), "boot/gpu.ipxe", "has the digest"),
    "another's root": (
        lambda root: replaced(
            current(root) / "boot/gpu.ipxe",
            f"fetch=http://boot.example.org/images/compute/versions/{current(root).name}",
            f"fetch=http://boot.example.org/images/compute/versions/{older(root).name}",
        ),
        "boot/gpu.ipxe",
        "names no single version",
    ),
    "no pointer": (lambda root: (root / "compute/current").unlink(), "compute/current", "is missing"),
    "pointer out": (lambda root: pointing(root, "/srv/factory/compute"), "compute/current", "outside of the tree"),
    "pointer to nothing": (lambda root: pointing(root, "versions/0009-aaaaaaaaaaaa"), "compute/current", "is not there"),
    "entry": (lambda root: (root / "boot/gpu.ipxe").unlink(), "boot/gpu.ipxe", "is missing"),
    "entry elsewhere": (
        lambda root: replaced(root / "boot/gpu.ipxe", "boot.example.org", "factory"),
        "boot/gpu.ipxe",
        "not below the address",
    ),
    "entry with more": (
        lambda root: replaced(
            root / "boot/gpu.ipxe", "sleep 10\n", f"sleep 10\nchain {URL}/compute/versions/{older(root).name}/boot/gpu.ipxe ||\n"
        ),
        "boot/gpu.ipxe",
        "is not as this bringup writes it",
    ),
    "entry with a command": (
        lambda root: replaced(root / "boot/default.ipxe", "#!ipxe\n", "#!ipxe\nset net0/dns 192.0.2.1\n"),
        "boot/default.ipxe",
        "is not as this bringup writes it",
    ),
    "start with a command": (
        lambda root: replaced(root / "boot/boot.ipxe", "#!ipxe\n", "#!ipxe\nset net0/dns 192.0.2.1\n"),
        "boot/boot.ipxe",
        "is not as this bringup writes it",
    ),
    "all entries elsewhere": (
        lambda root: [replaced(path, "boot.example.org", "factory") for path in (root / "boot").iterdir()],
        "boot/default.ipxe",
        "is not as this bringup writes it",
    ),
    "a stranger past the pointer": (
        lambda root: (root / "boot/rack7.ipxe").write_text(
            f"#!ipxe\nchain {URL}/compute/versions/{older(root).name}/boot/gpu.ipxe\n"
        ),
        "boot/rack7.ipxe",
        "leads to compute in another way than bringup writes",
    ),
    "history": (lambda root: (root / "compute/history.jsonl").write_text("{\n"), "history.jsonl", "cannot be read"),
    "history without its beginning": (
        lambda root: lines_kept(root, slice(1, None)),
        "history.jsonl",
        "lines before it are missing",
    ),
    "history with a gap": (
        lambda root: replaced(root / "compute/history.jsonl", f'"before":"{older(root).name}"', '"before":"0009-aaaaaaaaaaaa"'),
        "history.jsonl",
        "a line is missing or altered",
    ),
    "writable by others": (
        lambda root: (current(root) / "vmlinuz").chmod(0o666),
        "/vmlinuz",
        "others than its owner may change it",
    ),
    "folder writable by others": (lambda root: current(root).chmod(0o777), "versions/0002-", "others than its owner may change it"),
    "setuid": (lambda root: (current(root) / "vmlinuz").chmod(0o4755), "/vmlinuz", "gets other rights"),
    "unreadable": (lambda root: (older(root) / "vmlinuz").chmod(0o600), "/vmlinuz", "a web server cannot read it"),
    "no signature": (
        lambda root: (current(root) / "manifest.json.sig").write_text("-----BEGIN SSH SIGNATURE-----\n"),
        "/manifest.json.sig",
        "is no signature of manifest.json",
    ),
    "left": (lambda root: (root / "compute/incoming/5f").mkdir(), "incoming/5f", "did not end"),
    "stray": (lambda root: (root / "compute/versions/new").mkdir(), "versions/new", "is no version"),
    "link in a version": (lambda root: (current(root) / "notes").symlink_to("../../.."), "/notes", "neither a file"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named(root: Path, damage: str) -> None:
    act, where, why = DAMAGES[damage]
    assert wrong(root) == []
    act(root)
    found = wrong(root)
    assert any(where in one and why in one for one in found), found
    assert wrong(root, kind="shell") == found


def test_everything_wrong_is_named_at_once(root: Path) -> None:
    for name in ("missing", "older", "stray", "entry"):
        DAMAGES[name][0](root)
    found = wrong(root)
    for name in ("missing", "older", "stray", "entry"):
        assert any(DAMAGES[name][1] in one and DAMAGES[name][2] in one for one in found), (name, found)


def test_what_a_machine_of_another_image_loads_first_is_compared_as_well(root: Path, tmp_path: Path) -> None:
    """Verifying one image also checks the boot scripts of its machines that seem to have moved to another image."""
    mac = "52:54:00:00:00:01"
    published(place(root, BootGroup(name="login", nodes={mac: "login1"})), image(tmp_path / "c", "c", name="login"))
    assert wrong(root) == wrong(root, "login") == []
    own = root / f"boot/{machine_name(mac)}.ipxe"
    replaced(own, "goto next", f"chain {URL}/compute/versions/{older(root).name}/boot/gpu.ipxe || goto next")
    for name in ("compute", "login"):
        assert any(one.startswith(f"boot/{own.name} is not as this bringup writes it") for one in wrong(root, name))
    shutil.rmtree(root / "login")
    assert wrong(root) == [f"boot/{name}.ipxe leads to the image login, which is not here" for name in ("login", own.stem)]


def leads_out(root: Path, factory: Factory, url: str = "") -> list[str]:
    return [one.sentence for one in external_links.external_links(local_tree(root).look("compute"), url, factory)]


def test_a_tree_stands_by_itself_wherever_it_is_moved(root: Path, tmp_path: Path) -> None:
    shutil.move(root, tmp_path / "moved")
    assert leads_out(tmp_path / "moved", Factory(folders=(str(tmp_path / "store"),))) == []
    assert wrong(tmp_path / "moved") == []


@pytest.mark.parametrize("kind", KINDS)
def test_links_into_the_factory(root: Path, tmp_path: Path, kind: str) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (root / "boot/late.img").symlink_to(store / "late.img")
    os.link(current(root) / "vmlinuz", store / "vmlinuz")
    found = leads_out(root, Factory(folders=(str(store),)))
    assert [one.partition(" leads to ")[0] for one in found] == ["boot/late.img", f"compute/versions/{current(root).name}/vmlinuz"]
    assert found[0].endswith("a folder of the factory")
    assert len(wrong(root, kind=kind)) == 2


def test_hosts_of_the_factory(root: Path) -> None:
    replaced(current(root) / "boot/gpu.ipxe", "http://boot.example.org", "http://factory.example.org")
    found = leads_out(root, Factory(hosts=("factory.example.org",)))
    assert found
    assert all(
        "boot/gpu.ipxe leads to http://factory.example.org/" in one and one.endswith("a host of the factory") for one in found
    )


def test_relative_addresses_depend_on_who_serves_them(root: Path) -> None:
    (current(root) / "boot/gpu.ipxe").write_text("#!ipxe\nkernel --name vmlinuz ../vmlinuz || goto failed\nboot || goto failed\n")
    assert any("../vmlinuz: no address of its own" in one for one in leads_out(root, Factory()))


def test_a_file_that_a_script_names_must_be_there(root: Path) -> None:
    (current(root) / "initrd.img").unlink()
    assert any(one.endswith("the tree has no such file") for one in leads_out(root, Factory()))


ELSEWHERE = "http://other.example.org:8080/images"


@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_that_moved_keeps_older_versions_at_their_address(root: Path, tmp_path: Path, kind: str) -> None:
    """Nothing of them can be changed. What nodes are told now is at the new address, an older version at one alone."""
    where = replace(place(root), url=ELSEWHERE)
    seen = published(where, image(tmp_path / "c", "c"), kind)
    assert seen.outside == ()
    verdict = image_publish.tree(seen, PublishedExpectation(groups=("default", "gpu")))
    assert verdict.status is Status.PASS, verdict.reason
    assert published(where, tmp_path / "c", kind).unchanged
    assert wrong(root, kind=kind) == leads_out(root, Factory()) == []
    tree = local_tree(root).look("compute")
    assert (
        list(external_links.moved_versions(tree).values())
        == list(external_links.moved_versions(tree, ELSEWHERE).values())
        == [URL, URL]
    )
    assert leads_out(root, Factory(hosts=("boot.example.org",)))[0].endswith("a host of the factory")
    replaced(older(root) / "boot/gpu.ipxe", f"{URL}/compute", "http://third.example.org/images/compute")
    found = leads_out(root, Factory())
    assert any("0001-" in one and "leads to http://third.example.org/" in one for one in found), found


def test_entries_at_the_address_of_versions_of_long_ago_are_told_after_a_rollback_too(root: Path, tmp_path: Path) -> None:
    where = replace(place(root), url=ELSEWHERE)
    for text in "cd":
        published(where, image(tmp_path / text, text))
    with transport("local", root) as way:
        image_publication.roll_back(way, "compute", "", "ada")
    assert wrong(root) == []
    for script in (root / "boot").iterdir():
        replaced(script, ELSEWHERE, URL)
    assert any(one.startswith("boot/gpu.ipxe") for one in wrong(root)), wrong(root)


@pytest.mark.parametrize("url", ["http://boot.example.org/compute", "http://compute/images"])
def test_an_address_with_the_name_of_the_image_in_it_is_the_address_of_the_tree(tmp_path: Path, url: str) -> None:
    where = replace(place(tmp_path / "tree"), url=url)
    (tmp_path / "tree").mkdir()
    for text in "ab":
        assert published(where, image(tmp_path / text, text)).outside == ()
    tree = local_tree(tmp_path / "tree").look("compute")
    assert external_links.url_of(tree) == url
    assert {version: external_links.version_url(tree, version) for version in tree.versions} == dict.fromkeys(tree.versions, url)
    assert external_links.moved_versions(tree) == external_links.moved_versions(tree, url) == {}
    assert wrong(tmp_path / "tree") == leads_out(tmp_path / "tree", Factory()) == []
    (tmp_path / "tree/boot/memtest.ipxe").write_text(f"#!ipxe\nkernel {url}/tools/memtest\n")
    assert not any("leads to compute" in one for one in wrong(tmp_path / "tree")), "a script of the site's own leads to no image"


@pytest.mark.parametrize("file", ["compute/current/boot/gpu.ipxe", "boot/gpu.ipxe", "boot/boot.ipxe"])
def test_what_nodes_are_told_now_must_be_at_the_address_of_today(root: Path, tmp_path: Path, file: str) -> None:
    where = replace(place(root), url=ELSEWHERE)
    published(where, image(tmp_path / "c", "c"))
    replaced(root / file, ELSEWHERE, URL)
    with transport("local", root) as way:
        tree = way.look("compute")
    found = [link.sentence for link in preflight.external_links(image_kind.image_kind(ELSEWHERE), tree)]
    assert any("boot/" in one and f"leads to {URL}/" in one and "not below the address" in one for one in found), found


LOOKS = """
import sys
from pathlib import Path
from steps.nodeimage.publishing import image_kind
from steps.clients.releases.release_tree import ALL
from tests.unit.clients.published.published_trees import transport
with transport(sys.argv[1], Path(sys.argv[2])) as way:
    found = way.look("compute", (ALL,))
print(found.products, [f"{one.place} {one.why}" for one in image_kind.problems(found)])
"""


@pytest.mark.parametrize("kind", KINDS)
def test_what_this_user_may_not_read_is_named_and_hinders_nothing_else(root: Path, kind: str) -> None:
    """A tree may be a file system of its own, with a `lost+found` that only root enters."""
    (root / "lost+found").mkdir(mode=0o000)
    (kernel,) = (root / "compute/versions").glob("0001-*/vmlinuz")
    kernel.chmod(0o000)
    done = subprocess.run(
        [*WITHOUT_RIGHTS, sys.executable, "-c", LOOKS, kind, str(root)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"('compute',) ['{kernel.relative_to(root)} could not be read']"


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path, str]:
    """A tree with two signed versions, the folder of its key, and its public key."""
    root, secrets = tmp_path / "signed", tmp_path / "keys"
    root.mkdir()
    secrets.mkdir()
    public = key_pair(secrets)
    for text in "ab":
        published(place(root, key="key", signers=(public,)), image(tmp_path / f"signed-{text}", text), secrets=secrets)
    return root, secrets, public


def stated(root: Path, **changes: object) -> None:
    file = root / "compute/current.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_pointer_that_is_led_back_to_a_signed_old_version_is_noticed(signed: tuple[Path, Path, str]) -> None:
    root, _, public = signed
    assert wrong(root, signers=(public,)) == []
    history = root / "compute/history.jsonl"
    kept = history.read_bytes()
    pointing(root, f"versions/{older(root).name}")
    lines_kept(root, slice(0, 1))
    found = wrong(root, signers=(public,))
    assert any("compute/current.json" in one and "but the pointer leads to 0001-" in one for one in found), found
    pointing(root, f"versions/{next((root / 'compute/versions').glob('0002-*')).name}")
    history.write_bytes(kept)
    assert wrong(root, signers=(public,)) == []
    (root / "compute/current.json").unlink()
    assert any("led back to an old version" in one for one in wrong(root, signers=(public,)))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"expires": 4e9}, "no trusted key made"),
        ({"at": 1.0, "expires": 2.0}, "expired on 1970-01-01"),
        ({"at": 1.0, "expires": -1e300}, "expired on 1970-01-01"),
        ({"at": 4e9, "expires": 5e9}, "was made in the future"),
        ({"signature": ""}, "no trusted key made"),
        ({"surplus": 1}, "cannot be read"),
        ({"product": "other"}, "says that other"),
    ],
)
def test_a_statement_that_was_altered_is_named(signed: tuple[Path, Path, str], changes: dict[str, object], why: str) -> None:
    root, _, public = signed
    stated(root, **changes)
    assert any("compute/current.json" in one and why in one for one in wrong(root, signers=(public,)))


def test_publishing_the_same_again_renews_an_old_statement_and_nothing_else(signed: tuple[Path, Path, str], tmp_path: Path) -> None:
    root, secrets, public = signed
    where, folder = place(root, key="key", signers=(public,)), tmp_path / "signed-b"
    before = (root / "compute/current.json").read_bytes()
    published(where, folder, secrets=secrets)
    assert (root / "compute/current.json").read_bytes() == before
    stated(root, expires=1.0)
    history = (root / "compute/history.jsonl").read_bytes()
    published(where, folder, secrets=secrets)
    assert wrong(root, signers=(public,)) == []
    assert (root / "compute/history.jsonl").read_bytes() == history


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollback_without_a_key_leaves_the_pointer_unsigned_until_somebody_signs(
    signed: tuple[Path, Path, str], tmp_path: Path, kind: str
) -> None:
    root, secrets, public = signed
    with transport(kind, root) as way:
        done = image_publication.roll_back(way, "compute", "", "ada", (public,))
        assert done.statement == "missing"
        assert not (root / "compute/current.json").exists()
        assert [one for one in wrong(root, signers=(public,)) if "current.json" not in one] == []
        assert any("led back to an old version" in one for one in wrong(root, signers=(public,))), "a line in history is no proof"
        again = image_publication.roll_back(way, "compute", done.to, "ada", (public,), secrets / "key")
    assert (again.to, again.before, again.statement) == (done.to, done.to, "signed")
    assert wrong(root, signers=(public,)) == []
    published(place(root, key="key", signers=(public,)), image(tmp_path / "c", "c"), kind, secrets=secrets)
    assert wrong(root, signers=(public,)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollback_with_the_publishers_key_signs_the_statement_anew(
    signed: tuple[Path, Path, str], tmp_path: Path, kind: str
) -> None:
    root, secrets, public = signed
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    key_pair(stranger)
    with transport(kind, root) as way:
        before = (root / "compute/current.json").read_bytes()
        with pytest.raises(BadTask, match="none of the trusted keys"):
            image_publication.roll_back(way, "compute", "", "ada", (public,), stranger / "key")
        assert (root / "compute/current.json").read_bytes() == before
        done = image_publication.roll_back(way, "compute", "", "ada", (public,), secrets / "key")
    assert done.statement == "signed"
    assert json.loads((root / "compute/current.json").read_text())["version"] == done.to
    assert wrong(root, signers=(public,)) == []
