"""A stand-in for the Argo workflow-controller: plays on a Kubernetes API what a recorded controller shows, by our own engine."""
