"""Rehearsals: runs against a simulated cluster, made of an emulated Kubernetes API server, a simulator, and faults."""
