"""Stage site_roles: a site's own Ansible role, run before or after a stage, ended well on every host."""
