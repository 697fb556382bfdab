"""The Argo engine: submits a run to Argo Workflows, then follows, answers and cancels it over the Kubernetes API."""
