"""Plays: Ansible on real or simulated hosts, the outcome of each host, and the events that are kept."""
