"""Simulated machines, kubelets, controllers and operators, played by an ordinary client of any Kubernetes API server."""
