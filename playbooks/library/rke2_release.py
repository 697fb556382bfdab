#!/usr/bin/python
"""An Ansible module that has an RKE2 release verified on its host, installs it, or puts the one before it back."""

from __future__ import annotations

import platform
from typing import Any

from ansible.module_utils import alone, proxies
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import guards, kept, pending, prefix, release
from ansible.module_utils.urls import open_url

DOCUMENTATION = r"""
module: rke2_release
short_description: Verifies, installs or restores an RKE2 release on its host
description:
  - C(fetched) downloads or finds the archive and the image archives, verifies each against the release's checksums and puts the
    images in their place. Nothing that runs is touched.
  - C(supplied) does so with the image archives of the site's own alone, on a host that has the release.
  - C(installed) keeps what is installed and unpacks the verified archive; each file is replaced in one step.
  - C(restored) puts the kept release and its configuration back.
options:
  state: {description: 'What is to be done.', type: str, choices: [fetched, supplied, installed, restored], required: true}
  version: {description: 'The release, as v1.35.7+rke2r1.', type: str, required: true}
  replaces: {description: 'The release that is installed, and kept; empty: none.', type: str}
  source: {description: Base URL of the release files., type: str}
  artifacts: {description: Folder on the host with the release files; empty means download., type: str}
  checksum: {description: sha256 of the archive in place of the one in the release's list., type: str}
  images: {description: 'Image archives that must be there, as core, canal or own.tar.zst.', type: list, elements: str}
  proxy_user: {description: User of the proxies in the environment; empty for none., type: str}
  proxy_password: {description: Its password., type: str}
author: [bringup]
"""

RETURN = r"""
files: {description: What was missing or differed., type: list, returned: success}
temporary: {description: Whether it may succeed when tried again., type: bool, returned: failure}
"""

SPEC: dict = {
    "state": {"type": "str", "choices": ["fetched", "supplied", "installed", "restored"], "required": True},
    "version": {"type": "str", "required": True},
    "replaces": {"type": "str", "default": ""},
    "source": {"type": "str", "default": ""},
    "artifacts": {"type": "str", "default": ""},
    "checksum": {"type": "str", "default": ""},
    "images": {"type": "list", "elements": "str", "default": []},
    **proxies.OPTIONS,
}


def act(module: AnsibleModule) -> list:
    """Do what `state` says; returns the files that it concerned."""
    wanted: dict[str, Any] = module.params
    if wanted["state"] == "restored":
        return [] if module.check_mode else _made(module, kept.restore(wanted["version"]))
    one = release.Release(
        wanted["version"], platform.machine(), wanted["source"], wanted["artifacts"], wanted["checksum"], open_url
    )
    if wanted["state"] == "fetched":
        return one.fetch(wanted["images"], module.check_mode)
    if wanted["state"] == "supplied":
        return one.supply(wanted["images"], module.check_mode)
    if module.check_mode:
        return one.install(wanted["replaces"], True)
    pending.mark()
    return _made(module, one.install(wanted["replaces"], False))


def _made(module: AnsibleModule, files: list) -> list:
    """All files are in their places: RKE2 knows them from its next start on. Raises Refused."""
    places = [prefix.place(name) for name in files] or [kept.PROGRAM]
    try:
        guards.tell(places, lambda command: module.run_command(command, handle_exceptions=True))
    except guards.Refused:
        kept.begin()  # else the next run would take the release for a whole one
        raise
    pending.made()
    return files


def main() -> None:
    """One state of one release."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    alone.or_fail(module, "rke2_release")
    proxies.log_in(module.params)
    try:
        files = act(module)
    except release.Later as error:
        module.fail_json(msg=str(error), temporary=True)
    except (release.Bad, kept.NotKept, guards.Refused, OSError) as error:
        module.fail_json(msg=str(error), temporary=False, replacing=kept.is_replacing())
    module.exit_json(changed=bool(files), files=files)


if __name__ == "__main__":
    main()
