"""Ways to reach real SSH hosts: keys enrolled and pinned, a host CA, chains of jump hosts, sudo with a password."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bringup_command import BRINGUP, Command
from hostlab.host import Host
from hostlab.lab import Lab
from hostlab.waiting import until

from steps.clients.ansible import playing
from steps.contract.host_play import FailureKind, HostKeys, HostStatus, Jump, PlayHost, PlayRequest, PlayResult

pytestmark = pytest.mark.sampled("reaching hosts")

SPEC = """apiVersion: bringup/v1
kind: Cluster
name: access
owner: tests@example.org
revision: "1"
stages: [os_prep]
hosts:
  control: {role: server, ranges: n000, addresses: {start: 10.77.0.1}}
  nodes: {role: agent, ranges: "n[001-002]", addresses: {start: 10.77.0.2}MORE}
ssh: {user: root, key: {file: KEY}, known_hosts: ./known_hosts}
os: {distribution: debian, version: "12"}
"""

START_SECONDS = 30.0


@pytest.fixture
def bringup(tmp_path: Path) -> Command:
    """Runs a command beside the spec."""
    return Command(tmp_path, tmp_path / "home", {"SUDO": "correct horse"})


def spec(lab: Lab, folder: Path, more: str = "") -> Path:
    """The spec of three hosts; the known_hosts that it names is not there yet."""
    path = folder / "cluster.yaml"
    path.write_text(SPEC.replace("KEY", str(lab.key)).replace("MORE", f", {more}" if more else ""))
    return path


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """State by host, of `-o json`."""
    return {row["host"]: row["state"] for row in json.loads(done.stdout)}


def typed(folder: Path, answer: str) -> str:
    """Run `bringup host-keys` on a terminal, type an answer, and return the output."""
    command = ["script", "--quiet", "--return", "--command", f"{BRINGUP} host-keys", "/dev/null"]
    return subprocess.run(command, cwd=folder, input=f"{answer}\n", capture_output=True, text=True, check=False).stdout


def keys(file: Path) -> set[tuple[str, ...]]:
    return {tuple(line.split()) for line in file.read_text().splitlines()}


def new_key(host: Host, *, certified_by: Path | None = None) -> str:
    """Give a host another key, with a certificate where a CA is named, and let its sshd take it up; returns the public key."""
    made = host.folder / "made"
    made.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(made / "key")], check=True)
    names = ["ssh_host_ed25519_key"]
    (made / "key").rename(made / names[0])
    (made / "key.pub").rename(made / f"{names[0]}.pub")
    if certified_by is not None:
        sign = [
            "ssh-keygen",
            "-q",
            "-s",
            str(certified_by),
            "-I",
            host.name,
            "-h",
            "-n",
            host.address,
            str(made / f"{names[0]}.pub"),
        ]
        subprocess.run(sign, check=True)
        names.append(f"{names[0]}-cert.pub")
        host.run("sh", "-c", f"echo HostCertificate /etc/ssh/{names[1]} >> /etc/ssh/sshd_config.d/hosts.conf")
    for name in names:
        text = (made / name).read_text()
        host.run("sh", "-c", f"cat > /etc/ssh/{name} <<'END'\n{text}END")
    host.run("kill", "-HUP", "1")
    public = " ".join((made / "ssh_host_ed25519_key.pub").read_text().split()[:2])
    assert until(lambda: public in shown(host), START_SECONDS), "the server that had the key before may still answer for a moment"
    return public


def shown(host: Host) -> str:
    """The keys that a host shows."""
    return subprocess.run(["ssh-keyscan", "-t", "ed25519", host.address], capture_output=True, text=True, check=False).stdout


def identify(*reached: PlayHost, **words: Any) -> PlayResult:
    """A play that asks each host something, as root."""
    return playing.play(PlayRequest(playbook="identify", hosts=reached, **words))


def reached(lab: Lab, host: Host, **words: Any) -> PlayHost:
    return PlayHost(**{"name": host.name, "address": host.address, "key_path": str(lab.key), **words})


def test_new_keys_are_shown_and_written_after_a_yes_and_a_changed_one_never(up: Any, bringup: Command, tmp_path: Path) -> None:
    lab = up(3)
    spec(lab, tmp_path)
    known = tmp_path / "known_hosts"

    asked = bringup.call("host-keys")
    assert asked.returncode == 64, asked.stderr
    assert "nobody said that the keys of 3 hosts are the right ones" in asked.stderr
    assert "SHA256:" in asked.stdout
    assert "nothing was written" in typed(tmp_path, "no")
    assert not known.exists()

    assert "wrote 3 keys" in typed(tmp_path, "yes")
    assert keys(known) == keys(lab.known_hosts)
    again = bringup.call("host-keys")
    assert (again.returncode, "3 same; nothing to write" in again.stdout) == (0, True)

    key = new_key(lab.hosts[1])
    lab.hosts[2].unplug()
    changed = bringup.call("host-keys", "--yes", "-o", "json")
    assert changed.returncode == 65
    assert rows(changed) == {"n000": "same", "n001": "CHANGED", "n002": "no answer"}
    assert "n001 (10.77.0.2) shows another key" in changed.stderr
    assert keys(known) == keys(lab.known_hosts), "nothing was written"

    replaced = bringup.call("host-keys", "--yes", "--replace", "n001")
    assert replaced.returncode == 75, "n002 still does not answer"
    assert ("10.77.0.2", *key.split()) in keys(known)
    assert len(keys(known)) == 3
    assert identify(reached(lab, lab.hosts[1]), known_hosts=str(known)).hosts[0].status is HostStatus.OK


def test_the_key_of_a_first_contact_holds_in_every_play_after_it(up: Any, tmp_path: Path) -> None:
    lab = up(2)
    (tmp_path / "met").mkdir()
    known = tmp_path / "known_hosts"
    jump = Jump(address=lab.hosts[0].address, key_path=str(lab.key))
    behind = reached(lab, lab.hosts[1], jump=jump)
    words: dict[str, Any] = {"host_keys": HostKeys.ACCEPT_NEW, "met": str(tmp_path / "met"), "known_hosts": str(known)}

    for _ in range(2):
        assert identify(behind, **words).hosts[0].status is HostStatus.OK
    met = {key for file in (tmp_path / "met").iterdir() for key in keys(file)}
    assert met == keys(lab.known_hosts), "one of the host, one of the host that it is reached through"

    key = new_key(lab.hosts[1])
    (changed,) = identify(behind, **words).hosts
    assert (changed.status, changed.kind) == (HostStatus.UNREACHABLE, FailureKind.HOST_KEY)
    assert {one for file in (tmp_path / "met").iterdir() for one in keys(file)} == met

    known.write_text(f"{lab.hosts[1].address} {key}\n")
    assert identify(behind, **words).hosts[0].status is HostStatus.OK, "what known_hosts says by name counts alone"


def test_hosts_with_a_certificate_of_a_trusted_ca_need_no_line_of_their_own(up: Any, bringup: Command, tmp_path: Path) -> None:
    lab = up(3)
    spec(lab, tmp_path)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "ca")], check=True)
    public = " ".join((tmp_path / "ca.pub").read_text().split()[:2])
    known = tmp_path / "known_hosts"
    known.write_text(f"@cert-authority 10.77.* {public}\n")
    for one in lab.hosts[:2]:
        new_key(one, certified_by=tmp_path / "ca")

    seen = bringup.call("host-keys", "-o", "json", "--yes")
    assert seen.returncode == 0, seen.stderr
    assert rows(seen) == {"n000": "certified", "n001": "certified", "n002": "new"}
    assert len(keys(known)) == 2, "the CA's line, and the host without a certificate"
    known.write_text(f"@cert-authority 10.77.* {public}\n")
    result = identify(*(reached(lab, host) for host in lab.hosts), known_hosts=str(known))
    assert [(outcome.host, outcome.status, outcome.kind) for outcome in result.hosts] == [
        ("n000", HostStatus.OK, None),
        ("n001", HostStatus.OK, None),
        ("n002", HostStatus.UNREACHABLE, FailureKind.HOST_KEY),
    ]


def test_a_chain_of_jump_hosts_is_enrolled_and_used(up: Any, bringup: Command, tmp_path: Path) -> None:
    lab = up(3)
    first, second, last = lab.hosts
    spec(lab, tmp_path, f"jump_host: 'root@{first.address},root@{second.address}'")
    for one in (second, last):  # neither has a way back to this machine
        one.run("ip", "route", "add", "blackhole", "10.77.255.254/32")

    seen = bringup.call("host-keys", "--yes", "-o", "json")
    assert seen.returncode == 0, seen.stderr
    assert keys(tmp_path / "known_hosts") == keys(lab.known_hosts)

    key = str(lab.key)
    chain = Jump.of(f"root@{first.address},root@{second.address}", key)
    result = identify(reached(lab, last, jump=chain), known_hosts=str(tmp_path / "known_hosts"))
    assert result.hosts[0].status is HostStatus.OK, result.hosts[0]


def test_sudo_asks_for_a_password_and_a_wrong_one_is_called_sudo(up: Any, tmp_path: Path) -> None:
    lab = up(2)
    for one in lab.hosts:
        one.run("sh", "-c", "echo 'guest:correct horse' | chpasswd; echo 'guest ALL=(ALL) ALL' > /etc/sudoers.d/guest")
    (tmp_path / "right").write_text("correct horse\n")
    (tmp_path / "wrong").write_text("canary-53\n")
    guests = [reached(lab, host, user="guest") for host in lab.hosts]

    def play(secrets: dict[str, str]) -> list[tuple[HostStatus, FailureKind | None]]:
        result = identify(*guests, known_hosts=str(lab.known_hosts), secret_variables=secrets)
        assert "canary-53" not in repr(result)
        return [(outcome.status, outcome.kind) for outcome in result.hosts]

    assert play({"ansible_become_password": str(tmp_path / "right")}) == [(HostStatus.OK, None)] * 2
    assert play({"ansible_become_password": str(tmp_path / "wrong")}) == [(HostStatus.FAILED, FailureKind.SUDO)] * 2
    assert play({}) == [(HostStatus.FAILED, FailureKind.SUDO)] * 2


ROLE_SPEC = """proxy: {http: "http://127.0.0.1:9"}
roles:
  - {name: banner, path: ./banner, before: os_prep, variables: {site_banner: hello}}
  - {name: picky, path: ./picky, after: os_prep, hosts: nodes}
quorum: {default: 1/2}
"""


def test_roles_of_the_site_run_with_a_sudo_password_and_a_host_where_one_fails_is_named(
    up: Any, bringup: Command, tmp_path: Path
) -> None:
    lab = up(3)
    for name, tasks in {
        "banner": "- name: Write the banner\n  ansible.builtin.template: {src: banner.j2, dest: /etc/motd, mode: '0644'}\n",
        "picky": "- name: Ask who it is\n  ansible.builtin.fail: {msg: not this one}\n  when: inventory_hostname == 'n002'\n",
    }.items():
        (tmp_path / name / "tasks").mkdir(parents=True)
        (tmp_path / name / "tasks/main.yml").write_text(tasks)
    (tmp_path / "banner/templates").mkdir()
    (tmp_path / "banner/templates/banner.j2").write_text(
        "{{ site_banner }} {{ inventory_hostname }} {{ ansible_env.HTTP_PROXY }}\n"
    )
    sudo = "echo 'guest:correct horse' | chpasswd; echo 'guest ALL=(ALL) ALL' > /etc/sudoers.d/guest"
    lab.hosts[1].run("sh", "-c", sudo)
    path = spec(lab, tmp_path, "overrides: {n001: {ssh_user: guest}}")
    settings = 'version: "12", reboot: false, free_disk_gib: {/var/lib/rancher: 1}, tolerate: [time service]'
    text = path.read_text().replace('version: "12"', settings).replace("ssh: {user", "ssh: {sudo_password: {env: SUDO}, user")
    path.write_text(text + "rke2: {registration_address: 10.77.0.1}\n" + ROLE_SPEC)
    (tmp_path / "known_hosts").write_text(lab.known_hosts.read_text())

    done = bringup.call("run", str(path))

    assert done.returncode == 0, done.stdout + done.stderr
    assert [host.run("cat", "/etc/motd") for host in lab.hosts] == [f"hello {host.name} http://127.0.0.1:9\n" for host in lab.hosts]
    assert "set aside: n002:" in done.stdout
    assert "in 'Ask who it is': not this one" in done.stdout
    report = bringup.report()
    assert {node["name"]: node["gates"].get("site_roles/picky") for node in report["nodes"]} == {
        "n000": None,
        "n001": "pass",
        "n002": "fail",
    }
    stored = tmp_path / "home/store/runs" / report["run"]
    assert not [file for file in stored.rglob("*") if file.is_file() and "correct horse" in file.read_text(errors="replace")]
    assert any(attempt["task"] == "role_banner" and attempt["changes"] for attempt in report["attempts"])
