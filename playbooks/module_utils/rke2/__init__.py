"""Code that the Ansible modules `rke2_*` share: releases, settings, the supervisor, kubectl, and removal of RKE2."""
