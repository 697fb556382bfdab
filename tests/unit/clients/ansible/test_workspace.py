"""The private folder of a play: who may read it, what is in it, and which values are refused."""

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.clients.ansible.workspace import playbook_path, workspace
from steps.clients.ssh.configuration import key_exchanges
from steps.contract.host_play import HostKeys, HttpProxy, Jump, PlayHost, PlayRequest
from steps.errors import BadTask


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "key").write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
    (tmp_path / "key").chmod(0o644)
    (tmp_path / "known_hosts").write_text("192.0.2.1 ssh-ed25519 AAAA\n")
    (tmp_path / "token").write_text("canary-31\n")
    return tmp_path


def request(secrets: Path, host: dict[str, Any] | None = None, **words: Any) -> PlayRequest:
    one = PlayHost(**{"name": "n1", "address": "192.0.2.1", "key_path": str(secrets / "key"), **(host or {})})
    return PlayRequest(**{"playbook": "os_prep", "hosts": (one,), "known_hosts": str(secrets / "known_hosts"), **words})


def test_the_folder_is_ours_alone_and_goes_away(secrets: Path) -> None:
    with workspace(request(secrets, secret_variables={"join_token": str(secrets / "token")})) as space:
        assert space.folder.stat().st_mode & 0o777 == 0o700
        assert (space.folder / "key0").stat().st_mode & 0o777 == 0o600, "SSH refuses a key that others may read"
        assert (space.folder / "key0").read_text().endswith("-----\n"), "SSH refuses a key without a last newline"
        assert space.variables.stat().st_mode & 0o777 == 0o600
        assert json.loads(space.variables.read_text()) == {"join_token": "canary-31"}
        assert "canary-31" not in space.inventory.read_text() + space.configuration.read_text()
    assert not space.folder.exists()


def test_ssh_reads_the_configuration_as_meant(secrets: Path) -> None:
    jump = Jump(address="192.0.2.9", port=2222, user="gate", key_path=str(secrets / "key"))
    with workspace(request(secrets, {"jump": jump, "port": 2022, "user": "admin"})) as space:
        read = subprocess.run(["ssh", "-F", str(space.configuration), "-G", "n1"], capture_output=True, text=True, check=True)
        behind = subprocess.run(
            ["ssh", "-F", str(space.configuration), "-G", "bringup-jump-0"], capture_output=True, text=True, check=True
        )

    lines, jump_lines = read.stdout.splitlines(), behind.stdout.splitlines()
    assert {"hostname 192.0.2.1", "port 2022", "user admin", "stricthostkeychecking true", "proxyjump bringup-jump-0"} <= set(lines)
    assert {"serveraliveinterval 5", "serveralivecountmax 3", "batchmode yes", f"identityfile {space.folder / 'key0'}"} <= set(
        lines
    )
    assert {"hostname 192.0.2.9", "port 2222", "user gate", "stricthostkeychecking true"} <= set(jump_lines)


def test_ssh_goes_through_an_http_proxy_to_the_first_hop_alone(secrets: Path) -> None:
    (secrets / "password").write_text("canary-93\n")
    proxy = HttpProxy(address="192.0.2.8", port=3128, user="site", password_path=str(secrets / "password"))
    chain = Jump.of("ops@192.0.2.9,ops@192.0.2.10").behind(proxy)
    direct = PlayHost(name="n2", address="192.0.2.2", proxy=proxy)
    with workspace(request(secrets, {"jump": chain}, helpers=(direct,))) as space:

        def read(alias: str) -> dict[str, str]:
            command = ["ssh", "-F", str(space.configuration), "-G", alias]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            return dict(line.partition(" ")[::2] for line in said.splitlines())

        ways = {name: read(name) for name in ("n1", "n2", "bringup-jump-0", "bringup-jump-1")}
        settings = space.folder / "proxy0"
        assert json.loads(settings.read_text())["url"] == "http://192.0.2.8:3128"
        assert settings.stat().st_mode & 0o777 == 0o600
        assert "canary-93" not in space.configuration.read_text()
    commands = {name: way.get("proxycommand", "") for name, way in ways.items()}
    assert commands["n2"] == commands["bringup-jump-0"]
    assert commands["n2"].endswith(f"http_connect.py {settings} %h %p")
    assert ways["n2"]["proxyusefdpass"] == "yes"
    assert (ways["n1"]["proxyjump"], ways["bringup-jump-1"]["proxyjump"]) == ("bringup-jump-1", "bringup-jump-0")
    assert commands["n1"] == commands["bringup-jump-1"] == ""


def test_ssh_offers_all_its_key_exchanges_and_the_slow_ones_last(secrets: Path) -> None:
    """Both orders are read from SSH itself."""
    offered = subprocess.run(["ssh", "-F", "none", "-G", "n1"], capture_output=True, text=True, check=True).stdout
    with workspace(request(secrets)) as space:
        ours = subprocess.run(
            ["ssh", "-F", str(space.configuration), "-G", "n1"], capture_output=True, text=True, check=True
        ).stdout
    before, after = (
        next(line for line in text.splitlines() if line.startswith("kexalgorithms")).split()[1] for text in (offered, ours)
    )
    names = after.split(",")
    assert sorted(names) == sorted(before.split(","))
    assert [name.startswith("sntrup") for name in names] == sorted(name.startswith("sntrup") for name in names)


def test_who_must_have_post_quantum_gets_the_order_of_ssh_itself(secrets: Path) -> None:
    offered = subprocess.run(["ssh", "-F", "none", "-G", "n1"], capture_output=True, text=True, check=True).stdout
    with workspace(request(secrets, post_quantum=True)) as space:
        ours = subprocess.run(
            ["ssh", "-F", str(space.configuration), "-G", "n1"], capture_output=True, text=True, check=True
        ).stdout
    before, after = (next(line for line in text.splitlines() if line.startswith("kexalgorithms")) for text in (offered, ours))
    assert after == before


def test_key_exchanges_keep_their_order_but_for_the_slow_ones() -> None:
    said = "port 22\nkexalgorithms mlkem768x25519-sha256,sntrup761x25519-sha512,curve25519-sha256\n"
    assert key_exchanges(said) == ("mlkem768x25519-sha256", "curve25519-sha256", "sntrup761x25519-sha512")
    old = "kexalgorithms sntrup761x25519-sha512@openssh.com,curve25519-sha256\n"
    assert key_exchanges(old) == ("curve25519-sha256", "sntrup761x25519-sha512@openssh.com")
    assert key_exchanges("") == ()


def test_the_inventory_has_hosts_groups_and_variables(secrets: Path) -> None:
    host = {"groups": ("gpu-h100", "agent"), "variables": {"rack": "r1"}, "user": "admin"}
    with workspace(request(secrets, host)) as space:
        inventory = json.loads(space.inventory.read_text())["all"]

    assert inventory["hosts"]["n1"]["rack"] == "r1"
    assert inventory["hosts"]["n1"]["bringup_address"] == "192.0.2.1"
    assert inventory["hosts"]["n1"]["bringup_groups"] == ["gpu-h100", "agent"]
    assert inventory["hosts"]["n1"]["ansible_become"] is True
    assert sorted(inventory["children"]) == ["group_agent", "group_gpu_h100", "helpers", "played"]


def test_helpers_are_reached_and_not_played(secrets: Path) -> None:
    helper = PlayHost(name="sv1", address="192.0.2.7", user="admin", key_path=str(secrets / "key"), groups=("server",))
    with workspace(request(secrets, helpers=(helper,))) as space:
        inventory = json.loads(space.inventory.read_text())["all"]
        assert "Host sv1\n  HostName 192.0.2.7" in space.configuration.read_text()

    assert inventory["hosts"]["sv1"]["ansible_become"] is True
    assert list(inventory["children"]["played"]["hosts"]) == ["n1"]
    assert list(inventory["children"]["helpers"]["hosts"]) == ["sv1"]
    assert "group_server" not in inventory["children"], "what a play does to a group, it does not do to helpers"

    same = PlayHost(name="n1", address="192.0.2.7")
    with pytest.raises(BadTask, match="name of its own"), workspace(request(secrets, helpers=(same,))):
        pass


def believed(space: Any, alias: str) -> tuple[str, str]:
    """Return the known_hosts files that SSH reads for a host alias, and its policy for a key that is in none of them."""
    command = ["ssh", "-F", str(space.configuration), "-G", alias]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    settings = dict(line.partition(" ")[::2] for line in said.splitlines())
    return settings["userknownhostsfile"], settings["stricthostkeychecking"]


def first_contact(secrets: Path, **words: Any) -> PlayRequest:
    """Hosts n1, n2 and a jump host before n2, with a folder for the keys of those that known_hosts does not name."""
    (secrets / "met").mkdir(exist_ok=True)
    behind = PlayHost(name="n2", address="Node2.example.org", port=2022, jump=Jump(address="192.0.2.9", user="ops"))
    return request(secrets, host_keys=HostKeys.ACCEPT_NEW, met=str(secrets / "met"), helpers=(behind,), **words)


def test_the_key_of_a_first_contact_is_kept_where_the_next_play_finds_it(secrets: Path) -> None:
    met, known = secrets / "met", secrets / "known_hosts"
    with workspace(first_contact(secrets)) as space:
        assert believed(space, "n1") == (str(known), "true"), "known_hosts names it: that alone counts"
        assert believed(space, "n2") == (f"{met}/node2.example.org_2022 {known}", "accept-new")
        assert believed(space, "bringup-jump-0") == (f"{met}/192.0.2.9_22 {known}", "accept-new")
        assert not any(str(space.folder) in believed(space, name)[0] for name in ("n1", "n2")), "it goes away with the play"
    (met / "node2.example.org_2022").write_text("[node2.example.org]:2022 ssh-ed25519 AAAA\n")
    (met / "192.0.2.9_22").touch()
    with workspace(first_contact(secrets)) as space:
        assert believed(space, "n2")[1] == "true", "one of another type is no new one"
        assert believed(space, "bringup-jump-0")[1] == "accept-new"
    known.write_text("[node2.example.org]:2022 ssh-ed25519 BBBB\n")
    with workspace(first_contact(secrets)) as space:
        assert believed(space, "n2") == (str(known), "true"), "its key was replaced by hand: the old one is believed no longer"


@pytest.mark.parametrize("name", ["", "/nowhere/known_hosts"])
def test_a_first_contact_needs_no_known_hosts(secrets: Path, name: str) -> None:
    with workspace(first_contact(secrets, known_hosts=name)) as space:
        assert believed(space, "n1") == (f"{secrets}/met/192.0.2.1_22", "accept-new")


def test_a_ca_in_known_hosts_does_not_make_a_host_known(secrets: Path) -> None:
    (secrets / "known_hosts").write_text("@cert-authority 192.0.2.1 ssh-ed25519 AAAA\n")
    with workspace(first_contact(secrets)) as space:
        assert believed(space, "n1") == (f"{secrets}/met/192.0.2.1_22 {secrets}/known_hosts", "accept-new")


@pytest.mark.parametrize(
    ("host", "words", "said"),
    [
        ({"name": "n1\n  ProxyCommand evil"}, {}, "host name"),
        ({"name": "*"}, {}, "host name"),
        ({"address": "-oProxyCommand=evil"}, {}, "address of n1"),
        ({"address": "a b"}, {}, "address of n1"),
        ({"user": "root -o x"}, {}, "user of n1"),
        ({"port": 0}, {}, "port of n1"),
        ({"key_path": "/secrets/a b"}, {}, "key of n1"),
        ({"python": "/usr/bin/python3; evil"}, {}, "python of n1"),
        ({"jump": Jump(address="x\ny")}, {}, "jump host"),
        ({"proxy": HttpProxy(address="x y", port=1)}, {}, "address of the HTTP proxy before n1"),
        ({"jump": Jump(address="b", proxy=HttpProxy(address="x", port=0))}, {}, "port of the HTTP proxy before n1's jump host"),
        ({"proxy": HttpProxy(address="x", port=1, user="a", password_path="/nowhere/pw")}, {}, "No such file"),
        ({"variables": {"rack": "{{ lookup('pipe', 'evil') }}"}}, {}, "template"),
        ({"variables": {"ansible_connection": "local"}}, {}, "steer Ansible"),
        ({"variables": {"a b": 1}}, {}, "variable"),
        ({}, {"variables": {"deep": [{"x": "{% evil %}"}]}}, "template"),
        ({}, {"playbook": "../../etc/passwd"}, "no name of a playbook"),
        ({}, {"playbook": "nothing"}, "no playbook"),
        ({}, {"known_hosts": "/nowhere/known_hosts"}, "host keys are to be verified"),
        ({}, {"known_hosts": ""}, "host keys are to be verified"),
        ({}, {"host_keys": HostKeys.ACCEPT_NEW}, "keys of a first contact have to be kept"),
        ({}, {"host_keys": HostKeys.ACCEPT_NEW, "met": "/nowhere/met"}, "keys of a first contact have to be kept"),
        ({}, {"host_keys": HostKeys.ACCEPT_NEW, "met": "/a b"}, "path"),
        ({"key_path": "/nowhere/key"}, {}, "No such file"),
        ({}, {"hosts": ()}, "needs hosts"),
    ],
)
def test_hostile_or_wrong_values_are_refused(secrets: Path, host: dict[str, Any], words: dict[str, Any], said: str) -> None:
    with pytest.raises(BadTask, match=said), workspace(request(secrets, host, **words)):
        pass


def test_a_secret_with_a_template_is_refused_and_not_shown(secrets: Path) -> None:
    (secrets / "token").write_text("a{{b}}")
    with pytest.raises(BadTask) as refused, workspace(request(secrets, secret_variables={"t": str(secrets / "token")})):
        pass
    assert "a{{b}}" not in str(refused.value)


def test_a_request_survives_json(secrets: Path) -> None:
    asked = request(secrets, {"jump": Jump(address="192.0.2.9")})

    assert msgspec.json.decode(msgspec.json.encode(asked), type=PlayRequest) == asked


def test_the_playbooks_lie_beside_the_package() -> None:
    assert (playbook_path("os_prep").parent / "ansible.cfg").is_file()


def test_a_playbook_comes_with_those_that_it_imports(secrets: Path) -> None:
    with workspace(request(secrets, playbook="rke2_server_rollback")) as space:
        assert {path.name for path in space.folder.glob("*.yml")} == {"rke2_server_rollback.yml", "rke2_server.yml"}
