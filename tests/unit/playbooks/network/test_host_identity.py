"""A machine finds itself by its own address: /etc/hosts in a folder that stands for the root."""

from pathlib import Path

import pytest
import yaml
from ansible.module_utils.nodeprofile import host_identity

from tests.unit.playbooks.machine import Machine
from workflows.catalog import profile

LOCAL = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
OURS = "# begin of bringup's lines\n{}\n# end of bringup's lines\n"


def settled(root: Path, *, check: bool = False, address: str = "10.0.0.7") -> list[str]:
    machine = Machine({}, root=root, check_mode=check)
    return [row["status"] for row in host_identity.hosts(machine, address, "n001", str(root))]


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    return tmp_path / "etc/hosts"


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (LOCAL, LOCAL, "10.0.0.7 n001"),
        (f"{LOCAL}127.0.1.1\tn001\n", f"{LOCAL}# bringup: 127.0.1.1\tn001\n", "10.0.0.7 n001"),
        (
            f"{LOCAL}127.0.1.1 n001.site.example n001 head # by the installer\n10.0.0.9 store\n",
            f"{LOCAL}# bringup: 127.0.1.1 n001.site.example n001 head # by the installer\n10.0.0.9 store\n",
            "10.0.0.7 n001.site.example n001 head",
        ),
        (
            "127.0.0.1 localhost localhost.localdomain n001\n::1 localhost\n",
            "# bringup: 127.0.0.1 localhost localhost.localdomain n001\n127.0.0.1 localhost localhost.localdomain\n::1 localhost\n",
            "10.0.0.7 n001",
        ),
        (
            "::1 localhost ipv6-localhost ipv6-loopback N001\n127.0.1.1 n001.site.example n001\n",
            "# bringup: ::1 localhost ipv6-localhost ipv6-loopback N001\n::1 localhost ipv6-localhost ipv6-loopback\n"
            "# bringup: 127.0.1.1 n001.site.example n001\n",
            "10.0.0.7 n001.site.example n001",
        ),
        ("127.0.1.1 other n0011\n10.0.0.8 n001-store", "127.0.1.1 other n0011\n10.0.0.8 n001-store\n", "10.0.0.7 n001"),
        ("", "", "10.0.0.7 n001"),
    ],
    ids=["nothing-to-take", "installer", "canonical-name", "with-localhost", "letters-and-SUSE", "others", "no-file"],
)
def test_no_line_sends_the_name_to_the_loopback(hosts: Path, tmp_path: Path, before: str, after: str, line: str) -> None:
    if before:
        hosts.write_text(before)
    assert settled(tmp_path, check=True) == ["differs"]
    assert not before or hosts.read_text() == before
    assert settled(tmp_path) == ["changed"]
    assert hosts.read_text() == after + OURS.format(line)
    assert settled(tmp_path) == ["ok"]

    assert settled(tmp_path, address="10.0.0.8") == ["changed"]
    assert hosts.read_text() == after + OURS.format(line.replace("10.0.0.7", "10.0.0.8"))


def test_a_line_that_comes_again_is_said_and_put_aside_again(hosts: Path, tmp_path: Path) -> None:
    hosts.write_text(LOCAL)
    settled(tmp_path)
    hosts.write_text(f"127.0.1.1 n001\n{hosts.read_text()}")
    (row,) = host_identity.hosts(Machine({}, root=tmp_path), "10.0.0.7", "n001", str(tmp_path))
    assert (row["status"], row["before"]) == ("changed", "10.0.0.7 n001, and 127.0.1.1 n001")
    assert hosts.read_text() == f"# bringup: 127.0.1.1 n001\n{LOCAL}" + OURS.format("10.0.0.7 n001")


def test_a_name_with_a_domain_has_its_short_form_with_it(hosts: Path, tmp_path: Path) -> None:
    hosts.write_text("127.0.1.1 n001\n")
    for status in ("changed", "ok"):
        (row,) = host_identity.hosts(Machine({}, root=tmp_path), "10.0.0.7", "n001.site.example", str(tmp_path))
        assert (row["status"], row["want"]) == (status, "10.0.0.7 n001.site.example n001")
    hosts.write_text(f"127.0.1.1 n001\n{hosts.read_text()}")
    host_identity.hosts(Machine({}, root=tmp_path), "10.0.0.7", "n001.site.example", str(tmp_path))
    assert hosts.read_text() == "# bringup: 127.0.1.1 n001\n" + OURS.format("10.0.0.7 n001.site.example n001"), "once"


def test_a_file_that_cannot_be_read_fails_this_item_alone(hosts: Path, tmp_path: Path) -> None:
    hosts.mkdir()
    assert settled(tmp_path) == ["failed"]


@pytest.mark.parametrize("address", ["n001.site.example", "", "127.0.0.1"])
def test_a_machine_that_is_reached_by_a_name_or_a_port_of_this_one_keeps_its_file(
    hosts: Path, tmp_path: Path, address: str
) -> None:
    hosts.write_text("127.0.1.1 n001\n")
    assert settled(tmp_path, address=address) == []


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, False),
        ({"cloud-config.txt": "#cloud-config\nmanage_etc_hosts: true\n"}, True),
        ({"cloud-config.txt": "hostname: n001\nmanage_etc_hosts: 'localhost'\n"}, True),
        ({"cloud-config.txt": "hostname: n001\n", "vendor-cloud-config.txt": "manage_etc_hosts: True\n"}, True),
        ({"cloud-config.txt": "manage_etc_hosts: false\n", "vendor-cloud-config.txt": "manage_etc_hosts: true\n"}, False),
        ({"cloud-config.txt": "# manage_etc_hosts: true\nruncmd: [x]\n"}, False),
    ],
    ids=["nobody", "Proxmox", "a line alone", "a vendor's", "the user's wins", "a comment"],
)
def test_what_cloud_init_will_do_at_the_next_boot_is_said_before_it(tmp_path: Path, files: dict[str, str], told: bool) -> None:
    place = tmp_path / "var/lib/cloud/instance"
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / name).write_text(text)
    rows = host_identity.cloud_init_hosts("10.0.0.7", "n001", str(tmp_path))
    assert [(row["status"], "touch /etc/cloud/cloud-init.disabled" in row["why"]) for row in rows] == [("ok", True)] * told
    assert host_identity.cloud_init_hosts("n001.site.example", "n001", str(tmp_path)) == [], "its file is left alone"

    (tmp_path / "etc/cloud").mkdir(parents=True)
    (tmp_path / "etc/cloud/cloud-init.disabled").touch()
    assert host_identity.cloud_init_hosts("10.0.0.7", "n001", str(tmp_path)) == []


def test_the_profile_has_the_last_word_among_cloud_inits_own_files() -> None:
    (ours,) = [entry for entry in profile.of_system("debian")["files"] if entry["path"].startswith("/etc/cloud/")]
    assert yaml.safe_load(ours["content"]) == {"manage_etc_hosts": False, "preserve_hostname": True}
    others = ["01_debian_cloud.cfg", "90_dpkg.cfg", "99-installer.cfg", "curtin-preserve-sources.cfg", "subiquity-disable.cfg"]
    assert sorted([*others, Path(ours["path"]).name])[-1] == Path(ours["path"]).name
    assert ours["needs"] == "/etc/cloud/cloud.cfg.d", "where there is cloud-init"
