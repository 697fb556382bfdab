"""Simulated machines, kubelets, controllers and operators, all played by one ordinary client of a Kubernetes API server."""
