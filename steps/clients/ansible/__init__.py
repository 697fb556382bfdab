"""Plays: Ansible on real or simulated hosts, what each host made of it, and what is remembered of it."""
