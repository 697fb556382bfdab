"""Types of tasks about Kubernetes objects: what to apply, and what a cluster reports of it."""
