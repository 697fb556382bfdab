#!/usr/bin/python
"""Ansible module that waits until an RKE2 supervisor accepts joins with a given token; it changes nothing."""

from __future__ import annotations

from ansible.module_utils import polling
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import supervisor

DOCUMENTATION = r"""
module: rke2_supervisor
short_description: Waits until an RKE2 supervisor is ready to be joined
description:
  - Polls /ping and, with the token, /v1-rke2/readyz on port 9345 until both succeed. An open port alone does not count.
  - A token that is refused, or that belongs to another cluster, fails at once.
options:
  address: {description: Address of the supervisor., type: str, required: true}
  token: {description: The cluster's token., type: str, required: true}
  seconds: {description: Longest wait in seconds., type: int, required: true}
author: [bringup]
"""

RETURN = r"""
"""


def main() -> None:
    """Wait for the supervisor; fail with the reason if it refuses the token or is not ready in time."""
    spec = {
        "address": {"type": "str", "required": True},
        "token": {"type": "str", "required": True, "no_log": True},
        "seconds": {"type": "int", "required": True},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    address, token, seconds = module.params["address"], module.params["token"], module.params["seconds"]
    state, message = "", ""
    for _ in polling.attempts(0 if module.check_mode else seconds):
        state, message = supervisor.state(address, token)
        if state not in (supervisor.SILENT, supervisor.STARTING):
            break
    if state == supervisor.PONG or module.check_mode:
        module.exit_json(changed=False)
    module.fail_json(
        msg=message if state in (supervisor.REFUSED, supervisor.STRANGER) else "not ready after %d s: %s" % (seconds, message)
    )


if __name__ == "__main__":
    main()
