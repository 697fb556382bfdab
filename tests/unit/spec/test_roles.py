"""A site's own roles in a spec: what is refused, with path and fix; and that an archive is a matter of the files alone."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from workflows import spec
from workflows.spec.sections import roles

HEAD = """apiVersion: bringup/v1
kind: Cluster
name: x
owner: tests@example.org
revision: "1"
stages: [os_prep, rke2]
hosts:
  servers: {role: server, ranges: s1}
  workers: {role: agent, ranges: "w[1-3]"}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder for the spec, with one role."""
    role = tmp_path / "roles/hardening"
    (role / "tasks").mkdir(parents=True)
    (role / "tasks/main.yml").write_text("- name: Look\n  ansible.builtin.command: id\n")
    (role / "files").mkdir()
    (role / "files/tool").write_text("#!/bin/sh\n")
    (role / "files/tool").chmod(0o755)
    return tmp_path


def load(site: Path, *entries: str) -> spec.ClusterSpec:
    path = site / "cluster.yaml"
    path.write_text(HEAD + "roles:\n" + "".join(f"  - {entry}\n" for entry in entries))
    return spec.load(path)


def refused(site: Path, *entries: str) -> str:
    with pytest.raises(spec.SpecErrors) as errors:
        load(site, *entries)
    return str(errors.value)


def test_the_folder_is_packed_beside_the_spec(site: Path) -> None:
    one = load(site, "{name: hardening, path: ./roles/hardening, before: os_prep, hosts: workers}").roles[0]

    with tarfile.open(fileobj=io.BytesIO(one.archive)) as tar:
        members = {member.name: member.mode for member in tar}
    assert members == {"files/tool": 0o755, "tasks/main.yml": 0o644}
    assert one.digest.startswith("sha256:")


def test_the_digest_follows_the_files_and_not_their_times_or_owners(site: Path) -> None:
    folder = site / "roles/hardening"
    before = roles.pack(folder)
    os.utime(folder / "tasks/main.yml", (1, 1))
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/x.pyc").write_text("x")
    assert roles.pack(folder) == before
    (folder / "tasks/main.yml").write_text("- name: Look again\n  ansible.builtin.command: id\n")
    assert roles.pack(folder) != before


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{name: a, path: ./nowhere, before: os_prep}", "there is no folder"),
        ("{name: a, path: ./roles, before: os_prep}", "the folder has no tasks/"),
        ("{name: rke2, path: ./roles/hardening, before: os_prep}", "rke2 is the name of a role of bringup"),
        ("{name: a, path: ./roles/hardening}", "a role runs before or after exactly one stage"),
        ("{name: a, path: ./roles/hardening, before: os_prep, after: rke2}", "a role runs before or after exactly one stage"),
        ("{name: a, path: ./roles/hardening, after: slurm}", "this stage does not run"),
        ("{name: a, path: ./roles/hardening, after: rke2, secrets: {license: key}}", "no secret of this name"),
        ("{name: a, path: ./roles/hardening, after: rke2, secrets: {ansible_user: key}}", "would steer Ansible itself"),
        ("{name: a, path: ./roles/hardening, after: rke2, hosts: gpus}", "choose all or from servers, workers"),
        ("{name: a, path: ./roles/hardening, after: rke2, variables: {x: '{{ y }}'}}", "a variable holds a template"),
        ("{name: a, path: ./roles/hardening, after: rke2, variables: {ansible_user: x}}", "would steer Ansible itself"),
        ("{name: a, path: ./roles/hardening, after: rke2, variables: {password: canary-5}}", "a secret (password) is written out"),
        ("{name: a, path: ./roles/hardening, after: rke2, variables: {x: '" + "y" * 2000 + "'}}", "limit 2000"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(site: Path, entry: str, said: str) -> None:
    text = refused(site, entry)

    assert said in text
    assert "roles[0]" in text
    assert "canary-5" not in text


def test_two_roles_of_one_name(site: Path) -> None:
    entry = "{name: a, path: ./roles/hardening, before: os_prep}"
    assert "roles[1].name" in refused(site, entry, entry)


def test_a_private_key_in_the_folder_is_refused(site: Path) -> None:
    (site / "roles/hardening/files/key").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\ncanary-6\n")
    text = refused(site, "{name: a, path: ./roles/hardening, before: os_prep}")
    assert "key has a private key in it" in text
    assert "canary-6" not in text


def test_links_and_large_folders_are_refused(site: Path) -> None:
    entry = "{name: a, path: ./roles/hardening, before: os_prep}"
    link = site / "roles/hardening/files/link"
    link.symlink_to("/etc/shadow")
    assert "link is a link or a device" in refused(site, entry)
    link.unlink()
    (site / "roles/hardening/files/large").write_bytes(b"x" * (roles.LARGEST_BYTES + 1))
    assert "let the role download what is large" in refused(site, entry)
    (site / "roles/hardening/files/large").write_bytes(b"x" * (roles.LARGEST_BYTES // 2))
    assert "roles[1].path" in refused(site, entry, entry.replace("name: a", "name: b"))


def test_one_role_without_a_list_is_told_how_lists_begin(site: Path) -> None:
    path = site / "cluster.yaml"
    path.write_text(HEAD + "roles: {name: hardening, path: ./roles/hardening, before: os_prep}\n")

    with pytest.raises(spec.SpecErrors, match="put `- ` before each entry"):
        spec.load(path)
