"""A stand-in for Argo's workflow-controller: the embedded engine behind a Kubernetes API, showing what a real controller showed."""
