"""Kubernetes API servers: access by kubeconfig, raw reads, server-side apply."""
