"""Ansible inventories: read into a spec (`bringup init --from-inventory`), written from one (`bringup inventory`)."""
