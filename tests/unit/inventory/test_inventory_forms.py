"""Inventories as Ansible itself reads them: every form gives the same hosts, nothing in them is evaluated, nothing unasked runs."""

import json
import os
from pathlib import Path

import pytest

from tests.hosts.hostlab.waiting import until
from workflows.inventory.ansible_inventory import read
from workflows.inventory.model import BadInventory

INI = """[masters]
sv[1:3]

[gpu]
gpu[001:004] ansible_port=2222

[workers:children]
gpu
"""
YAML = """all:
  children:
    masters: {hosts: {sv1: , sv2: , sv3: }}
    workers:
      children:
        gpu: {hosts: {"gpu[001:004]": {ansible_port: 2222}}}
"""
ANSWER = {
    "_meta": {"hostvars": {f"gpu00{number}": {"ansible_port": 2222} for number in range(1, 5)}},
    "masters": ["sv1", "sv2", "sv3"],
    "gpu": {"hosts": ["gpu001", "gpu002", "gpu003", "gpu004"]},
    "workers": {"children": ["gpu"]},
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/gpu.yml").write_text("ansible_user: ops\n")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/gpu003.yml").write_text("ansible_user: root\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "mode"),
    [
        ("hosts.ini", INI, 0o644),
        ("hosts.yml", YAML, 0o644),
        ("answer.json", json.dumps(ANSWER), 0o644),
        ("dynamic", f'#!/bin/sh\n[ "$1" = --list ] && cat <<END\n{json.dumps(ANSWER)}\nEND\n', 0o755),
    ],
)
def test_every_form_gives_the_same(place: Path, name: str, text: str, mode: int) -> None:
    (place / name).write_text(text)
    (place / name).chmod(mode)

    found = read(place / name)

    assert {name: sorted(members) for name, members in found.groups.items()} == {
        "masters": ["sv1", "sv2", "sv3"],
        "gpu": ["gpu001", "gpu002", "gpu003", "gpu004"],
        "workers": ["gpu001", "gpu002", "gpu003", "gpu004"],
    }
    assert found.parents == {"workers"}
    assert {host: found.hosts[host]["ansible_user"] for host in ("gpu001", "gpu003")} == {"gpu001": "ops", "gpu003": "root"}
    assert int(found.hosts["gpu004"]["ansible_port"]) == 2222
    assert not found.hosts["sv1"]


def test_templates_stay_text_and_a_script_in_a_folder_is_not_run(place: Path) -> None:
    folder = place / "inventory"
    folder.mkdir()
    (folder / "hosts").write_text(f"[masters]\nsv1 ansible_host=\"{{{{ lookup('pipe', 'touch {place}/evaluated') }}}}\"\n")
    (folder / "script.sh").write_text(f"#!/bin/sh\ntouch {place}/executed\necho '{{}}'\n")
    (folder / "script.sh").chmod(0o755)

    with pytest.raises(BadInventory, match=r"script\.sh"):
        read(folder)
    (folder / "script.sh").unlink()

    assert read(folder).hosts["sv1"]["ansible_host"].startswith("{{ lookup")
    assert not (place / "evaluated").exists()
    assert not (place / "executed").exists()


def test_an_ansible_cfg_beside_it_and_the_environment_do_not_steer_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "ansible.cfg").write_text("[inventory]\nenable_plugins = script\n")
    (place / "hosts").write_text(INI)
    monkeypatch.setenv("ANSIBLE_INVENTORY_ENABLED", "script")

    assert len(read(place / "hosts").hosts) == 7


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("[masters\nsv1\n", "Ansible cannot read", "ansible-inventory --list"),
        pytest.param("[gpu]\ngpu[1:999999999]\n", "Ansible cannot read", "more hosts than anybody has", marks=pytest.mark.long),
    ],
)
def test_what_cannot_be_read_is_said(place: Path, text: str, said: str, hint: str) -> None:
    (place / "hosts").write_text(text)

    with pytest.raises(BadInventory, match=said) as refused:
        read(place / "hosts")

    assert hint in refused.value.hint
    assert "\n" not in str(refused.value)


BROKEN = {
    "hosts": ("[gpu]\ng1\ng2 ansible_password='canary-9\n", "line 3: No closing quotation"),
    "hosts.ini": ("[gpu]\ng1 ansible_user=ops canary-9\n", "line 2: Expected key=value host variable assignment"),
    "all.ini": ("[gpu]\ng1\n[all:vars]\nansible_password canary-9\n", "line 4: Expected key=value"),
    "hosts.yml": ('all:\n  hosts:\n    g1: {ansible_password: "canary-9}\n', "line 4: YAML parsing failed"),
    "list.yml": ("all:\n  hosts: [g1]\n", "requires a dictionary, found a list"),
    "hosts.json": ('{"gpu": {"hosts": ["g1"], "vars": ["canary-9"]}}', "requires a dictionary, found a list"),
    "aws_ec2.yml": ("plugin: amazon.aws.aws_ec2\n", "Plugin configuration YAML file, not YAML inventory"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_error_names_the_line_and_shows_nothing_of_it(tmp_path: Path, name: str) -> None:
    content, said = BROKEN[name]
    (tmp_path / name).write_text(content)

    with pytest.raises(BadInventory) as refused:
        read(tmp_path / name)

    told = f"{refused.value} {refused.value.hint}"
    assert told.startswith(f"Ansible cannot read {tmp_path / name}: ")
    assert said in told
    assert "canary-9" not in told
    assert "bringup-inventory-" not in told, "the user named another file"


def test_an_error_in_a_file_of_variables_names_that_file(place: Path) -> None:
    (place / "hosts").write_text(INI)
    (place / "host_vars/gpu001.yml").write_text('a: 1\npassword: "canary-9\n')

    with pytest.raises(BadInventory, match=r"host_vars/gpu001\.yml: line 3: YAML parsing failed") as refused:
        read(place / "hosts")

    assert "canary-9" not in str(refused.value)


def test_encrypted_variables_need_the_password_by_file(place: Path) -> None:
    (place / "hosts").write_text(INI)
    (place / "group_vars/masters.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")

    with pytest.raises(BadInventory) as refused:
        read(place / "hosts")

    assert "--vault-password-file" in refused.value.hint


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(BadInventory, match="there is no inventory"):
        read(tmp_path / "hosts")


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("no route to the CMDB", "Its last words: no route to the CMDB"),
        ("login https://ops:canary-9@cmdb.example.org failed", "Its last words: (redacted)"),
        ("401 for api_token: canary-9", "Its last words: (redacted)"),
    ],
)
def test_a_script_that_fails_is_quoted_but_for_credentials(tmp_path: Path, last: str, told: str) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho first >&2\necho '{last}' >&2\nexit 3\n")
    script.chmod(0o755)

    with pytest.raises(BadInventory, match="exit code 3") as refused:
        read(script)

    assert str(refused.value).endswith(told)


def test_a_file_that_may_be_executed_and_is_no_program_is_read(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(INI)
    (tmp_path / "hosts").chmod(0o777)  # as on a file system of another system
    assert len(read(tmp_path / "hosts").hosts) == 7


def test_neither_a_file_nor_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInventory, match="neither a file nor a folder"):
        read(tmp_path / "pipe")


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_a_script_without_end_is_ended_with_its_children(tmp_path: Path, stream: str) -> None:
    script = tmp_path / "endless"
    script.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > child\nyes '{{' {stream}\n")
    script.chmod(0o755)

    with pytest.raises(BadInventory, match="endless says more than 64 MiB"):
        read(script)

    state = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")

    def gone() -> bool:
        try:
            return ") Z " in state.read_text()
        except OSError:
            return True

    assert until(gone, 60), "what was killed ends as soon as it gets its turn"


@pytest.mark.parametrize("module", ["resource", "runpy", "ansible", "json"])
def test_a_module_beside_an_inventory_is_not_run(place: Path, module: str) -> None:
    (place / f"{module}.py").write_text(f"open({str(place / 'ran')!r}, 'w').write('')\nraise SystemExit(3)\n")
    (place / "hosts.ini").write_text(INI)
    assert read(place / "hosts.ini").hosts["gpu001"]["ansible_port"] == 2222
    assert not (place / "ran").exists()
