"""The spec of a schedule, whose key for the boot server is a Secret of home, at a person's hands: after a bad night one goes back.

The server is this machine, behind a stand-in for ssh that lets nobody in but with the right key.
"""

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit import warm_commands
from tests.unit.clients.published.published_trees import image, place, published
from tests.unit.engines.argo.lab import Lab

KEY, MINE = "the key of pods\n", "my own key\n"
SSH = """#!/bin/sh
who=root
while [ "$1" != -- ]; do
  case $1 in -i) key=$2 ;; -l) who=$2 ;; esac
  shift
done
grep -qxF "$who $(cat "$key")" "${0%/*}/allowed" || { echo "$who: Permission denied (publickey)." >&2; exit 255; }
exec sh -c "$3"
"""
"""`ssh -o … -i KEY -l WHO -- HOST PROGRAM`, as OpenSSH calls its server's shell."""


@pytest.fixture
def site(cluster: Lab, tmp_path: Path) -> "Site":
    return Site(cluster, tmp_path / "site")


class Site:
    """A tree of two versions, a spec as a schedule wants it, and a shell whose ssh is the stand-in."""

    def __init__(self, cluster: Lab, folder: Path) -> None:
        self.cluster, self.folder, self.root = cluster, folder, folder / "tree"
        self.root.mkdir(parents=True)
        for text in "ab":
            published(place(self.root), image(folder / text, text))
        (folder / "bin").mkdir()
        (folder / "bin/ssh").write_text(SSH)
        (folder / "bin/ssh").chmod(0o755)
        (folder / "bin/allowed").write_text(f"root {KEY}ada {MINE}")
        (folder / "known_hosts").write_text("")
        (folder / "mine").write_text(MINE)
        ssh = {"host": "boot", "key": {"secret": {"name": "boot-server", "key": "ssh"}}, "known_hosts": "known_hosts"}
        told = {"root": str(self.root), "url": "http://boot.example.org/images", "ssh": ssh}
        schedule = {"cron": ["0 3 * * *"], "source": {"repository": "https://git.example.org/site.git", "path": "image.yaml"}}
        spec = {"apiVersion": "bringup/v1", "kind": "Image", "name": "lab", "owner": "hpc", "revision": "1", "recipe": "base"}
        (folder / "image.yaml").write_text(yaml.safe_dump({**spec, "publish": told, "schedule": schedule}))

    def secret(self, key: str) -> None:
        """The Secret of home, with this key in it."""
        meta = {"name": "boot-server", "namespace": self.cluster.where.namespace}
        self.cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {key: encoded(KEY)}})

    def call(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "HOME")}
        path = f"{self.folder / 'bin'}:{kept['PATH']}"
        told = kept | {"PATH": path, "HOME": str(self.folder), "BRINGUP_HOME": str(self.folder / "home")} | environment
        return warm_commands.run(["image", *words], told, self.folder)

    @property
    def home(self) -> tuple[str, ...]:
        """Words that say which the home cluster is."""
        where = self.cluster.where
        return "--home-kubeconfig", where.kubeconfig, "--namespace", where.namespace

    @property
    def current(self) -> str:
        return (self.root / "compute/current").readlink().name[:4]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_every_command_about_a_tree_reads_the_key_of_home(site: Site) -> None:
    site.secret("ssh")
    done = site.call("rollback", "--as", "ada", *site.home)
    assert (done.returncode, site.current) == (0, "0001"), done.stderr
    for command, good in (("list", 0), ("nodes", 0), ("verify", 0), ("detach-check", 65)):
        done = site.call(command, *site.home)
        assert (done.returncode, "error" in done.stderr) == (good, False), f"{command}: {done.stderr}"
    where = site.cluster.where
    by_environment: dict[str, Any] = {"KUBECONFIG": where.kubeconfig}
    listed = site.call("list", "-o", "json", "--namespace", where.namespace, **by_environment)
    assert [row["version"][:4] for row in json.loads(listed.stdout)] == ["0002", "0001"]


def test_what_keeps_a_person_from_the_key_is_said_with_the_way_around_it(site: Site) -> None:
    def refused(*words: str) -> str:
        done = site.call("rollback", *words)
        assert (done.returncode, site.current) == (64, "0002"), done.stderr
        assert "log in as yourself, with --ssh-key and --ssh-user" in done.stderr
        return done.stderr

    assert "a key of the Secret boot-server of the home cluster, and no kubeconfig of the home cluster is given" in refused()
    assert "of the home cluster has no Secret boot-server" in refused(*site.home)
    site.secret("other")
    assert "Secret boot-server of the home cluster has no key ssh" in refused(*site.home)


def test_who_may_read_no_secret_logs_in_as_oneself(site: Site) -> None:
    done = site.call("rollback", "--ssh-key", "mine", "--ssh-user", "ada")
    assert (done.returncode, site.current) == (0, "0001"), done.stderr
    assert "root: Permission denied" in site.call("list", "--ssh-key", "mine").stderr
    both = site.call("list", "--ssh-key", "mine", *site.home)
    assert (both.returncode, "leave out where that is" in both.stderr) == (64, True)
    assert "mine.none: No such file" in site.call("list", "--ssh-key", "mine.none").stderr


def test_a_collection_of_garbage_reaches_the_tree_of_the_folders_spec_as_others_do(site: Site) -> None:
    refused = site.call("gc", "--dry-run")
    assert (refused.returncode, "where it publishes to cannot be asked" in refused.stderr) == (64, True), refused.stderr
    assert "log in as yourself, with --ssh-key and --ssh-user; nothing was removed" in refused.stderr
    site.secret("ssh")
    for login in (site.home, ("--ssh-key", "mine", "--ssh-user", "ada")):
        done = site.call("gc", "--dry-run", *login)
        assert (done.returncode, "the 2 versions that it has published" in done.stdout) == (0, True), done.stderr
        named = site.call("gc", "--dry-run", "base", "--published", "image.yaml", *login)
        assert named.returncode == 0, named.stderr
