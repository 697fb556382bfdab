"""Publishing on NFS, for real: the kernel's own server and two clients, NFSv4.2 and NFSv3, in a machine under QEMU.

What `test_nfs_like` has a stand-in say, and how often it likes, the real ones say here where they come to it.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from steps.nodeimage.contract.boot_tree import BootGroup, PublishTarget
from steps.nodeimage.publishing import image_kind, image_publication
from tests.boot.published import nfs_site
from tests.boot.published.clients import turns
from tests.boot.published.nfs_guest import Answer
from tests.boot.published.nfs_mounts import SILLY
from tests.boot.published.nfs_site import SERVER, VERSIONS, Site
from tests.hosts.machine import qemu
from tests.unit.clients.published.published_trees import KINDS, image, order, silent

pytestmark = pytest.mark.long
PART, NAMED, POINTED = "/version/root.squashfs", "Move(", "Replace("
"""Steps of a publication, of which each is the first: the largest file, the version's name, the pointer."""
KILLED = {
    "with half a file": (PART, 'echo half > "$AT"; kill -9 $PPID'),
    "before the pointer is set": (POINTED, "kill -9 $PPID"),
}
STALE, SILENT = "Stale file handle", "(Input/output error|Connection timed out)"
OLD = "-10 minutes"
"""Longer than a lease."""


@pytest.fixture(scope="module")
def site(able: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A machine with a file server and its clients."""
    if odd := nfs_site.fitting():
        pytest.skip(odd)
    folder = tmp_path_factory.mktemp("machine")
    with qemu.started(qemu.made(folder), folder) as machine, nfs_site.served(machine) as made:
        yield made


class Tree(Struct, frozen=True):
    """A folder to publish into, as each mount has it."""

    site: Site
    version: str
    name: str

    @property
    def there(self) -> Path:
        """On the server."""
        return SERVER / "images" / self.name

    def at(self, mount: str = "one") -> str:
        """On a mount."""
        return f"/mnt/{self.version}/{mount}/{self.name}"

    def seen(self) -> dict[str, Any]:
        """Return the server's view of the tree; nothing in it may be wrong, and a node must boot the current version."""
        found = self.site.server.ask("looked", root=str(self.there))
        assert (found["wrong"], found["booted"], found["told"][-1]) == ([], found["current"], found["current"])
        return dict(found)

    def publish(self, text: str, mount: str = "one", **words: Any) -> dict[str, Any]:
        """By client one, and look."""
        done = self.site.one.ask("publish", root=self.at(mount), text=text, **words)
        assert (done["incoming"], self.seen()["current"]) == ([], done["version"])
        return dict(done)

    def answered(self, mount: str) -> None:
        """Wait until the server, just started, takes what a mount that gives up asks: not before its time of grace is over."""
        path = f"{self.at(mount)}.answered"
        self.site.run(f"until touch {path}; do sleep 0.2; done; rm {path}")

    def largest(self, version: str, mount: str = "") -> str:
        """The largest file of a version: on a mount, else on the server."""
        return f"{self.at(mount) if mount else self.there}/compute/versions/{version}/root.squashfs"

    def digest(self, version: str) -> str:
        """Of that one."""
        return "sha256:" + self.site.run(f"sha256sum < {self.largest(version)}").split()[0]


@pytest.fixture(params=VERSIONS)
def tree(site: Site, request: pytest.FixtureRequest) -> Tree:
    """A folder on the server, for a test of one version of NFS."""
    name = site.run(f"folder=$(mktemp -d {SERVER}/images/XXXXXX); chmod 755 $folder; basename $folder").strip()
    return Tree(site, str(request.param), name)


def test_two_clients_take_turns_and_a_node_never_boots_half_a_version(site: Site, tree: Tree) -> None:
    mounts = dict(line.split()[1:3] for line in site.run("grep /mnt/ /proc/mounts").splitlines())
    kinds = {mounts[f"/mnt/{tree.version}/{mount}"] for mount in ("one", "two", "quick")}
    assert kinds == {"nfs4" if tree.version[0] == "4" else "nfs"}
    first = tree.publish("first")["version"]

    over, log = f"/root/over-{tree.name}", f"/root/log-{tree.name}"
    site.reader.begin("booted_until", roots=[tree.at("two"), tree.at("quick")], over=over)
    for agent, who in ((site.one, "one"), (site.two, "two")):
        texts = [f"{who}{number}" for number in range(3)]
        agent.begin("publish_all", root=tree.at(who), texts=texts, log=log, who=who)
    site.one.done(), site.two.done()
    site.run(f"touch {over}")
    slow, quick = site.reader.done()

    assert set(turns(site.run(f"cat {log}"))) == {("one", "one"), ("two", "two")}, "one begins where another has not ended"
    told = tree.seen()["told"]
    assert [one[:4] for one in told] == [f"{number:04d}" for number in range(1, 8)], "each has seen what the other published"
    assert (slow[0], quick[0]) == (first, first)
    assert [one for one in told if one in slow] == slow, "also where a client believes for a while what it knows"
    assert [one for one in told if one in quick] == quick
    assert len(quick) > 1
    assert site.two.ask("rollback", root=tree.at("two")) == told[-2]
    assert tree.seen()["current"] == told[-2]


@pytest.mark.parametrize(("tree", "when"), [("4.2", "with half a file"), ("3", "before the pointer is set")], indirect=["tree"])
def test_after_a_publisher_was_killed_the_next_one_goes_on(site: Site, tree: Tree, when: str) -> None:
    """At once on the same machine; on another one when its lock is old, by the server's clock."""
    first, (at, line) = tree.publish("first")["version"], KILLED[when]
    for agent, mount in ((site.two, "two"), (site.one, "one")):
        killed = agent.answer("publish", root=tree.at(mount), text=f"killed at {mount}", at=at, line=line)
        assert (killed.ended, killed.said) == (-9, "")
        assert site.server.ask("booted", root=str(tree.there)) == first
        if mount == "two":
            refused = site.one.answer("publish", root=tree.at(), text="next")
            assert (refused.error, refused.failure) == ("StoreBusy", "runtime"), refused.said
            assert "publishes into compute right now" in refused.said
            site.run(f"touch -d '{OLD}' {tree.there}/compute/incoming/.lock.*")
        first = tree.publish(f"after {mount}")["version"]


def test_a_server_that_restarts_is_waited_for(site: Site, tree: Tree) -> None:
    """NFSv4 has a time of grace then, for clients to say what they have open."""
    first, graces = tree.publish("first")["version"], grace_times(site)
    site.two.ask("left_open", path=tree.largest(first, "two"))
    answer = site.one.answer("publish", root=tree.at(), text="next", at=PART, line="systemctl restart nfs-server")
    assert (answer.error, answer.ended) == ("", 0), answer.said
    assert tree.seen()["current"] == answer.value["version"]
    assert site.two.ask("read_on") == tree.digest(first)
    assert grace_times(site) - graces == 1


@pytest.mark.parametrize("tree", ["4.2"], indirect=True)
def test_a_publisher_that_waits_for_its_server_can_be_killed(site: Site, tree: Tree) -> None:
    first = tree.publish("first")
    site.one.begin("publish", root=tree.at(), text="killed", at=PART, line="echo $PPID > /root/waits; systemctl stop nfs-server")
    try:
        site.run("until grep -qs '^State:.D' /proc/$(cat /root/waits)/status; do sleep 0.2; done")
        site.run("kill -9 $(cat /root/waits)")
        assert site.one.end().ended == -9
    finally:
        site.run("systemctl start nfs-server; rm /root/waits")
    assert site.server.ask("booted", root=str(tree.there)) == first["version"]
    tree.publish("next")


@pytest.mark.parametrize(
    ("tree", "mount", "kind"), [("4.2", "soft", "local"), ("3", "softerr", "local"), ("4.2", "softerr", "shell")], indirect=["tree"]
)
def test_where_a_mount_gives_up_nothing_is_half_published(site: Site, tree: Tree, mount: str, kind: str) -> None:
    first = tree.publish("first")
    try:
        answer = site.one.answer("publish", root=tree.at(mount), text="next", kind=kind, at=PART, line="systemctl stop nfs-server")
    finally:
        site.run("systemctl start nfs-server")
    assert_gave_up(answer, SILENT)
    assert site.server.ask("booted", root=str(tree.there)) == first["version"]
    tree.answered(mount)
    tree.publish("next", mount)


@pytest.mark.parametrize(("tree", "kind"), [("4.2", "shell"), ("3", "local")], indirect=["tree"])
def test_what_is_no_longer_exported_is_stale_until_it_is_again(site: Site, tree: Tree, kind: str) -> None:
    first = tree.publish("first")
    try:
        line = f"exportfs -u 10.9.0.0/16:{SERVER}/images"
        answer = site.one.answer("publish", root=tree.at(), text="next", kind=kind, at=NAMED, line=line)
    finally:
        site.run("exportfs -r")
    assert_gave_up(answer, STALE)
    assert site.server.ask("booted", root=str(tree.there)) == first["version"]
    tree.publish("next")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_folder_that_was_made_anew_is_stale_until_it_is_mounted_again(site: Site, version: str) -> None:
    """For whoever comes next too: that nothing is there is not what is told."""
    root, there = f"/mnt/{version}/again", f"{SERVER}/again"
    mount = f"umount {root}; {nfs_site.mounting('one', version, 'again')}"
    site.run(mount)  # the other version's test has made it anew
    site.one.ask("publish", root=root, text="first")
    line = f"rm -r {there}; mkdir {there}; exportfs -f"
    assert_gave_up(site.one.answer("publish", root=root, text="next", at=POINTED, line=line), STALE)
    for kind in KINDS:
        assert_gave_up(site.one.answer("publish", root=root, text="next", kind=kind), STALE)
    site.run(mount)
    assert site.one.ask("publish", root=root, text="next")["version"][:5] == "0001-"
    assert site.server.ask("looked", root=there)["wrong"] == []


@pytest.mark.parametrize(("tree", "kind"), [("4.2", "local"), ("3", "shell")], indirect=["tree"])
def test_a_removed_version_that_is_still_read_goes_when_it_is_not(site: Site, tree: Tree, kind: str) -> None:
    (old,) = tree.publish("first", keep=2)["versions"]
    tree.publish("second", keep=2)
    digest = tree.digest(old)
    site.one.ask("left_open", path=tree.largest(old, "one"))
    answer = site.one.answer("publish", root=tree.at(), text="third", kind=kind, keep=2)
    silly = site.run(f"find {tree.there}/compute/incoming -name '{SILLY}*'").split()
    assert site.one.ask("read_on") == digest
    assert (answer.error, answer.failure) == ("StoreBusy", "runtime"), answer.said
    assert "is still open" in answer.said
    assert "publish again" in answer.hint
    assert len(silly) == 1, "it has another name as long as it is open"
    versions = tree.publish("third", keep=2)["versions"]
    assert [one[:5] for one in versions] == ["0002-", "0003-"]


@pytest.mark.parametrize("version", VERSIONS)
def test_who_may_not_write_is_told_so(site: Site, version: str) -> None:
    """Root is nobody where an export says so."""
    root, there = f"/mnt/{version}/squashed", f"{SERVER}/squashed"
    site.run(f"chown root:root {there}")
    for call in ("publish", "status_of"):
        refused = site.one.answer(call, root=root, text="first")
        assert (refused.error, refused.failure) == ("Refused", "permission"), refused.said
        assert "this user lacks a right" in refused.said
    assert site.run(f"ls -A {there}") == ""
    site.run(f"chown nobody:nogroup {there}")
    site.one.ask("publish", root=root, text="first")
    assert site.server.ask("looked", root=there)["wrong"] == []
    site.run(f"find {there} -mindepth 1 -delete")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_may_only_be_read_is_read_and_not_written(site: Site, version: str) -> None:
    root, there = f"/mnt/{version}/readonly", f"{SERVER}/readonly"
    site.server.ask("publish", root=there, text="first")
    assert site.one.ask("looked", root=root)["wrong"] == []
    for kind in KINDS:
        refused = site.one.answer("publish", root=root, text="next", kind=kind)
        assert (refused.error, refused.failure) == ("StoreBusy", "runtime"), refused.said
        assert "Read-only file system" in refused.said
    assert site.one.ask("booted", root=root)[:5] == "0001-"


@pytest.mark.parametrize("tree", ["4.2"], indirect=True)
def test_from_here_by_ssh_into_a_mount_there(site: Site, tree: Tree, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name, path in (("key", site.machine.disk.key), ("known", site.machine.known_hosts)):
        (secrets / name).write_bytes(path.read_bytes())
        (secrets / name).chmod(0o600)
    where = PublishTarget(
        root=tree.at(),
        url="http://boot.example.org/images",
        host="127.0.0.1",
        user="root",
        port=site.machine.port,
        groups=(BootGroup(name="default"), BootGroup(name="gpu")),
        ssh_key="key",
        known_hosts="known",
    )
    first = tree.publish("first")["version"]
    seen = image_publication.publish(order(where, image(tmp_path / "next", "next"), secrets, {}), silent)
    assert (seen.before, tree.seen()["current"]) == (first, seen.version)
    with image_kind.connect(where, secrets) as way:
        assert image_publication.roll_back(way, "compute", "", "me").to == first
    assert tree.seen()["current"] == first


def assert_gave_up(answer: Answer, why: str) -> None:
    """One clear sentence, and that it may be tried again."""
    assert (answer.error, answer.failure) == ("StoreBusy", "runtime"), answer
    assert re.search(why, answer.said), answer.said
    assert "\n" not in answer.said
    assert "its mount went away" in answer.hint


def grace_times(site: Site) -> int:
    """Return how often the NFS server has started a grace period, in which it waits for clients that it knew."""
    return int(site.run("dmesg | grep -c 'starting .*grace period' || true"))
