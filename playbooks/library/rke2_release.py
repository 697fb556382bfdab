#!/usr/bin/python
"""Ansible module that fetches and verifies an RKE2 release on its host, installs it, or restores the previous one."""

from __future__ import annotations

import platform
from typing import Any

from ansible.module_utils import host_lock, proxy_login
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import install_prefix, release_backup, release_files, restart_mark, security_rules
from ansible.module_utils.urls import open_url

DOCUMENTATION = r"""
module: rke2_release
short_description: Verifies, installs or restores an RKE2 release on its host
description:
  - C(fetched) downloads the archive and the image archives, or takes them from C(artifacts), verifies their checksums and puts the
    images into RKE2's image folder. The running RKE2 is not changed.
  - C(supplied) does this only for image archives that are not part of the release, on a host that has the release.
  - C(installed) backs up the installed release and unpacks the verified archive; each file is replaced atomically.
  - C(restored) restores the backed-up release and its configuration.
options:
  state: {description: 'Action to take.', type: str, choices: [fetched, supplied, installed, restored], required: true}
  version: {description: 'The release, such as v1.35.7+rke2r1.', type: str, required: true}
  replaces: {description: 'The installed release, to back up; empty: none.', type: str}
  source: {description: Base URL of the release files., type: str}
  artifacts: {description: Folder on the host with the release files; empty means download., type: str}
  checksum: {description: 'SHA-256 of the archive, instead of the one in the release''s list.', type: str}
  images: {description: 'Image archives that must exist, such as core, canal or own.tar.zst.', type: list, elements: str}
  proxy_user: {description: User of the proxies in the environment; empty for none., type: str}
  proxy_password: {description: Password of the proxies., type: str}
author: [bringup]
"""

RETURN = r"""
files: {description: Files that were missing or differed., type: list, returned: success}
temporary: {description: True if a retry may succeed., type: bool, returned: failure}
"""

SPEC: dict = {
    "state": {"type": "str", "choices": ["fetched", "supplied", "installed", "restored"], "required": True},
    "version": {"type": "str", "required": True},
    "replaces": {"type": "str", "default": ""},
    "source": {"type": "str", "default": ""},
    "artifacts": {"type": "str", "default": ""},
    "checksum": {"type": "str", "default": ""},
    "images": {"type": "list", "elements": "str", "default": []},
    **proxy_login.OPTIONS,
}


def act(module: AnsibleModule) -> list:
    """Fetch, supply, install or restore the release (`state`); return the files that were missing or differed."""
    wanted: dict[str, Any] = module.params
    if wanted["state"] == "restored":
        return [] if module.check_mode else _made(module, release_backup.restore(wanted["version"]))
    release = release_files.HostRelease(
        wanted["version"], platform.machine(), wanted["source"], wanted["artifacts"], wanted["checksum"], open_url
    )
    if wanted["state"] == "fetched":
        return release.fetch(wanted["images"], module.check_mode)
    if wanted["state"] == "supplied":
        return release.supply(wanted["images"], module.check_mode)
    if module.check_mode:
        return release.install(wanted["replaces"], True)
    restart_mark.mark()
    return _made(module, release.install(wanted["replaces"], False))


def _made(module: AnsibleModule, files: list) -> list:
    """Register installed files with SELinux and fapolicyd, record that a restart is due, and return the files.

    Raises GuardRefusal.
    """
    places = [install_prefix.target_path(name) for name in files] or [release_backup.PROGRAM]
    try:
        security_rules.register_files(places, lambda command: module.run_command(command, handle_exceptions=True))
    except security_rules.GuardRefusal:
        release_backup.begin()  # else the next run would take the release for a whole one
        raise
    restart_mark.mark_made()
    return files


def main() -> None:
    """Run the requested action on the release; a failure says whether a retry may succeed (`temporary`)."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    host_lock.hold_or_fail(module, "rke2_release")
    proxy_login.log_in(module.params)
    try:
        files = act(module)
    except release_files.DownloadInterrupted as error:
        module.fail_json(msg=str(error), temporary=True)
    except (release_files.InvalidRelease, release_backup.WrongBackup, security_rules.GuardRefusal, OSError) as error:
        module.fail_json(msg=str(error), temporary=False, replacing=release_backup.is_replacing())
    module.exit_json(changed=bool(files), files=files)


if __name__ == "__main__":
    main()
