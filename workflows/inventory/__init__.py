"""Ansible inventories: converted into a spec (`bringup init --from-inventory`), or exported from one (`bringup inventory`)."""
