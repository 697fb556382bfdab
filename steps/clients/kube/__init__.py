"""Kubernetes API servers: how they are reached and trusted, raw reads, server-side apply."""
