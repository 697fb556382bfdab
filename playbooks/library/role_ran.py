#!/usr/bin/python
"""Ansible module that reports that a host reached the end of a role of the site; it changes nothing."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: role_ran
short_description: Reports that a host reached the end of a role
description:
  - Put it as the last task after a role. A host that failed or left the play earlier does not run it. It changes nothing.
options:
  role: {description: Name of the role., type: str, required: true}
  digest: {description: Digest of the role's files., type: str, required: true}
author: [bringup]
"""

RETURN = r"""
observation: {description: The values of C(role) and C(digest)., type: dict, returned: always}
"""


def main() -> None:
    """Exit with the name and digest of the role that ran."""
    arguments = {"role": {"type": "str", "required": True}, "digest": {"type": "str", "required": True}}
    module = AnsibleModule(argument_spec=arguments, supports_check_mode=True)
    module.exit_json(changed=False, observation={"role": module.params["role"], "digest": module.params["digest"]})


if __name__ == "__main__":
    main()
