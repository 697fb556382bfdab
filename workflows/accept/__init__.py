"""Acceptance of a cluster: the levels of its tests with their durations, and the nodes that a repair concerns."""
