"""Plays machines, kubelets, controllers and operators against any Kubernetes API server, as an ordinary API client."""
