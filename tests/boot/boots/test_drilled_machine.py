"""A drill of a factory boots a real machine: QEMU behind a host whose real routing rules cut it off; about 5 CPU seconds.

The host and the factory are network namespaces with a cable between them, and a third one is a second host, which tries nothing.
Ansible plays the product's own playbook in the hosts.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boot as needs
import pytest

from tests.hosts.hostlab.waiting import until

ROOT = Path(__file__).parents[3]
FACTORY, PORT, SECONDS = "10.1.0.1", 8000, 120
REACHED, UNREACHABLE = "the factory was reached", "the factory is unreachable"
SCRIPT = f"""#!ipxe
imgfetch --timeout 3000 http://{FACTORY}:{PORT}/kernel && echo {REACHED} || echo {UNREACHABLE}
sleep 60
"""
QEMU = "exec qemu-system-x86_64 -M pc -m 256 -nographic -serial mon:stdio -boot n -device virtio-net-pci,netdev=n"
POWER = f"{QEMU} -netdev user,id=n,bootfile=http://10.0.2.2:{PORT}/boot.ipxe"


@pytest.fixture
def production(tmp_path: Path) -> Iterator[str]:
    """The name of a host's network, in which a boot server answers; a factory answers at the other end of its cable."""
    if missing := needs.missing():
        pytest.skip("; ".join(missing))
    host, factory = (f"{role}-{os.getpid()}" for role in ("host", "factory"))
    with ExitStack() as stack:
        for name in (host, factory):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
        ip("link", "add", "cable", "netns", host, "type", "veth", "peer", "name", "cable", "netns", factory)
        for name, address, file, text in ((host, "10.1.0.2", "boot.ipxe", SCRIPT), (factory, FACTORY, "kernel", "a kernel")):
            for link in ("cable", "lo"):
                ip("-netns", name, "link", "set", link, "up")
            ip("-netns", name, "address", "add", f"{address}/24", "dev", "cable")
            (tmp_path / name).mkdir()
            (tmp_path / name / file).write_text(text)
            serve = (sys.executable, "-I", "-m", "http.server", "--directory", str(tmp_path / name), str(PORT))
            server = subprocess.Popen(inside(name, *serve), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(server.wait)
            stack.callback(server.kill)
            assert until(lambda name=name, address=address: answers(name, address), 30)
        yield host


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def inside(network: str, *words: str) -> list[str]:
    """Return a command that runs in a network namespace."""
    return ["ip", "netns", "exec", network, *words]


def answers(network: str, address: str) -> bool:
    """Return True if a server answers at an address, as programs in a network see it."""
    text = f"import socket; socket.create_connection(('{address}', {PORT}), 3)"
    return subprocess.run(inside(network, sys.executable, "-I", "-c", text), capture_output=True, check=False).returncode == 0


@pytest.fixture
def second() -> Iterator[str]:
    """The name of the network of a second host, which has no cable."""
    name = f"second-{os.getpid()}"
    ip("netns", "add", name)
    yield name
    ip("netns", "delete", name)


def test_a_machine_boots_from_the_network_of_a_host_that_is_cut_off(production: str, second: str, tmp_path: Path) -> None:
    assert answers(production, FACTORY), "the host reaches the factory before it is cut off"
    machine = {"power": POWER, "user": "nobody", "seconds": SECONDS, "console": UNREACHABLE, "answers": ""}
    seen, other = drilled(production, second, tmp_path, machine)
    print(f"booted in {seen['machine']['took']} s, second host cut off for {other['took']} s")
    assert (seen["machine"]["failure"], seen["reached"], seen["remaining"]) == ("", [], [])
    assert other["took"] >= seen["machine"]["took"], "a host that boots the machine's server is cut off as long as it boots"
    assert (other["machine"], other["remaining"], ruled(second)) == (None, [], "")
    assert answers(production, FACTORY), "the host reaches it again"


def ruled(network: str) -> str:
    """Return the routing rules of a drill that are there in a network."""
    return subprocess.run(inside(network, "ip", "rule", "show", "pref", "9877"), capture_output=True, text=True, check=True).stdout


def drilled(network: str, second: str, folder: Path, machine: dict[str, Any]) -> list[dict[str, Any]]:
    """Play the playbook of a drill in the networks of two hosts, and return what it observed in each."""
    lists = {f"factory_{name}": [] for name in ("commands", "boot", "folders")}
    limits = {"factory_seconds": 60, "factory_trial_seconds": 900, "factory_read_seconds": 60}
    trial = {"factory_addresses": [FACTORY], "factory_ports": [PORT], "factory_machine_host": "login01", "factory_machine": machine}
    (folder / "variables.json").write_text(json.dumps({**trial, **lists, **limits, "factory_user": "nobody"}))
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec ip netns exec {second} {sys.executable} "$@"\n')
    python.chmod(0o755)
    pythons = {"login01": sys.executable, "web01": str(python)}
    (folder / "hosts").write_text("".join(f"{host} ansible_python_interpreter={path}\n" for host, path in pythons.items()))
    words = ("-v", "-i", str(folder / "hosts"), "-c", "local", "-e", f"@{folder}/variables.json")
    environment = {**os.environ, "ANSIBLE_LIBRARY": str(ROOT / "playbooks/library"), "ANSIBLE_HOME": str(folder / "ansible")}
    program = (str(Path(sys.executable).with_name("ansible-playbook")), *words, str(ROOT / "playbooks/factory_cut.yml"))
    done = subprocess.run(inside(network, *program), env=environment, capture_output=True, text=True, check=False)
    rows = re.findall(r"^ok: \[(\w+)\] => (\{.*\"observation\".*\})$", done.stdout, re.MULTILINE)
    assert sorted(host for host, _ in rows) == sorted(pythons), done.stdout + done.stderr
    return [json.loads(dict(rows)[host])["observation"] for host in pythons]
