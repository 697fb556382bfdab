"""Render a plan into Argo manifests, and check these manifests."""
