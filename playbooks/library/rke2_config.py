#!/usr/bin/python
"""An Ansible module that writes RKE2's files, once they have been found to agree with each other and with the host."""

from __future__ import annotations

import os
import pwd
import re
import secrets

from ansible.module_utils import alone
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import aside, files, kubelet, pending, settings, supervisor

DOCUMENTATION = r"""
module: rke2_config
short_description: Writes RKE2's configuration after checking it
description:
  - Refuses keys that checks of a host or joins could not work with, be they in a drop-in of the host; keys that a drop-in would
    override, drop-ins that cannot be read, and what a profile needs and lacks.
  - Then replaces each file that differs in one step; one of the site's is kept aside first. Whether RKE2 must be restarted is
    remembered on the host until it was.
options:
  config:
    description: The parsed config.yaml.
    type: dict
    required: true
  files:
    description: Whole files.
    type: list
    elements: dict
    suboptions:
      path: {description: Where., type: path, required: true}
      content: {description: What., type: str, required: true}
      mode: {description: Octal mode., type: str}
      restart: {description: Whether RKE2 reads it only at its start., type: bool}
      absent: {description: Whether it is to go where it is ours., type: bool}
  token: {description: 'The cluster''s token; empty on the first server: one is made.', type: str}
  joined: {description: 'As what the host is part of a cluster already; empty: it is part of none.', type: str}
  etcd_user: {description: Whether the profile needs a user etcd on this host., type: bool}
author: [bringup]
"""

RETURN = r"""
files: {description: The paths that differed., type: list, returned: success}
pending: {description: Whether RKE2 must be restarted to know what its files say., type: bool, returned: success}
aside: {description: 'Where files of the site are kept whose places ours take.', type: list, returned: success}
restart: {description: Whether that is so or will be, once the files are written., type: bool, returned: success}
"""

TOKEN = "/etc/rancher/rke2/token"
CONFIG, OURS = settings.CONFIG, settings.OURS
KUBELET = "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/90-bringup.conf"
DEFAULTS, LATER = "/etc/default/", "/etc/sysconfig/"
"""RKE2's units read files of these folders, one after the other, and take of two assignments the later."""
ASSIGNED = re.compile(r"^[ \t]*([A-Za-z_]\w*)=(.*?)[ \t]*$", re.MULTILINE)
TWO_TOKENS = "agents would need another token than servers, and machines that join show the cluster's one, which it then refuses"
OTHER_DATA = "the cluster's data lies in an etcd on every server, by which members are told and which gates look at"
NEVER = {
    "data-dir": (
        "/var/lib/rancher/rke2",
        "RKE2's data lies in /var/lib/rancher/rke2, where gates and reset look for it (which may be a disk, or a link)",
    ),
    "token": ("", "the token lies in /etc/rancher/rke2/token (token-file), and RKE2 takes one of the two keys"),
    "agent-token": ("", TWO_TOKENS),
    "agent-token-file": ("", TWO_TOKENS),
    "datastore-endpoint": ("", OTHER_DATA),
    "disable-etcd": ("false", OTHER_DATA),
    "disable-apiserver": ("false", "a server counts as ready once its own API answers"),
    "bind-address": ("", "a host is asked at 127.0.0.1, where its RKE2 would not answer or would not call itself so"),
    "write-kubeconfig": ("/etc/rancher/rke2/rke2.yaml", "a server's kubeconfig is read from /etc/rancher/rke2/rke2.yaml"),
    "with-node-id": ("false", "nodes are known by the names of their hosts, and it adds to them"),
    "cluster-reset": ("false", "it would make a cluster of one server at every start"),
    "cluster-init": ("", "RKE2 has no such key; K3s has"),
}
"""Keys that nobody may set to anything else than what RKE2 takes by itself: that, where it can be said, and why."""
JOINS = "server"
"""The key by which a host joins a cluster. In the config.yaml of the one that founds ours it lacks."""
REGISTRIES, PRIVATE = "/etc/rancher/rke2/registries.yaml", "private-registry"
"""What RKE2 knows of registries, and the key that has it read another file."""
FILES = ("audit-policy-file", "pod-security-admission-config-file", "token-file")
"""Keys that name files which must be there at the start."""

FIXED = ("cluster-cidr", "service-cidr", "cluster-dns", "cluster-domain", "disable-kube-proxy", "egress-selector-mode")
"""Keys that a cluster is founded with: a server whose file says another value does not start again (peers §4)."""
MEMBER = "/var/lib/rancher/rke2/server/db/etcd/member"
"""What etcd itself makes at its first start, and RKE2 tells a member by."""
PLUGINS = re.compile(r"^cni:[ \t]*(\S.*|(?:\n[ \t]*-[ \t].*)+)", re.MULTILINE)
"""The network plugins in a config.yaml, as a list or alone."""


class Conflict(Exception):
    """The configuration cannot work; the text says which key, and what to do."""


def check(config: dict, paths: list) -> None:
    """Refuse a configuration that RKE2 would not start with, or not with what it says. Raises Conflict."""
    for key, value in config.items():
        why = never(key, value)
        if why:
            raise Conflict("config.yaml: %s: %s; remove it" % (key, why))
    plugins = config.get("cni", [])
    if "multus" in plugins and plugins[0] != "multus":
        raise Conflict("config.yaml: cni: multus must stand first, and stands at place %d" % (plugins.index("multus") + 1))
    for key in FILES:
        path = config.get(key, "")
        if path and path not in paths and not os.path.exists(path):
            raise Conflict("config.yaml: %s: %s is not there" % (key, path))


def never(key: str, value: object) -> str:
    """Why a key may not say this; empty where it may."""
    default, why = NEVER.get(key, ("", ""))
    return "" if default and str(value).lower() == default else why


def is_of_a_cluster(member: str = MEMBER, config: str = CONFIG) -> bool:
    """Whether the cluster of a server is there: RKE2 has its own files in etcd's folder before etcd runs, so that one whose first
    start came no further has founded nothing yet."""
    return os.path.exists(member) or settings.find("server", config) != ""


def check_fixed(config: dict, there: str) -> None:
    """A server of a cluster keeps what its cluster was founded with; `there` is its config.yaml of now. Raises Conflict."""
    for key in FIXED:
        found = re.search(r"^%s:[ \t]*(\S.*?)[ \t]*$" % key, there, re.MULTILINE)
        now = found.group(1).strip("'\"") if found else ""
        if now and key in config and now.lower() != str(config[key]).lower():
            said = "config.yaml: %s: the cluster was founded with %s; with %s this server would not start: take the old value back"
            raise Conflict(said % (key, now, config[key]))
    found = PLUGINS.search(there)
    now, wanted = _primary(re.findall(r"[a-z]+", found.group(1)) if found else []), _primary(config.get("cni", []))
    if now and wanted and now != wanted:
        said = "config.yaml: cni: the cluster was founded with %s, and RKE2 changes no cluster's plugin: take the old value back"
        raise Conflict(said % now)


def _primary(plugins: list) -> str:
    """The plugin that pods get their network from; empty where none is named."""
    return next((plugin for plugin in plugins if plugin != "multus"), "")


def check_etcd_user() -> None:
    """A hardened server runs etcd as its own user. Raises Conflict."""
    try:
        pwd.getpwnam("etcd")
    except KeyError:
        raise Conflict("config.yaml: profile: a hardened server needs the user etcd, which stage os_prep makes") from None


def check_drop_ins(config: dict, paths: list, folder: str = settings.DROP_INS) -> None:
    """Drop-ins are read after config.yaml and win: none may hold a key that we write, or that nobody may, or that leads RKE2 away
    from a file of ours. Raises Conflict."""
    for path in settings.drop_ins(folder):
        try:
            found = settings.load(path)
        except settings.Unreadable as error:
            raise Conflict(
                "%s cannot be read (%s), and may win over config.yaml: write one key a line there" % (path, error)
            ) from error
        for key, value in found.items():
            _check_drop_in(path, key, value, config)
            if key.rstrip("+") == PRIVATE and value != REGISTRIES and REGISTRIES in paths:
                said = "%s: %s: RKE2 would not read %s, where mirrors and logins of the spec are; remove it"
                raise Conflict(said % (path, PRIVATE, REGISTRIES))


def _check_drop_in(path: str, key: str, value: str, config: dict) -> None:
    """What a key with + says is added to a list that we write, and takes the place of anything else. Raises Conflict."""
    name = key.rstrip("+")
    why = never(name, value)
    if why:
        raise Conflict("%s: %s: %s; remove it" % (path, name, why))
    if name == JOINS or (name in config and not (key != name and isinstance(config[name], list) and name != "cni")):
        raise Conflict("%s sets %s, and would win over config.yaml: remove it there" % (path, key))


def check_environment(entries: list, root: str = "") -> None:
    """What we give RKE2's units must reach them. Raises Conflict."""
    for entry in entries:
        if entry["path"].startswith(DEFAULTS) and not entry["absent"]:
            later = LATER + entry["path"][len(DEFAULTS) :]
            ours = dict(ASSIGNED.findall(entry["content"]))
            for name, value in ASSIGNED.findall(read(root + later)):
                if name in ours and ours[name] != value.strip("'\""):
                    raise Conflict("%s sets %s, and is read after %s: remove it there" % (later, name, entry["path"]))


def check_kubelet(config: dict, entries: list) -> None:
    """A kubelet keeps its policies for CPUs and memory for as long as their checkpoints lie there. Raises Conflict."""
    fields = "".join(entry["content"] for entry in entries if entry["path"] == KUBELET and not entry["absent"])
    why = kubelet.refusal(config.get("kubelet-arg", []), fields, read(CONFIG) + "\n" + read(KUBELET))
    if why:
        raise Conflict(why)


def token_text(given: str, joined: str) -> str:
    """What the token file is to hold: one with the same secret stays as it is. Raises Conflict."""
    there = read(TOKEN)
    why = supervisor.token_refusal(there, given, joined)
    if why:
        raise Conflict("%s: %s" % (TOKEN, why))
    same = there and (not given or supervisor.password(there) == supervisor.password(given))
    return there if same else given or secrets.token_hex(32)


def read(path: str) -> str:
    """A file without its last newline; empty where it is not there."""
    try:
        with open(path, errors="replace") as source:
            return source.read().rstrip("\n")
    except OSError:
        return ""


def differing(entries: list) -> list:
    """Those files whose content or mode is another one, and those of ours that are to go."""
    found = []
    for entry in entries:
        path = entry["path"]
        if entry["absent"]:
            found += [entry] if read(path).startswith(OURS) else []
        elif read(path) != entry["content"].rstrip("\n") or os.stat(path).st_mode & 0o777 != int(entry["mode"], 8):
            found.append(entry)
    return found


def of_the_site(entries: list, root: str = "") -> list:
    """The places where something else lies than a file that begins as ours do."""
    signed = [entry["path"] for entry in entries if not entry["absent"] and entry["content"].startswith(OURS)]
    texts = {path: read(root + path) for path in signed}
    return [path for path, text in texts.items() if text.strip() and not text.startswith(OURS)]


def main() -> None:
    """Check, then write."""
    options = {
        "path": {"type": "path", "required": True},
        "content": {"type": "str", "required": True, "no_log": True},
        "mode": {"type": "str", "default": "0600"},
        "restart": {"type": "bool", "default": True},
        "absent": {"type": "bool", "default": False},
    }
    spec: dict = {
        "config": {"type": "dict", "required": True},
        "files": {"type": "list", "elements": "dict", "default": [], "options": options},
        "token": {"type": "str", "default": "", "no_log": True},
        "joined": {"type": "str", "choices": ["", "server", "agent"], "default": ""},
        "etcd_user": {"type": "bool", "default": False},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    alone.or_fail(module, "rke2_config")
    wanted = module.params
    try:
        token = {"path": TOKEN, "content": token_text(wanted["token"], wanted["joined"]), "mode": "0600"}
        files = [dict(token, restart=True, absent=False), *wanted["files"]]
        paths = [entry["path"] for entry in files if not entry["absent"]]
        check(wanted["config"], paths)
        check_drop_ins(wanted["config"], paths)
        check_environment(wanted["files"])
        check_kubelet(wanted["config"], wanted["files"])
        if wanted["joined"] == "server" and is_of_a_cluster():
            check_fixed(wanted["config"], read(CONFIG))
        if wanted["etcd_user"]:
            check_etcd_user()
        found = differing(files)
        kept = [] if module.check_mode else [aside.keep(path) for path in of_the_site(found)]
        if not module.check_mode:
            write(found)
    except (Conflict, OSError) as error:
        module.fail_json(msg=str(error))
    waits = pending.is_there() and not pending.restarted(module)
    restart = waits or any(entry["restart"] for entry in found)
    module.exit_json(changed=bool(found), files=[entry["path"] for entry in found], aside=kept, pending=waits, restart=restart)


def write(entries: list, owed: str = pending.PATH) -> None:
    """Replace the files; the need of a restart is remembered first, so that it outlives a run that is killed before it."""
    if any(entry["restart"] for entry in entries):
        pending.mark(owed)
    for entry in entries:
        if entry["absent"]:
            os.unlink(entry["path"])
        else:
            files.write(entry["path"], (entry["content"].rstrip("\n") + "\n").encode(), int(entry["mode"], 8))
    if any(entry["restart"] for entry in entries):
        pending.made(owed)


if __name__ == "__main__":
    main()
