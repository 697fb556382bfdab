"""The peers of `os_prep.py`: what each runs to settle the same items, and where it comes from."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import os_prep_items as items
import os_prep_shell as posix
from real_hosts import debian, lab

PYINFRA = "pyinfra>=3,<4"
KUBESPRAY_TOOLS = ("ansible==11.13.0", "netaddr", "jmespath")
"""Python packages that Kubespray 2.29 requires: ansible-core 2.18 with the community's collections."""

KUBESPRAY = "BRINGUP_KUBESPRAY"
"""Environment variable that names a checkout of Kubespray."""


@dataclass(frozen=True)
class Peer:
    """A command that settles the items on all hosts; `environment` is added to ours."""

    command: tuple[str, ...]
    environment: dict[str, str]


def shell(made: lab.Lab, folder: Path) -> Peer:
    """One script a host, over one login each, all at once: what no tool can beat by much."""
    options = ["-i", str(made.key), "-o", f"UserKnownHostsFile={made.known_hosts}", "-o", "StrictHostKeyChecking=yes"]
    lines = []
    for host in made.hosts:
        script = folder / f"{host.name}.sh"
        script.write_text(posix.script(host.name, host.address))
        ssh = shlex.join(["ssh", *options, f"root@{host.address}", "sh -s"])
        lines.append(f"{{ {ssh} < {script} > {script}.log 2>&1 || echo {host.name} >> failed; }} &")
    starter = folder / "all.sh"
    starter.write_text("\n".join([f"cd {folder}; rm -f failed", *lines, "wait", "[ ! -e failed ]", ""]))
    return Peer(("sh", str(starter)), {})


def pyinfra(made: lab.Lab, folder: Path) -> Peer:
    """pyinfra with its own operations, all hosts at once."""
    data = {
        "ssh_user": "root",
        "ssh_key": str(made.key),
        "ssh_known_hosts_file": str(made.known_hosts),
        "ssh_strict_host_key_checking": "yes",
    }
    hosts = [(host.name, {"ssh_hostname": host.address, "address": host.address, **data}) for host in made.hosts]
    (folder / "inventory.py").write_text(f"lab = {hosts!r}\n")
    (folder / "deploy.py").write_text(_deploy())
    program = _tool("pyinfra", PYINFRA) / "pyinfra"
    return Peer(("env", f"--chdir={folder}", str(program), "--parallel", str(len(hosts)), "-y", "inventory.py", "deploy.py"), {})


def _deploy() -> str:
    put = "".join(
        f"done = files.put(src=io.StringIO({content!r}), dest={path!r}, mode='644')\n"
        + ("server.shell(commands=['systemctl daemon-reexec'], _if=done.did_change)\n" if path == items.REEXEC else "")
        for path, content in items.files().items()
    )
    return f"""import io
from pyinfra import host
from pyinfra.operations import apt, files, server, systemd
apt.packages(packages={list(items.PACKAGES)!r})
server.shell(commands=[{posix.SPACE!r}])
server.shell(commands=[{posix.ROUTE!r}])
server.hostname(hostname=host.name)
files.line(path="/etc/hosts", line=f"{{host.data.address}} {{host.name}}", escape_regex_characters=True)
{put}for path in {items.DIRECTORIES!r}:
    files.directory(path=path, mode="755")
files.replace(path="/etc/fstab", text=r"^([^#][^ ]* +[^ ]+ +swap .*)$", replace=r"# \\\\1")
server.shell(commands=[{_once(posix.kernel())!r}])
for unit in {items.STOPPED!r}:
    systemd.service(service=unit, running=False, enabled=False)
for unit in {items.MASKED!r}:
    server.shell(commands=[f"[ \\"$(systemctl is-enabled {{unit}} 2>/dev/null)\\" = masked ] || systemctl mask --now {{unit}}"])
systemd.service(service={items.TIME_SERVICE!r}, running=True, enabled=True)
"""


def _once(lines: list[str]) -> str:
    return "; ".join([*lines, "true"])


def _tool(name: str, *packages: str) -> Path:
    """The programs of a peer, in an environment of its own: made by uv once, kept. RuntimeError where it cannot be had."""
    place = debian.cache_folder() / "peers" / name
    if not (place / "complete").exists():
        make = ["uv", "venv", "--quiet", "--clear", "--python", sys.executable, str(place)]
        fill = ["uv", "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), *packages]
        for command in (make, fill):
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            except OSError as error:
                raise RuntimeError(f"{name} is made by uv, which is not here: {error.strerror}") from error
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(command[:3])}: {done.stderr.strip()[-300:]}")
        (place / "complete").touch()
    return place / "bin"


def ansible(made: lab.Lab, folder: Path, most: int) -> Peer:
    """Return the peer that sets the items by plain tasks with ansible-core's defaults, on the first `most` hosts."""
    (folder / "hosts.json").write_text(_inventory(made, most))
    (folder / "plain.yml").write_text(json.dumps([{"hosts": "all", "tasks": _tasks()}]))
    (folder / "ansible.cfg").write_text("[defaults]\n")
    program = Path(sys.executable).with_name("ansible-playbook")
    command = (str(program), "-i", str(folder / "hosts.json"), str(folder / "plain.yml"))
    return Peer(command, {"ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_HOME": str(folder / "home")})


def _inventory(made: lab.Lab, most: int, **groups: object) -> str:
    inventory = json.loads(made.inventory())
    inventory["all"]["hosts"] = dict(list(inventory["all"]["hosts"].items())[:most])
    inventory["all"]["children"] = groups
    return json.dumps(inventory)


def _tasks() -> list[dict[str, object]]:
    """Plain tasks of ansible-core's own modules, one an item as people write them."""
    free = {"cmd": f"df -m --output=avail {items.DISK[0].rsplit('/', 1)[0]}"}
    tasks: list[dict[str, object]] = [
        {"apt": {"name": list(items.PACKAGES)}},
        {
            "command": free,
            "register": "free",
            "failed_when": f"free.stdout_lines[-1] | int < {items.DISK[1]}",
            "changed_when": False,
        },
        {"shell": posix.ROUTE, "changed_when": False},
        {"hostname": {"name": "{{ inventory_hostname }}"}},
        {"lineinfile": {"path": "/etc/hosts", "line": "{{ ansible_host }} {{ inventory_hostname }}"}},
        {"file": {"path": items.REEXEC.rsplit("/", 1)[0], "state": "directory"}},
    ]
    tasks += [
        {"copy": {"dest": path, "content": content, "mode": "0644"}, "register": "kept"} for path, content in items.files().items()
    ]
    tasks += [{"command": "systemctl daemon-reexec", "when": "kept is changed"}]
    tasks += [{"file": {"path": path, "state": "directory", "mode": "0755"}} for path in items.DIRECTORIES]
    tasks += [{"replace": {"path": "/etc/fstab", "regexp": r"^([^#\s]\S*\s+\S+\s+swap\s.*)$", "replace": r"# \1"}}]
    tasks += [{"shell": _once(posix.kernel()), "register": "kernel", "changed_when": "'changed' in kernel.stdout"}]
    tasks += [
        {"shell": f"! systemctl is-active --quiet {unit} || systemctl disable --now {unit}", "changed_when": False}
        for unit in items.STOPPED
    ]
    tasks += [{"systemd_service": {"name": unit, "masked": True}} for unit in items.MASKED]
    tasks += [{"systemd_service": {"name": items.TIME_SERVICE, "enabled": True}}]
    return tasks


KUBESPRAY_PLAY = """- hosts: all
  gather_facts: false
  roles: [dynamic_groups]
- import_playbook: playbooks/internal_facts.yml
- hosts: k8s_cluster:etcd
  gather_facts: false
  roles: [kubespray_defaults, kubernetes/preinstall]
"""
KUBESPRAY_SETTINGS = {
    "kube_network_plugin": "cni",
    "dns_mode": "none",
    "ntp_enabled": False,
    "ignore_assert_errors": True,
    "enable_nodelocaldns": False,
}
"""Settings of Kubespray for hosts that have no kernel modules, no DNS and no clock of their own."""


@contextmanager
def kubespray(made: lab.Lab, folder: Path, most: int) -> Iterator[Peer | None]:
    """Kubespray's own bootstrap and preinstall on the first `most` hosts, without its packages; None where no checkout is given.

    Its play must lie in the checkout, which is the user's: it is there while the context lasts.
    """
    checkout = Path(os.environ.get(KUBESPRAY) or "/nowhere")
    if not (checkout / "roles/kubernetes/preinstall").is_dir():
        yield None
        return
    play = checkout / "bringup_bench.yml"
    play.write_text(KUBESPRAY_PLAY)
    try:
        yield _kubespray(made, folder, most, play)
    finally:
        play.unlink()


def _kubespray(made: lab.Lab, folder: Path, most: int, play: Path) -> Peer:
    names = [host.name for host in made.hosts[:most]]
    groups = {
        "kube_control_plane": {"hosts": {names[0]: None}},
        "etcd": {"hosts": {names[0]: None}},
        "kube_node": {"hosts": dict.fromkeys(names)},
    }
    (folder / "kubespray.json").write_text(_inventory(made, most, **groups))
    (folder / "kubespray_extra.json").write_text(json.dumps(KUBESPRAY_SETTINGS))
    program = _tool("kubespray", *KUBESPRAY_TOOLS) / "ansible-playbook"
    command = (str(program), "-i", str(folder / "kubespray.json"), "--skip-tags", "system-packages")
    extra = ("-e", f"@{folder / 'kubespray_extra.json'}", str(play))
    settings = {
        "ANSIBLE_CONFIG": str(play.with_name("ansible.cfg")),
        "ANSIBLE_FORKS": "50",
        "ANSIBLE_HOME": str(folder / "kubespray_home"),
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(folder / "kubespray_facts"),
    }
    return Peer((*command, *extra), settings)
