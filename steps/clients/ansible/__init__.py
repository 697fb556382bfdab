"""Runs playbooks on real or simulated hosts; returns each host's outcome and keeps the play's events."""
