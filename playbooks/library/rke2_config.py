#!/usr/bin/python
"""Ansible module that writes RKE2's configuration files after checking that they agree with each other and with the host."""

from __future__ import annotations

import os
import pwd
import re
import secrets

from ansible.module_utils import atomic_files, host_lock
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import kubelet_policies, restart_mark, rke2_settings, site_backups, supervisor

DOCUMENTATION = r"""
module: rke2_config
short_description: Writes RKE2's configuration after checking it
description:
  - Refuses keys that break joining a cluster or bringup's checks, also in drop-in files; keys that a drop-in file would override;
    unreadable drop-in files; and a CIS profile whose requirements are missing.
  - Then replaces each differing file atomically, after a backup if bringup did not write it. A file on the host records that RKE2
    needs a restart until it has restarted.
options:
  config:
    description: The parsed config.yaml.
    type: dict
    required: true
  files:
    description: Files to write, with their whole content.
    type: list
    elements: dict
    suboptions:
      path: {description: Path of the file., type: path, required: true}
      content: {description: Content of the file., type: str, required: true}
      mode: {description: Octal mode., type: str}
      restart: {description: True if RKE2 reads the file only at its start., type: bool}
      absent: {description: True to remove the file if bringup wrote it., type: bool}
  token: {description: 'The cluster''s token. Empty on the first server: generate one.', type: str}
  joined: {description: 'Role with which the host has joined a cluster; empty: not joined.', type: str}
  etcd_user: {description: True if the CIS profile needs a user etcd on this host., type: bool}
author: [bringup]
"""

RETURN = r"""
files: {description: Paths of the files that differed., type: list, returned: success}
pending: {description: True if RKE2 must be restarted to read its files., type: bool, returned: success}
aside: {description: 'Paths of the backups of replaced files that bringup did not write.', type: list, returned: success}
restart: {description: True if a restart is due now or after the files are written., type: bool, returned: success}
"""

TOKEN = "/etc/rancher/rke2/token"
CONFIG, OURS = rke2_settings.CONFIG, rke2_settings.OURS
KUBELET = "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/90-bringup.conf"
DEFAULTS, LATER = "/etc/default/", "/etc/sysconfig/"
"""Folders of environment files for RKE2's units. systemd reads both in this order, and the later assignment wins."""
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
"""Keys that must keep RKE2's default: key → that default (empty if the key must not be written at all), and the reason."""
JOINS = "server"
"""Key of config.yaml with the server that a host joins. The server that founds a cluster has no such key."""
REGISTRIES, PRIVATE = "/etc/rancher/rke2/registries.yaml", "private-registry"
"""Path of RKE2's registry settings, and the config.yaml key that makes RKE2 read another file instead."""
FILES = ("audit-policy-file", "pod-security-admission-config-file", "token-file")
"""Keys that name files which must exist when RKE2 starts."""

FIXED = ("cluster-cidr", "service-cidr", "cluster-dns", "cluster-domain", "disable-kube-proxy", "egress-selector-mode")
"""Keys whose values are fixed when a cluster is founded. With another value a server does not start (docs.rke2.io/install/ha)."""
MEMBER = "/var/lib/rancher/rke2/server/db/etcd/member"
"""The folder that etcd makes at its first start. RKE2 takes a server with this folder for an etcd member."""
PLUGINS = re.compile(r"^cni:[ \t]*(\S.*|(?:\n[ \t]*-[ \t].*)+)", re.MULTILINE)
"""The network plugins in a config.yaml, as a list or as one value."""


class ConfigConflict(Exception):
    """Error: RKE2 cannot work with this configuration; the text names the key and the remedy."""


def check(config: dict, paths: list) -> None:
    """Raise ConfigConflict if RKE2 would not start with the parsed config.yaml `config`, or would ignore part of it.

    `paths` are the files that this module writes, which a key of `config` may name although they do not exist yet.
    """
    for key, value in config.items():
        why = never(key, value)
        if why:
            raise ConfigConflict("config.yaml: %s: %s; remove it" % (key, why))
    plugins = config.get("cni", [])
    if "multus" in plugins and plugins[0] != "multus":
        raise ConfigConflict("config.yaml: cni: multus must stand first, and stands at place %d" % (plugins.index("multus") + 1))
    for key in FILES:
        path = config.get(key, "")
        if path and path not in paths and not os.path.exists(path):
            raise ConfigConflict("config.yaml: %s: %s is not there" % (key, path))


def never(key: str, value: object) -> str:
    """Return the reason why a config.yaml key must not have this value; empty if it may."""
    default, why = NEVER.get(key, ("", ""))
    return "" if default and str(value).lower() == default else why


def is_of_a_cluster(member: str = MEMBER, config: str = CONFIG) -> bool:
    """Return True if etcd has run on this server, or config.yaml names a server to join. etcd's empty folder proves nothing."""
    return os.path.exists(member) or rke2_settings.effective_value("server", config) != ""


def check_fixed(config: dict, there: str) -> None:
    """Raise ConfigConflict if `config` changes a value that the cluster was founded with.

    `there` is the present config.yaml's text.
    """
    for key in FIXED:
        match = re.search(r"^%s:[ \t]*(\S.*?)[ \t]*$" % key, there, re.MULTILINE)
        present = match.group(1).strip("'\"") if match else ""
        if present and key in config and present.lower() != str(config[key]).lower():
            why = "the cluster was founded with %s; with %s this server would not start: take the old value back"
            raise ConfigConflict("config.yaml: %s: %s" % (key, why % (present, config[key])))
    match = PLUGINS.search(there)
    present, wanted = _primary(re.findall(r"[a-z]+", match.group(1)) if match else []), _primary(config.get("cni", []))
    if present and wanted and present != wanted:
        message = "config.yaml: cni: the cluster was founded with %s, and RKE2 changes no cluster's plugin: take the old value back"
        raise ConfigConflict(message % present)


def _primary(plugins: list) -> str:
    """Return the network plugin that gives pods their main network: the first one except multus; empty if none is named."""
    return next((plugin for plugin in plugins if plugin != "multus"), "")


def check_etcd_user() -> None:
    """Raise ConfigConflict if the user `etcd` is missing, which RKE2's hardened (CIS) profile needs on a server."""
    try:
        pwd.getpwnam("etcd")
    except KeyError:
        raise ConfigConflict("config.yaml: profile: a hardened server needs the user etcd, which stage os_prep makes") from None


def check_drop_ins(config: dict, paths: list, folder: str = rke2_settings.DROP_INS) -> None:
    """Raise ConfigConflict for a drop-in that overrides our keys, sets a forbidden key, or hides our registries.yaml.

    RKE2 reads drop-ins after config.yaml, so they win. `paths` are the files that this module writes.
    """
    for path in rke2_settings.drop_ins(folder):
        try:
            keys = rke2_settings.load(path)
        except rke2_settings.SettingsUnreadable as error:
            message = "%s cannot be read (%s), and may win over config.yaml: write one key a line there"
            raise ConfigConflict(message % (path, error)) from error
        for key, value in keys.items():
            _check_drop_in(path, key, value, config)
            if key.rstrip("+") == PRIVATE and value != REGISTRIES and REGISTRIES in paths:
                message = "%s: %s: RKE2 would not read %s, where mirrors and logins of the spec are; remove it"
                raise ConfigConflict(message % (path, PRIVATE, REGISTRIES))


def _check_drop_in(path: str, key: str, value: str, config: dict) -> None:
    """Raise ConfigConflict if a key of a drop-in conflicts with `config`. A key that ends in + adds to a list; others replace."""
    name = key.rstrip("+")
    why = never(name, value)
    if why:
        raise ConfigConflict("%s: %s: %s; remove it" % (path, name, why))
    if name == JOINS or (name in config and not (key != name and isinstance(config[name], list) and name != "cni")):
        raise ConfigConflict("%s sets %s, and would win over config.yaml: remove it there" % (path, key))


def check_environment(entries: list, root: str = "") -> None:
    """Raise ConfigConflict if a file in /etc/sysconfig overrides a variable that bringup sets for RKE2's units in /etc/default."""
    for entry in entries:
        if entry["path"].startswith(DEFAULTS) and not entry["absent"]:
            later = LATER + entry["path"][len(DEFAULTS) :]
            ours = dict(ASSIGNED.findall(entry["content"]))
            for name, value in ASSIGNED.findall(atomic_files.read(root + later)):
                if name in ours and ours[name] != value.strip("'\""):
                    raise ConfigConflict("%s sets %s, and is read after %s: remove it there" % (later, name, entry["path"]))


def check_kubelet(config: dict, entries: list) -> None:
    """Raise ConfigConflict if kubelet checkpoints on this host contradict the wanted CPU or memory policy."""
    fields = "".join(entry["content"] for entry in entries if entry["path"] == KUBELET and not entry["absent"])
    before = atomic_files.read(CONFIG) + "\n" + atomic_files.read(KUBELET)
    why = kubelet_policies.refusal(config.get("kubelet-arg", []), fields, before)
    if why:
        raise ConfigConflict(why)


def token_text(token: str, joined: str) -> str:
    """Return the content for RKE2's token file: the present content if its secret is the given one, else the given or a new token.

    Raises ConfigConflict if the host, which has joined as `joined` (server, agent or empty), does not accept the token.
    """
    there = atomic_files.read(TOKEN).rstrip("\n")
    why = supervisor.token_refusal(there, token, joined)
    if why:
        raise ConfigConflict("%s: %s" % (TOKEN, why))
    same = there and (not token or supervisor.password(there) == supervisor.password(token))
    return there if same else token or secrets.token_hex(32)


def differing_files(entries: list) -> list:
    """Return the file entries whose content or mode differs on the host, and the entries of files to remove that bringup wrote."""
    changed = []
    for entry in entries:
        path, text = entry["path"], atomic_files.read(entry["path"]).rstrip("\n")
        if entry["absent"]:
            changed += [entry] if text.startswith(OURS) else []
        elif text != entry["content"].rstrip("\n") or os.stat(path).st_mode & 0o777 != int(entry["mode"], 8):
            changed.append(entry)
    return changed


def of_the_site(entries: list, root: str = "") -> list:
    """Return the paths at which the site has a file of its own that one of bringup's files would replace."""
    signed = [entry["path"] for entry in entries if not entry["absent"] and entry["content"].startswith(OURS)]
    texts = {path: atomic_files.read(root + path) for path in signed}
    return [path for path, text in texts.items() if text.strip() and not text.startswith(OURS)]


FILE: dict = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str", "required": True, "no_log": True},
    "mode": {"type": "str", "default": "0600"},
    "restart": {"type": "bool", "default": True},
    "absent": {"type": "bool", "default": False},
}
SPEC: dict = {
    "config": {"type": "dict", "required": True},
    "files": {"type": "list", "elements": "dict", "default": [], "options": FILE},
    "token": {"type": "str", "default": "", "no_log": True},
    "joined": {"type": "str", "choices": ["", "server", "agent"], "default": ""},
    "etcd_user": {"type": "bool", "default": False},
}


def main() -> None:
    """Check the configuration, write the files that differ, and exit with their paths and whether RKE2 must be restarted."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    host_lock.hold_or_fail(module, "rke2_config")
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
            check_fixed(wanted["config"], atomic_files.read(CONFIG))
        if wanted["etcd_user"]:
            check_etcd_user()
        changed = differing_files(files)
        kept = [] if module.check_mode else [site_backups.back_up(path) for path in of_the_site(changed)]
        if not module.check_mode:
            write(changed)
    except (ConfigConflict, OSError) as error:
        module.fail_json(msg=str(error))
    waits = restart_mark.is_pending() and not restart_mark.has_restarted(module)
    restart = waits or any(entry["restart"] for entry in changed)
    module.exit_json(changed=bool(changed), files=[entry["path"] for entry in changed], aside=kept, pending=waits, restart=restart)


def write(entries: list, owed: str = restart_mark.PATH) -> None:
    """Replace or remove the files of the entries. The restart mark is written first, so that a killed run leaves it behind."""
    if any(entry["restart"] for entry in entries):
        restart_mark.mark(owed)
    for entry in entries:
        if entry["absent"]:
            os.unlink(entry["path"])
        else:
            atomic_files.write(entry["path"], (entry["content"].rstrip("\n") + "\n").encode(), int(entry["mode"], 8))
    if any(entry["restart"] for entry in entries):
        restart_mark.mark_made(owed)


if __name__ == "__main__":
    main()
